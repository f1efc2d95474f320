"""`djepa predict`: what geometries predict for a bank's candidates."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg, create_mutex_group

from djepa.cli.console import console, progress
from djepa.cli.workers import HERE, Workers

if TYPE_CHECKING:
    from djepa.models.protocol import Geometry

STORED = create_mutex_group(required=False, title="what is stored")


@dataclass(frozen=True)
class Predict:
    """Roll out every candidate of a bank in each geometry and store costs and futures beside it."""

    bank: Annotated[Path, Positional, arg(metavar="BANK")]
    """The bank."""
    geometry: tuple[str, ...] = ("lewm", "tdjepa", "jepawm", "dinowm")
    """Shipped geometries by name, folders of weights, V-JEPA 2-AC's file in a clone of its
    repository, or a planner: all geometries in it."""
    futures: Annotated[bool, FlagCreatePairsOff, STORED] = False
    """Store the predicted futures too, however wide; without either flag, those of at most 1,024
    numbers."""
    no_futures: Annotated[bool, FlagCreatePairsOff, STORED] = False
    """Store costs alone."""
    look: str = "plain"
    """What the frames look like; push: plain, clean, blur, salt-pepper, dark, block-colour,
    marker-colour, pusher-colour; granular: plain, turned-90, turned-180, turned-270; arm:
    plain, top."""
    device: str = "cpu"
    """cpu or cuda."""
    execution: Workers = HERE

    def run(self) -> int:
        """Predict with each geometry in turn."""
        from djepa.bank.read import Bank
        from djepa.models.predictions import predict_bank

        stored = self.futures if self.futures or self.no_futures else None
        bank, engine = Bank(self.bank), self.execution.start()
        for name in self.geometry:
            for model, of in self._models(name, bank.config.world):
                with progress(f"Predicting with {model.name}", "blocks") as tick:
                    folder = predict_bank(
                        bank, model, of, self.device, tick, stored, self.look, engine=engine
                    )
                console.print(f"{folder}")
        return 0

    def _models(self, name: str, world: str) -> "Iterator[tuple[Geometry, str]]":
        """Geometries, not yet on the device, and the hashes of their weights."""
        from djepa.lift.file import SUFFIX
        from djepa.lift.planner import planned_geometries
        from djepa.models.source import open_geometry, source_hash

        if name.endswith(SUFFIX):
            yield from planned_geometries(Path(name), "cpu", world)
        else:
            yield open_geometry(name, world=world), source_hash(name)
