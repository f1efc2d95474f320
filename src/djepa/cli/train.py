"""`djepa train`: train a geometry from nothing."""

import shlex
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from djepa.cli.console import console

if TYPE_CHECKING:
    from djepa.models.recipes import TrainConfig

TEST_SPLIT = "geometry-test"


@dataclass(frozen=True)
class Train:
    """Simulate, draw and train a predictive geometry; nothing is downloaded."""

    world: Annotated[str, Positional, arg(metavar="WORLD")] = "push"
    """The world: push, reacher, granular, or your own as package.module:TASK."""
    geometry: str = "lewm"
    """lewm, tdjepa, jepawm or dinowm."""
    out: Path = Path("runs/weights/lewm")
    """Folder for the weights, the log and the loss plot."""
    size: str = "small"
    """small (112 px, ships) or paper (224 px, the published sizes)."""
    shapes: tuple[str, ...] = ()
    """What the world comes in, in turn; its first shape unless some are named (push: T)."""
    look: str = "plain"
    """What the frames look like; see `djepa predict --help`."""
    blend: float = 1.0
    """TD-JEPA's planning cost: 1 takes the latent distance, 0 the learned one."""
    terminal: float = 1.0
    """TD-JEPA's planning cost: weight of the last step against the mean of all."""
    context: int = 0
    """TD-JEPA's planning cost: context frames that the mean counts beside the predicted ones."""
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
    begin: tuple[str, ...] = ()
    """Weights to begin with instead of random ones, wherever name and size agree; the later over
    the earlier."""
    data: Path | None = None
    """Folder where `djepa simulate` puts episodes; without it this run simulates its own."""
    rate: float = 1e-3
    """Peak learning rate."""
    shrink: int = 1
    """Divides the batches, for a small machine."""
    development: int = 256
    """Starts that choose the checkpoint."""
    held_out: int = 512
    """Starts of the final evaluation."""

    def run(self) -> int:
        """Train, write the weights, evaluate them as written, draw the losses."""
        from djepa.errors import DjepaError
        from djepa.files import to_json
        from djepa.models.recipes import TrainConfig
        from djepa.models.train import Trainer
        from djepa.models.weights import card, read_card, save_geometry

        if (self.out / "manifest.json").exists():
            raise DjepaError(f"{self.out} holds finished weights. Choose another --out.")
        names = {field.name for field in fields(TrainConfig)}
        given = {name: value for name, value in vars(self).items() if name in names}
        trainer = Trainer(config := TrainConfig(**given), self.out, self.data)
        model = trainer.run()
        recipe, command = asdict(config), "djepa " + shlex.join(sys.argv[1:])
        if (Path(self.encoder) / "card.json").exists():
            recipe["encoder_card"] = read_card(self.encoder)
        if self.begin:
            recipe["begin_cards"] = [read_card(where) for where in self.begin]
        save_geometry(model, self.out, card(recipe, model, command, {}))
        metrics = self._evaluate(config)
        save_geometry(model, self.out, card(recipe, model, command, metrics))
        for passing in ("resume.safetensors", "best.safetensors"):
            (self.out / passing).unlink(missing_ok=True)
        console.print(to_json(metrics))
        self._plot()
        return 0

    def _evaluate(self, config: "TrainConfig") -> dict[str, Any]:
        """Quality on starts that nothing was trained or chosen on; by shape if there are more."""
        from djepa.evaluate.quality import quality
        from djepa.models.train import collect_each
        from djepa.models.weights import load_geometry

        banks = collect_each(config, self.out / "test", self.held_out, TEST_SPLIT)
        model = load_geometry(self.out, self.device)
        found = [quality(model, bank, self.device, self.look).as_dict() for bank in banks]
        return found[0] if len(found) == 1 else dict(zip(config.shapes, found, strict=True))

    def _plot(self) -> None:
        from djepa.errors import MissingExtraError
        from djepa.report.loss import loss_plot

        try:
            console.print(f"{loss_plot(self.out / 'log.jsonl')}")
        except MissingExtraError as error:  # a finished training does not fail for a picture
            console.print(f"no loss plot: {error}")
