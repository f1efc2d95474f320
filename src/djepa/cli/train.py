"""`djepa train`: train a geometry from nothing."""

import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from djepa.cli.console import console


@dataclass(frozen=True)
class Train:
    """Simulate, draw and train a predictive geometry; nothing is downloaded."""

    world: Annotated[str, Positional, arg(metavar="WORLD")] = "push"
    """The world: push."""
    geometry: str = "lewm"
    """lewm, tdjepa, jepawm or dinowm."""
    out: Path = Path("runs/weights/lewm")
    """Folder for the weights, the log and the loss plot."""
    size: str = "small"
    """small (112 px, ships) or paper (224 px, the published sizes)."""
    shape: str = "T"
    """The block."""
    minutes: float = 8.0
    """Time for both phases together."""
    joint: float = 0.4
    """Share of it for the first phase, which trains the encoder."""
    episodes: int = 200_000
    """Episodes to simulate, beside the training."""
    seed: int = 0
    """Seed of the initial weights and of the batches."""
    device: str = "cuda"
    """cuda or cpu."""
    encoder: str = ""
    """Weights whose trained encoder to take as it is; all the time then goes to the predictor."""
    data: Path | None = None
    """Folder where `djepa simulate` puts episodes; without it this run simulates its own."""
    rate: float = 1e-3
    """Peak learning rate."""
    shrink: int = 1
    """Divides the batches, for a small machine."""
    held_out: int = 512
    """Starts of the final evaluation."""

    def run(self) -> int:
        """Train, evaluate the weights as written, print the card."""
        from djepa.bank.collect import collect
        from djepa.errors import unknown_name
        from djepa.evaluate.quality import quality
        from djepa.files import to_json
        from djepa.models.recipes import TrainConfig
        from djepa.models.train import Trainer
        from djepa.models.weights import card, load_geometry, save_geometry
        from djepa.rollout.engine import LocalEngine
        from djepa.rollout.execute import CollectConfig

        if self.world != "push":
            raise unknown_name("world", self.world, ["push"])
        names = (
            "geometry",
            "size",
            "shape",
            "minutes",
            "joint",
            "episodes",
            "seed",
            "device",
            "encoder",
        )
        config = TrainConfig(
            **{n: getattr(self, n) for n in names}, rate=self.rate, shrink=self.shrink
        )
        trainer = Trainer(config, self.out, self.data)
        model = trainer.run()
        command = "djepa " + shlex.join(sys.argv[1:])
        save_geometry(model, self.out, card(asdict(config), model, command, {}))
        test = CollectConfig(shape=self.shape, starts=self.held_out, split="held-out", block=8)
        bank = collect(self.out / "held-out", test, LocalEngine())
        result = quality(load_geometry(self.out, self.device), bank, self.device)
        save_geometry(model, self.out, card(asdict(config), model, command, result.as_dict()))
        console.print(to_json(result.as_dict()))
        return 0
