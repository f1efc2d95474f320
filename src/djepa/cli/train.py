"""`djepa train`: train a geometry from nothing."""

import math
import shlex
import shutil
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
    """Train a predictive geometry on episodes that it simulates; nothing is downloaded."""

    world: Annotated[str, Positional, arg(metavar="WORLD")] = "push"
    """The world: push, reacher, granular, cube, your own as package.module:TASK, or a folder of
    recorded episodes that `djepa import` wrote."""
    geometry: str = "lewm"
    """lewm, tdjepa, jepawm or dinowm."""
    out: Path = Path("runs/weights/lewm")
    """Folder for the weights, the log and the loss plot."""
    size: str = "small"
    """small (112 px, ships), wide (LeWM and TD-JEPA: a predictor twice as wide), coarse (LeWM and
    TD-JEPA: 84 px and narrow, for training on a CPU) or paper (224 px, the published sizes)."""
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
    recipe: str = "standard"
    """standard, or long: more steps and episodes, and an encoder that no other geometry shares."""
    steps: int | None = None
    """Steps of both phases together; 40,000, or the recipe's."""
    minutes: float | None = None
    """Stop after so many; the same command goes on later. The weights stay the same."""
    joint: float | None = None
    """Share of the steps for the first phase, which trains the encoder; 0.4, or the recipe's."""
    episodes: int | None = None
    """Episodes to simulate, beside the training; 200,000, or the recipe's."""
    seed: int | None = None
    """Seed of the initial weights and of the batches; 0, or the recipe's."""
    device: str = "cuda"
    """cuda or cpu."""
    encoder: str = ""
    """Weights whose trained encoder to take as it is; all steps are then the predictor's."""
    begin: tuple[str, ...] = ()
    """Weights to begin with instead of random ones, wherever name and size agree; the later over
    the earlier."""
    data: Path | None = None
    """Folder where `djepa simulate` puts episodes; without it this run simulates its own."""
    rate: float = 1e-3
    """Peak learning rate."""
    shrink: int = 1
    """Divides the batches, for a small machine."""
    windows: int = 0
    """Windows of a predictor batch; 0 takes the geometry's own."""
    ema: float = 0.999
    """Running average of the predictor's weights: how much of it stays in a step."""
    compiled: str = "blocks"
    """On a GPU compile the blocks, the whole loss, or nothing."""
    late: float = 0.0
    """To try: last share of the predictor's steps, on windows of eight frames with an open-loop
    loss."""
    curriculum: float = 0.0
    """To try: first share of the predictor's steps, in which windows grow from four frames."""
    noise: float = 0.0
    """To try: spread of the noise on latents that the predictor reads."""
    last: int = 0
    """To try: checkpoints of the last fifth of the steps whose mean is judged too."""
    perturbed: float = 0.0
    """To try: share of episodes whose controls are disturbed by noise and executed again."""
    development: int = 256
    """Starts that choose the checkpoint."""
    held_out: int = 512
    """Starts of the final evaluation."""

    def run(self) -> int:
        """Train, write the weights, evaluate them as written, draw the losses."""
        from djepa.artefacts.lock import refuse_url
        from djepa.errors import DjepaError
        from djepa.models import parallel
        from djepa.models.resume import owned

        refuse_url(self.out, "--out")  # a log is appended to
        if self.data is not None:
            refuse_url(self.data, "--data")
        if self.minutes is not None and self.minutes <= 0:
            raise DjepaError("minutes must be above 0.")
        config = self._config()
        parallel.begin(config.device)
        with owned(self.out, parallel.number() == 0):  # of several processes one writes
            self._train(config)
        return 0

    def _train(self, config: "TrainConfig") -> None:
        from djepa.files import to_json
        from djepa.models.resume import BEST, STATE
        from djepa.models.train import OutOfTimeError, Trainer
        from djepa.models.weights import card, save_geometry

        trainer, cards = Trainer(config, self.out, self.data), self._cards()
        try:
            model = trainer.run(math.inf if self.minutes is None else self.minutes)
        except OutOfTimeError as stopped:
            if trainer.first:
                console.print(f"Stopped at {stopped}. {self._go_on()}")
            return
        except KeyboardInterrupt:
            console.print(self._go_on())
            raise
        if not trainer.first:
            return
        recipe = asdict(config) | {"minutes": round(trainer.minutes, 1)} | cards
        command = "djepa " + shlex.join(sys.argv[1:])
        save_geometry(model, self.out, card(recipe, model, command, {}))
        metrics = self._evaluate(config)
        save_geometry(model, self.out, card(recipe, model, command, metrics))
        for passing in (STATE, BEST):
            (self.out / passing).unlink(missing_ok=True)
        shutil.rmtree(self.out / "best", ignore_errors=True)
        console.print(to_json(metrics))
        self._plot()

    def _cards(self) -> dict[str, Any]:
        """Cards of the weights that training begins with; the files may be gone when it ends."""
        from djepa.models.weights import read_card

        found: dict[str, Any] = {}
        if self.encoder and (Path(self.encoder) / "card.json").exists():
            found["encoder_card"] = read_card(self.encoder)
        if self.begin:
            found["begin_cards"] = [read_card(where) for where in self.begin]
        return found

    def _config(self) -> "TrainConfig":
        """The configuration: options given here, else the recipe's, else defaults."""
        from djepa.models.recipes import TrainConfig, recipe_for

        names = {field.name for field in fields(TrainConfig)}
        own = {name: value for name, value in vars(self).items() if name in names}
        given = {name: value for name, value in own.items() if value is not None}
        return TrainConfig(**(recipe_for(self.recipe, self.geometry) | given))

    def _go_on(self) -> str:
        best = self.out / "best"
        so_far = f" The best weights so far are in {best}." if best.exists() else ""
        return f"The last saved state is in {self.out}: the same command goes on from it.{so_far}"

    def _evaluate(self, config: "TrainConfig") -> dict[str, Any]:
        """Quality on held-out starts; by shape if there are several."""
        from djepa.audit.quality import quality
        from djepa.models.selection import collect_each
        from djepa.models.weights import load_geometry
        from djepa.tasks.task import get_task

        if get_task(config.world).validating is not None:
            return {}  # recorded data: nothing can be executed
        banks = collect_each(config, self.out / "test", self.held_out, TEST_SPLIT)
        model = load_geometry(self.out, self.device)
        found = [quality(model, bank, self.device, self.look).as_dict() for bank in banks]
        return found[0] if len(found) == 1 else dict(zip(config.shapes, found, strict=True))

    def _plot(self) -> None:
        from djepa.errors import MissingExtraError
        from djepa.report.loss import loss_plot

        try:
            console.print(f"{loss_plot(self.out / 'log.jsonl')}")
        except MissingExtraError as error:  # a missing picture must not fail a finished training
            console.print(f"no loss plot: {error}")
