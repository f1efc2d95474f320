"""Train a geometry: a short joint phase, then the predictor alone on cached latents.

The encoder is good after minutes; what limits the choice among candidates is the predictor's
rollout error. So the encoder is frozen early, every frame is encoded once, and the predictor trains
in large batches, averaged over time (EMA) and kept where it selects best on development starts.

Legend: B windows, T frames of a window, E episodes, F cached frames of an episode, D latent.
"""

import copy
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.errors import DjepaError, unknown_name
from djepa.models.episodes import LENGTH, Episodes, Simulation, plan_shards
from djepa.models.lewm import SIZES, LeWM
from djepa.models.objectives import Draws, draw, lewm_loss, tdjepa_loss
from djepa.models.predict import encode_states, observe, predict
from djepa.models.protocol import STRIDE
from djepa.models.step import Step
from djepa.models.weights import GEOMETRIES, load_geometry
from djepa.rollout.engine import LocalEngine
from djepa.rollout.execute import CollectConfig
from djepa.seeds import seed_for
from djepa.worlds.shapes import get_shape

Loss = Callable[[LeWM, Tensor, Tensor, Draws, bool], Tensor]
# loss, frames of a window, windows of a joint batch, windows of a predictor batch
RECIPES: dict[str, tuple[Loss, int, int, int]] = {
    "lewm": (lewm_loss, 4, 512, 4096),
    "tdjepa": (tdjepa_loss, 8, 256, 2048),
}
MARKS = (0.5, 0.7, 0.85, 0.95)  # shares of the predictor phase at which a checkpoint is judged


@dataclass(frozen=True)
class TrainConfig:
    """One training run."""

    geometry: str = "lewm"
    size: str = "small"
    shape: str = "T"
    minutes: float = 8.0
    joint: float = 0.5  # share of the time for the joint phase
    episodes: int = 200_000
    seed: int = 0
    device: str = "cpu"
    rate: float = 5e-4
    decay: float = 1e-3
    shrink: int = 1  # divides the batches, for a small machine
    development: int = 256  # starts that choose the checkpoint
    encoder: str = ""  # weights whose encoder is taken as it is: no joint phase then

    def __post_init__(self) -> None:
        if self.geometry not in RECIPES:
            raise unknown_name("geometry", self.geometry, RECIPES)
        if self.size not in SIZES:
            raise unknown_name("size", self.size, SIZES)
        if not (self.minutes > 0 and 0 < self.joint < 1):
            raise DjepaError("minutes must be above 0 and joint between 0 and 1.")
        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise DjepaError("No CUDA device here. Use --device cpu, or train where there is one.")


