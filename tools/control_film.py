"""A film of closed loop: the same episodes under several planners, side by side.

    python -m tools.control_film runs/film/native runs/film/aligned --out film.gif

The folders are what `djepa control` wrote for the same episodes.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import Positional, arg

from djepa.align.registry import label
from djepa.control.episodes import MODERATE, STRICT
from djepa.control.results import Episodes
from djepa.errors import DjepaError, check_name
from djepa.report.episodes import Ran, film
from djepa.report.sheet import save_animation


@dataclass(frozen=True)
class ControlFilm:
    """Make one GIF: a row for each episode, a column for each planner."""

    folders: Annotated[tuple[Path, ...], Positional, arg(metavar="EPISODES")]
    """Finished folders of the same episodes, one for each planner."""
    out: Path = Path("runs/closed-loop.gif")
    """The film."""
    episodes: tuple[int, ...] = (0, 1, 2)
    """Which of them, by number."""
    rule: str = MODERATE
    """By which they count as solved: moderate or strict."""

    def run(self) -> Path:
        """Write the film."""
        check_name("rule", self.rule, (MODERATE, STRICT))
        found = {_name(of): of for of in map(Episodes, self.folders)}
        if not found or len({of.list_hash for of in found.values()}) > 1:
            raise DjepaError("Give folders of the same episodes.")
        if len(found) < len(self.folders):
            raise DjepaError("Two of the folders are of the same planner.")
        first = next(iter(found.values()))
        if not self.episodes or not all(0 <= n < len(first) for n in self.episodes):
            raise DjepaError(f"There are {len(first)} episodes, numbered from 0.")
        solved = {name: of.steps(self.rule) for name, of in found.items()}
        ran = [
            (
                first.arrays["goal"][n],
                {
                    name: Ran(
                        of.arrays["states"][n],
                        int(of.arrays["executed"][n]),
                        int(solved[name][n]),
                    )
                    for name, of in found.items()
                },
            )
            for n in self.episodes
        ]
        self.out.parent.mkdir(parents=True, exist_ok=True)
        save_animation(self.out, film(first.config.starts().make_world(), ran))
        return self.out


def _name(of: Episodes) -> str:
    """The planner as tables name it."""
    kind = str(of.planner["planner"])
    if kind == "native-cem":
        return label(f"cem {of.planner['geometry']}")
    few = of.planner.get("shortlist")
    return label(kind) + (f", of {few}" if few else "")


def main() -> None:
    """Run and print."""
    made = tyro.cli(ControlFilm)
    try:
        print(made.run())
    except DjepaError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
