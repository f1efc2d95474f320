"""`djepa weights`: which weights there are, and whether they are whole."""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from djepa.cli.console import console


@dataclass(frozen=True)
class Weights:
    """List the weights that go by name, and verify every file of each against its hash."""

    names: Annotated[tuple[str, ...], Positional, arg(metavar="WEIGHTS ...")] = ()
    """Names, folders or Hugging Face repositories; all that go by name unless some are given."""

    def run(self) -> int:
        """One line per weights; stop at the first that are damaged."""
        from djepa.models.weights import describe, listed, places

        for name in self.names or listed():
            console.print(describe(name))
        console.print(f"looked in {', '.join(str(place) for place in places())}")
        return 0