class Trainer:
    """Holds what both phases share."""

    def __init__(self, config: TrainConfig, out: Path, data: Path | None = None) -> None:
        self.config, self.out = config, out
        out.mkdir(parents=True, exist_ok=True)
        self.device = torch.device(config.device)
        self.shape = get_shape(config.shape)
        self.loss, self.frames, *batches = RECIPES[config.geometry]
        self.batches = [max(8, batch // config.shrink) for batch in batches]
        shards = plan_shards(data or out / "episodes", config.episodes, 0, (config.shape,))
        self.simulation = None if data else Simulation(shards)
        self.development = self._collect_development()
        self.episodes = Episodes(shards, self.device)
        torch.manual_seed(seed_for("init", config.geometry, config.seed) % 2**31)
        self.model = GEOMETRIES[config.geometry](SIZES[config.size]).to(self.device)
        self.random = torch.Generator(self.device)
        self.began = time.monotonic()

    def run(self) -> LeWM:
        """Both phases; returns the model that selected best on the development starts."""
        self.episodes.refresh(least=min(8192, self.config.episodes))
        controls = self.episodes.controls.flatten(0, 1)
        self.model.action_mean.copy_(controls.mean(0))
        self.model.action_std.copy_(controls.std(0))
        total, joint = self.config.minutes * 60, 0.0 if self.config.encoder else self.config.joint
        if joint:
            self._joint_phase(total * joint)
        else:
            self._take_encoder()
        model = self._predictor_phase(total * (1 - joint))
        if self.simulation is not None:
            self.simulation.close()
        return model.eval()

    def _take_encoder(self) -> None:
        """Encoder and projector of other weights, and the action statistics that go with them."""
        other = load_geometry(self.config.encoder, self.device)
        if other.config != self.model.config:
            raise DjepaError(f"The encoder of {self.config.encoder} has another size.")
        self.model.encoder.load_state_dict(other.encoder.state_dict())
        self.model.projector.load_state_dict(other.projector.state_dict())

    def say(self, **entry: Any) -> None:
        """One line of the log."""
        entry = {"seconds": round(time.monotonic() - self.began, 1), **entry}
        with (self.out / "log.jsonl").open("a") as log:
            log.write(json.dumps(entry) + "\n")
        print(json.dumps(entry), flush=True)

    def _joint_phase(self, seconds: float) -> None:
        """Encoder, projectors and predictor together, on frames drawn inside the step."""
        if self.device.type == "cuda":
            for block in self.model.encoder.blocks:
                block.compile(dynamic=False)

        def loss(states: Tensor, blocks: Tensor, directions: Tensor, pairs: Tensor) -> Tensor:
            frames, _ = observe(self.shape, states, self.model.image)
            latents = self.model.embed(frames).float()
            return self.loss(self.model, latents, blocks, Draws(directions, pairs), True)

        step = Step(loss, self.model, self.config.rate, self.config.decay)
        step.record(self._windows(0))
        self.say(phase="joint", recorded=step.recorded, episodes=self.episodes.ready)
        for i, progress in self._clock(seconds):
            self.episodes.refresh()
            value = step(self._windows(i), progress)
            if i % 500 == 0:
                self.say(phase="joint", step=i, loss=value.item(), episodes=self.episodes.ready)
        self.say(phase="joint", steps=i + 1, loss=value.item(), selection=self.select(self.model))

    def _predictor_phase(self, seconds: float) -> LeWM:
        """The predictor alone, on the latents of every episode there is."""
        for part in (self.model.encoder, self.model.projector):
            part.eval().requires_grad_(False)
        cache = Cache(self)

        def loss(latents: Tensor, blocks: Tensor, directions: Tensor, pairs: Tensor) -> Tensor:
            return self.loss(self.model, latents, blocks, Draws(directions, pairs), False)

        best = (self.select(self.model), copy.deepcopy(self.model))
        step = Step(loss, self.model, self.config.rate, self.config.decay, keep=0.999)
        step.record(cache.windows(0))
        self.say(phase="predictor", recorded=step.recorded, episodes=len(cache))
        marks = list(MARKS)
        for i, progress in self._clock(seconds):
            value = step(cache.windows(i), progress)
            if i % 1000 == 0:
                cache.extend()
                self.say(phase="predictor", step=i, loss=value.item(), episodes=len(cache))
            if marks and progress > marks[0]:
                marks.pop(0)
                best = self._better(best, step.average(), i)
        return self._better(best, step.average(), i)[1]

    def _better(self, best: tuple[float, LeWM], model: LeWM, i: int) -> tuple[float, LeWM]:
        selection = self.select(model)
        self.say(phase="predictor", step=i, selection=selection)
        return (selection, model) if selection >= best[0] else best

    def _windows(self, i: int) -> tuple[Tensor, ...]:
        """Random windows: states (B, T, 10) five controls apart, blocks (B, T - 1, 10), draws."""
        self.random.manual_seed(seed_for("window", self.config.seed, i))
        B, span = self.batches[0], STRIDE * (self.frames - 1)
        episode = self.integers(self.episodes.ready, B)
        first = self.integers(LENGTH - span + 1, B)
        at = first + torch.arange(0, span + 1, STRIDE, device=self.device)
        taken = first + torch.arange(span, device=self.device)
        blocks = self.model.blocks(self.episodes.controls[episode, taken])
        draws = draw(B, self.frames, self.model.latent, self.random)
        return self.episodes.states[episode, at], blocks, *draws

    def integers(self, below: int, count: int) -> Tensor:
        """(count, 1) random integers from the generator of this step."""
        return torch.randint(below, (count, 1), device=self.device, generator=self.random)

    def _clock(self, seconds: float) -> Iterator[tuple[int, float]]:
        """Steps with the share of the phase that has passed, until the time is up."""
        began, i = time.monotonic(), 0
        while (spent := time.monotonic() - began) < seconds or i == 0:
            yield i, min(1.0, spent / seconds)
            i += 1
            if self.device.type == "cuda" and i % 20 == 0:
                torch.cuda.synchronize()  # or the queue runs ahead of the clock

    def _collect_development(self) -> Bank:
        config = CollectConfig(
            shape=self.config.shape,
            starts=self.config.development,
            split="development",
            block=8,
        )
        return collect(self.out / "development", config, LocalEngine())

    @torch.inference_mode()
    def select(self, model: LeWM) -> float:
        """Share of development starts on which the native choice succeeds."""
        model = copy.deepcopy(model).eval()  # a copy is not compiled, so shapes may vary freely
        cost = predict(model, self.shape, self.development.decisions, device=self.device).cost
        choice = cost.argmin(1).cpu().numpy()
        success = self.development.outcomes.success
        return float(success[range(len(choice)), choice].mean())


class Cache:
    """Latents of every episode, encoded once: (E, F, D) in fp16, one phase of five per episode."""

    def __init__(self, trainer: Trainer) -> None:
        self._of = trainer
        self._encoder = copy.deepcopy(trainer.model).eval()
        frames = LENGTH // STRIDE
        most, device = trainer.episodes.capacity, trainer.device
        self._latents = torch.empty(
            (most, frames, trainer.model.latent), dtype=torch.float16, device=device
        )
        width = STRIDE * trainer.model.config.actions
        self._blocks = torch.empty((most, frames - 1, width), device=device)
        self._known = 0
        self.extend()

    def __len__(self) -> int:
        return self._known

    @torch.no_grad()
    def extend(self) -> None:
        """Encode the episodes that have come since."""
        of, known = self._of, self._known
        ready = of.episodes.refresh(least=1)
        for begin in range(known, ready, 8192):
            rows = torch.arange(begin, min(begin + 8192, ready), device=of.device)[:, None]
            phase = rows % STRIDE
            at = phase + torch.arange(0, LENGTH - STRIDE + 1, STRIDE, device=of.device)
            taken = phase + torch.arange(LENGTH - STRIDE, device=of.device)
            with torch.autocast(of.device.type, torch.float16, enabled=of.device.type == "cuda"):
                states = of.episodes.states[rows, at]
                latents = encode_states(self._encoder, of.shape, states, batch=8192)
            self._latents[rows[:, 0]] = latents.half()
            self._blocks[rows[:, 0]] = of.model.blocks(of.episodes.controls[rows, taken])
        self._known = ready

    def windows(self, i: int) -> tuple[Tensor, ...]:
        """Random windows: latents (B, T, D), blocks (B, T - 1, 10), draws."""
        of, B, T = self._of, self._of.batches[1], self._of.frames
        of.random.manual_seed(seed_for("cached", of.config.seed, i))
        episode = of.integers(self._known, B)
        first = of.integers(self._latents.shape[1] - T + 1, B)
        at = first + torch.arange(T, device=of.device)
        draws = draw(B, T, of.model.latent, of.random)
        return self._latents[episode, at].float(), self._blocks[episode, at[:, :-1]], *draws
