"""Where the work of a command is done."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from djepa.rollout.engine import Engine


@dataclass(frozen=True)
class Workers:
    """Where the work is done. None of it changes a byte."""

    engine: str = "local"
    """local (processes on this machine) or ray."""
    workers: int = 0
    """Processes; 0 takes every core, on a GPU one process."""
    address: str = ""
    """Ray cluster to join; without it RAY_ADDRESS, or a local one that ends with the command."""

    def start(self) -> "Engine":
        """The engine; it starts nothing before there is work."""
        from djepa.rollout.engine import get_engine

        return get_engine(self.engine, self.workers, self.address or None)


HERE = Workers()
