"""Train a geometry: first the encoder, then the predictor alone on cached latents.

The encoder converges within minutes; the choice among candidates is limited by the predictor's
rollout error. So the encoder is frozen early, every frame is encoded once, and the predictor trains
in large batches. Its weights are averaged (EMA), and development starts choose the checkpoint.

First phase: LeWM and TD-JEPA train encoder and predictor together; the patch geometries distil
their encoder from itself; with `encoder` given there is none.

Step i is determined by the configuration and i alone: its windows, its learning rate, and how many
episodes it may draw from, for which it waits if necessary. So a resumed run ends in the same
weights as an uninterrupted one, bit for bit on a CPU. On a GPU the order of sums, and so the last
bits, vary from run to run. Several processes started by torchrun share every batch and take the
same steps as one process, within rounding: see parallel.py.

Legend: B windows, T frames of a window, D latent.
"""

import copy
import json
import math
import time
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from djepa.errors import DjepaError
from djepa.models import parallel
from djepa.models.ac import ActionConditioned
from djepa.models.batches import Batches
from djepa.models.cache import Cache
from djepa.models.compiled import compile_checked
from djepa.models.distil import AVERAGE, Student, distil_loss
from djepa.models.episodes import Episodes, Shard, claim_shards, plan_shards, simulating
from djepa.models.kinds import Trainable, build
from djepa.models.lewm import LeWM
from djepa.models.nets import draw_from, initialise
from djepa.models.objectives import ROLLOUT_WEIGHT, Draws, open_loop
from djepa.models.patches import PatchGeometry
from djepa.models.recipes import (
    OBJECTIVES,
    Stage,
    TrainConfig,
    begin_with,
    stages,
    take_encoder,
)
from djepa.models.resume import BEST, LOG, STATE, claim, read_state, write_state, writer_of
from djepa.models.selection import Chosen, collect_each, select
from djepa.models.step import Step
from djepa.models.tdjepa import TDJEPA, PlanningCost
from djepa.models.weights import card, save_geometry
from djepa.rollout.engine import LocalEngine
from djepa.seeds import seed_for
from djepa.tasks.task import Scene, get_task

MARKS = (0.5, 0.7, 0.85, 0.95, 1.0)  # shares of the predictor phase at which a model is judged
TAIL = 0.2  # last share of it, over which checkpoints are averaged
SAVE_EVERY = 60.0  # seconds
EXTEND_EVERY = 1000  # predictor steps, after which new episodes are encoded
FIRST_SHARDS = 8  # of episodes, that step 0 waits for
ALL_BY = 0.5  # share of the steps after which every episode is there
SYNC_EVERY = 100  # steps, or the queue of a GPU runs ahead of the clock

Windows = Callable[[int], tuple[Tensor, ...]]
Loss = Callable[..., Tensor]


class OutOfTimeError(Exception):
    """The cap on minutes is reached; the state is saved."""


class Trainer:
    """One run in one folder; an interrupted run resumes from its last saved state."""

    def __init__(self, config: TrainConfig, out: Path, data: Path | None = None) -> None:
        self.config, self.out, self.objective = config, out, OBJECTIVES[config.geometry]
        self.device = parallel.begin(config.device)
        self.first = parallel.number() == 0  # it judges the model and writes every file
        self.task = get_task(config.world)
        self.scenes = [Scene(config.world, shape, config.look) for shape in config.shapes]
        sizes = self.objective.first, config.windows or self.objective.then
        first, self.then = (max(8, size // config.shrink) for size in sizes)
        self.first_steps = 0 if config.encoder else max(1, round(config.joint * config.steps))
        if self.first:
            writer_of(out)
        self.saved = self._read_state()
        self.model = self._fresh()
        self._take_weights()
        where, drawn = data or out / "episodes", (config.shapes, config.world, config.perturbed)
        shards = plan_shards(where, config.episodes, 0, *drawn)
        here = self.first and not data  # otherwise another process simulates
        if self.first:
            self._claim(shards if here else [])
        self.development = []  # without any nothing can be executed, or another process does it
        if self.first and self.task.validating is None:
            self.development = collect_each(config, out / "development", config.development)
        self.simulation = simulating(shards, LocalEngine()) if here else None
        self.episodes = Episodes(shards, self.device, simulation=self.simulation or ())
        self.batches = Batches(self.scenes, self.episodes, first, config.seed)
        parallel.check_batch(self.then)
        self.model = self.model.to(self.device)
        self.random, self.dropout = torch.Generator(self.device), torch.Generator(self.device)
        self.began, self.deadline = time.monotonic(), math.inf
        self.before = self.saved["seconds"] if self.saved else 0.0  # of the runs that were cut off

    def run(self, minutes: float = math.inf) -> Trainable:
        """Both phases; returns the model that selected best on the development starts.

        After so many minutes it saves its state and raises `OutOfTimeError`.
        """
        self.deadline = self.began + 60 * minutes
        try:
            return self._run().eval()
        finally:
            if self.simulation is not None:
                self.simulation.close()

    def _run(self) -> Trainable:
        self.episodes.take(self._visible(0))
        self.batches.standardise(self.model)
        if self.saved and self.saved["phase"] == "predictor":
            self._load(self.model, "model.")
        elif self.config.encoder:
            take_encoder(self.model, self.config.encoder, self.device)
        elif isinstance(self.model, PatchGeometry):
            self._distil_phase(self.model)
        else:
            self._joint_phase(self.model)
        return self._predictor_phase()

    @property
    def minutes(self) -> float:
        """Spent so far, judging included; of a run that was cut off, until its last saved state."""
        return (self.before + time.monotonic() - self.began) / 60

    def say(self, **entry: Any) -> None:
        """One line of the log."""
        if not self.first:
            return
        entry = {"seconds": round(time.monotonic() - self.began, 1), **entry}
        with (self.out / LOG).open("a") as log:
            log.write(json.dumps(entry) + "\n")
        print(json.dumps(entry), flush=True)

    def select(self, model: Trainable) -> Chosen:
        """How the native choice does on development starts; NaN without any."""
        if not self.development:
            return Chosen(math.nan, math.nan)
        return select(model, self.development, self.config.look, self.device)

    def _fresh(self) -> Trainable:
        c = self.config
        random = torch.Generator().manual_seed(seed_for("init", c.geometry, c.seed))
        sizes = {"actions": self.task.actions, "stride": self.task.stride}
        model = build(c.geometry, random, c.size, **sizes)
        assert not isinstance(model, ActionConditioned)  # the configuration has refused it
        if isinstance(model, TDJEPA):
            model.planned_by(PlanningCost(c.blend, c.terminal, c.context))
        return model

    def _claim(self, shards: list[Shard]) -> None:
        """Claim the folder and that of the episodes; start or continue the log."""
        claim(self.out)
        if self.saved is None:
            (self.out / LOG).unlink(missing_ok=True)
        claim_shards(shards)

    def _take_weights(self) -> None:
        """Load given weights, and try the encoder, so that errors appear before any long work."""
        c, cpu = self.config, torch.device("cpu")
        for other in c.begin:
            begin_with(self.model, other, cpu)
        if c.encoder and self.saved is None:
            take_encoder(copy.deepcopy(self.model), c.encoder, cpu)

    def _visible(self, step: int) -> int:
        """Episodes that this step, counted over both phases, may draw from."""
        shard = self.episodes.validation
        every = self.episodes.capacity // shard
        first = min(FIRST_SHARDS, every)
        share = min(1.0, step / (ALL_BY * self.config.steps))
        return shard * (first + math.ceil(share * (every - first)))

    def _joint_phase(self, model: LeWM) -> None:
        """Encoder, projectors and predictor together, on frames drawn inside the step."""
        c, T = self.config, self.objective.frames

        def loss(states: Tensor, blocks: Tensor, *draws: Tensor) -> Tensor:
            latents = model.embed(self.batches.frames(states, model.image)).float()
            return self.objective.loss(model, latents, blocks, Draws(*draws), True)

        def windows(i: int) -> tuple[Tensor, ...]:
            return self.batches.windows(i, model, T, c.noise)

        compiled = self._compile("joint", model, model.encoder.blocks, loss, windows(0))
        step = Step(compiled, model, c.rate / 2, c.decay, random=self.dropout)
        for i in self._loop("joint", step, windows, self.first_steps):
            self.episodes.take(self._visible(i))
        self.say(phase="joint", step=self.first_steps, **_known(self.select(model)))

    def _distil_phase(self, model: PatchGeometry) -> None:
        """The encoder alone, taught by its own average."""
        student = Student(model.encoder)
        random = torch.Generator().manual_seed(seed_for("heads", self.config.seed))
        for head in (student.whole, student.parts):
            initialise(head, random)
        teacher = copy.deepcopy(student.to(self.device))  # until the step brings its own average

        def loss(states: Tensor, numbers: Tensor, masked: Tensor) -> Tensor:
            images = self.batches.frames(states, model.image).permute(0, 3, 1, 2) / 255.0
            return distil_loss(student, teacher, images, numbers, masked)

        def views(i: int) -> tuple[Tensor, ...]:
            return self.batches.views(i, model.encoder.patches)

        compiled = self._compile("distil", student, student.encoder.blocks, loss, views(0))
        step = Step(compiled, student, self.config.rate, 0.04, keep=AVERAGE)
        assert step.shadow is not None
        teacher = step.shadow
        for i in self._loop("distil", step, views, self.first_steps):
            self.episodes.take(self._visible(i))
        model.encoder.load_state_dict(step.average().encoder.state_dict())

    def _predictor_phase(self) -> Trainable:
        """The predictor alone, on the latents of every episode there is."""
        model, c, steps = self.model, self.config, self.config.steps - self.first_steps
        for name in ("encoder", "projector"):
            if hasattr(model, name):
                getattr(model, name).eval().requires_grad_(False)
        if isinstance(model, PatchGeometry) and not self.saved:
            self.batches.standardise_features(model)
        begin = self.saved["step"] if self.saved else 0
        cache = Cache(model, self.scenes, self.episodes)
        cache.extend(self._visible(self.first_steps + begin - begin % EXTEND_EVERY))
        parts = stages(c, steps)

        def stage(i: int) -> Stage:
            return [part for part in parts if part.begin <= i][-1]

        now = stage(begin)

        def loss(latents: Tensor, blocks: Tensor, *drawn: Tensor) -> Tensor:
            draws = Draws(*drawn)
            value = self.objective.loss(model, latents, blocks, draws, False)
            if now.open_loop and not isinstance(model, TDJEPA):  # whose objective has it already
                value = value + ROLLOUT_WEIGHT * open_loop(model, latents, blocks, draws)
            return value

        def windows(i: int) -> tuple[Tensor, ...]:
            nonlocal now
            now = stage(i)
            self.random.manual_seed(seed_for("cached", c.seed, i))
            latents, blocks, draws = cache.windows(self.then, now.frames, self.random, c.noise)
            return latents, blocks, *draws

        compiled = self._compile("predictor", model, model.predictor.blocks, loss, windows(begin))
        best = self._best_so_far(cache)
        step = Step(compiled, model, c.rate, c.decay, keep=c.ema, random=self.dropout)
        marks = {max(1, round(mark * steps)) for mark in MARKS}
        tail = {round(steps * (1 - TAIL * k / c.last)) for k in range(c.last)}
        anew = {part.begin for part in parts}
        for i in self._loop("predictor", step, windows, steps, anew):
            if i % EXTEND_EVERY == 0:
                cache.extend(self._visible(self.first_steps + i))
            if i in tail:
                step.snapshot()
            if i in marks:
                best = self._better(best, step.average(), i, cache)
        if (mean := step.mean()) is not None:
            best = self._better(best, mean, steps, cache)
        return best[1]

    def _loop(
        self,
        phase: str,
        step: Step[Any],
        windows: Windows,
        steps: int,
        anew: Container[int] = (),
    ) -> Iterator[int]:
        """Steps of a phase, logged, and saved every minute; yields how many are done.

        `anew` are steps at which the shapes of windows change, so that the step is recorded again.
        """
        i = 0
        if self.saved and self.saved["phase"] == phase:
            step.restore(read_state(self.out / STATE)[0])
            i = self.saved["step"]
            self.episodes.take(self._visible(i if phase != "predictor" else 0))
        self.saved = None
        step.record(windows(i))
        self.say(phase=phase, step=i, recorded=step.recorded, episodes=self.episodes.ready)
        kept = time.monotonic()
        while i < steps:
            if i and i in anew:
                step.record(windows(i))
            self.dropout.manual_seed(seed_for("dropout", phase, self.config.seed, i))
            value = step(windows(i), i / steps)
            if i % 500 == 0 or i + 1 == steps:
                self.say(phase=phase, step=i, loss=value.item(), episodes=self.episodes.ready)
            i += 1
            yield i
            if self.device.type == "cuda" and i % SYNC_EVERY == 0:
                torch.cuda.synchronize()
            late = time.monotonic() > self.deadline
            if self.deadline < math.inf:
                late = parallel.agree(late, self.device)
            if late or time.monotonic() - kept > SAVE_EVERY:
                self._write_state(phase, step, i)
                kept = time.monotonic()
            if late:
                self.say(phase=phase, step=i, stopped=True)
                raise OutOfTimeError(f"step {i:,} of {steps:,} of the {phase} phase")

    def _write_state(self, phase: str, step: Step[Any], i: int) -> None:
        if not self.first:
            return
        about = {"phase": phase, "step": i, "seconds": 60 * self.minutes}
        write_state(self.out / STATE, step.state(), {"config": asdict(self.config), **about})

    def _read_state(self) -> dict[str, Any] | None:
        if not (self.out / STATE).exists():
            return None
        head: dict[str, Any] = {"seconds": 0.0} | read_state(self.out / STATE)[1]
        if head.get("config") != json.loads(json.dumps(asdict(self.config))):  # as it comes back
            raise DjepaError(
                f"{self.out} holds an unfinished run of other settings; finish it "
                "with its own, remove it, or choose another --out."
            )
        return head

    def _load(self, model: Trainable, prefix: str) -> None:
        tensors, _ = read_state(self.out / STATE)
        own = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
        model.load_state_dict(own)

    def _best_so_far(self, cache: Cache) -> tuple[float, Trainable]:
        path, model = self.out / BEST, copy.deepcopy(self.model)
        if not (self.saved and path.exists() and self.first):
            return -math.inf, model  # any trained predictor is better than none
        model.load_state_dict(read_state(path)[0])
        with parallel.alone():
            chosen = self.select(model)
            return self._worth(chosen, self._validate(model, cache)), model

    def _worth(self, chosen: Chosen, loss: float) -> float:
        """Criterion of checkpoints: selection, or the validation loss for recorded data."""
        return chosen.selection if self.development else -loss

    def _better(
        self, best: tuple[float, Trainable], model: Trainable, i: int, cache: Cache
    ) -> tuple[float, Trainable]:
        if not self.first:
            return best
        with parallel.alone():
            chosen, loss = self.select(model), self._validate(model, cache)
        self.say(phase="predictor", step=i, validation=loss, **_known(chosen))
        worth = self._worth(chosen, loss)
        if worth < best[0]:
            return best
        write_state(self.out / BEST, model.state_dict(), {})
        about = card(asdict(self.config), model, "", {"step": i, **_known(chosen)})
        save_geometry(model, self.out / "best", about, replace=True)  # useful if the run never ends
        return worth, model

    @torch.no_grad()
    def _validate(self, model: Trainable, cache: Cache) -> float:
        """The loss on windows of validation episodes, the same windows every time."""
        self.random.manual_seed(seed_for("validation"))
        windows = cache.windows(self.then, self.objective.frames, self.random, validation=True)
        return self.objective.loss(model, *windows, False).item()

    def _compile(
        self, phase: str, model: torch.nn.Module, blocks: Any, loss: Loss, inputs: Sequence[Tensor]
    ) -> Loss:
        """As configured; dropout from a generator of its own cannot be compiled."""
        what = self.config.compiled
        alone = parallel.count() == 1  # what is gathered on the way is not compiled
        if self.device.type != "cuda" or what == "nothing" or not alone:
            return loss
        if draw_from(model, self.dropout):
            return loss
        found = compile_checked(loss, model, inputs, blocks if what == "blocks" else ())
        gaps = {"gradient_gap": round(found.gap, 4), "allowed_gap": round(found.allowed, 4)}
        self.say(phase=phase, compiled=found.kept, **gaps)
        return found.loss


def _known(chosen: Chosen) -> dict[str, float]:
    """The scores that are not NaN."""
    return {name: value for name, value in chosen._asdict().items() if not math.isnan(value)}
