"""Train a geometry: a short joint phase, then the predictor alone on cached latents.

The encoder is good after minutes; what limits the choice among candidates is the predictor's
rollout error. So the encoder is frozen early, every frame is encoded once, and the predictor trains
in large batches, averaged over time (EMA) and kept where it selects best on development starts.

Legend: B windows, T frames of a window, E episodes, F cached frames of an episode, D latent.
"""

import copy
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.errors import DjepaError, unknown_name
from djepa.models.episodes import LENGTH, Episodes, Simulation, plan_shards
from djepa.models.lewm import SIZES, LeWM
from djepa.models.objectives import lewm_loss, tdjepa_loss
from djepa.models.predict import encode_states, observe, predict
from djepa.models.protocol import STRIDE
from djepa.models.weights import GEOMETRIES
from djepa.rollout.engine import LocalEngine
from djepa.rollout.execute import CollectConfig
from djepa.seeds import seed_for
from djepa.worlds.shapes import get_shape

Loss = Callable[[LeWM, Tensor, Tensor, torch.Generator, bool], Tensor]
# loss, frames of a window, windows of a joint batch, windows of a predictor batch
RECIPES: dict[str, tuple[Loss, int, int, int]] = {
    "lewm": (lewm_loss, 4, 512, 4096),
    "tdjepa": (tdjepa_loss, 8, 256, 2048),
}
Log = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class TrainConfig:
    """One training run."""

    geometry: str = "lewm"
    size: str = "small"
    shape: str = "T"
    minutes: float = 8.0
    joint: float = 0.4  # share of the time for the joint phase
    episodes: int = 200_000
    seed: int = 0
    device: str = "cpu"
    rate: float = 5e-4
    decay: float = 1e-3
    shrink: int = 1  # divides the batches, for a small machine
    development: int = 256  # starts that choose the checkpoint

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
        self.development = self._collect_development()
        shards = plan_shards(data or out / "episodes", config.episodes, 0, (config.shape,))
        self.simulation = None if data else Simulation(shards)
        self.episodes = Episodes(shards, self.device)
        torch.manual_seed(seed_for("init", config.geometry, config.seed) % 2**31)
        self.model = GEOMETRIES[config.geometry](SIZES[config.size]).to(self.device)
        self.random = torch.Generator(self.device)
        self.began = time.monotonic()
        self.journal = (out / "log.jsonl").open("a")

    def run(self) -> LeWM:
        """Both phases; returns the model that selected best on the development starts."""
        self.episodes.refresh(least=min(8192, self.config.episodes))
        controls = self.episodes.controls.flatten(0, 1)
        self.model.action_mean.copy_(controls.mean(0))
        self.model.action_std.copy_(controls.std(0))
        self._warm_up()
        self.began = time.monotonic()
        total = self.config.minutes * 60
        self._joint_phase(total * self.config.joint)
        model = self._predictor_phase(total)
        if self.simulation is not None:
            self.simulation.close()
        return model.eval()

    def _warm_up(self) -> None:
        """Compile block by block (one graph serves all of a kind) before the clock starts."""
        if self.device.type != "cuda":
            return
        for block in (*self.model.encoder.blocks, *self.model.predictor.blocks):
            block.compile()
        states, blocks = self._windows(self.batches[0], 0)
        frames, _ = observe(self.shape, states, self.model.image)
        self._joint_loss(frames, blocks).backward()
        self.model.zero_grad(set_to_none=True)

    def say(self, **entry: Any) -> None:
        """One line of the log."""
        entry = {"seconds": round(time.monotonic() - self.began, 1), **entry}
        self.journal.write(json.dumps(entry) + "\n")
        self.journal.flush()
        print(json.dumps(entry), flush=True)

    def _joint_phase(self, until: float) -> None:
        """Encoder, projectors and predictor together, on frames drawn inside the step."""
        optimiser = self._optimiser(self.model.parameters())
        for step, progress in self._clock(until):
            self.episodes.refresh()
            states, blocks = self._windows(self.batches[0], step)
            frames, _ = observe(self.shape, states, self.model.image)
            loss = self._joint_loss(frames, blocks)
            self._update(optimiser, loss, progress)
            if step % 200 == 0:
                self.say(phase="joint", step=step, loss=loss.item(), episodes=self.episodes.ready)
        self.say(phase="joint", done=step, selection=self._selection(self.model))

    def _joint_loss(self, frames: Tensor, blocks: Tensor) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            latents = self.model.embed(frames).float()
            return self.loss(self.model, latents, blocks, self.random, True)

    def _predictor_phase(self, until: float) -> LeWM:
        """The predictor alone, on the latents of every episode there is."""
        self.model.encoder.requires_grad_(False)
        self.model.projector.requires_grad_(False)
        self.model.encoder.eval()
        self.model.projector.eval()
        cache = Cache(self)
        trained = [p for p in self.model.parameters() if p.requires_grad]
        optimiser = self._optimiser(trained)
        average = copy.deepcopy(self.model).eval()
        best, marks = (-1.0, copy.deepcopy(average)), [0.4, 0.6, 0.75, 0.85, 0.93, 2.0]
        for step, progress in self._clock(until):
            latents, blocks = cache.windows(self.batches[1], self.frames, step)
            loss = self._cached_loss(latents, blocks)
            self._update(optimiser, loss, progress)
            _average(average, self.model, min(0.999, (1 + step) / (10 + step)))
            if step % 500 == 0:
                cache.extend()
                self.say(phase="predictor", step=step, loss=loss.item(), episodes=len(cache))
            if progress > marks[0]:
                marks.pop(0)
                best = self._better(best, average, step)
        return self._better(best, average, step)[1]

    def _cached_loss(self, latents: Tensor, blocks: Tensor) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            return self.loss(self.model, latents, blocks, self.random, False)

    def _better(self, best: tuple[float, LeWM], model: LeWM, step: int) -> tuple[float, LeWM]:
        selection = self._selection(model)
        self.say(phase="predictor", step=step, selection=selection)
        return (selection, copy.deepcopy(model)) if selection > best[0] else best

    def _windows(self, count: int, step: int) -> tuple[Tensor, Tensor]:
        """Random windows: states (B, T, 10) five controls apart and blocks (B, T - 1, 10)."""
        self.random.manual_seed(seed_for("window", self.config.seed, step))
        span = STRIDE * (self.frames - 1)
        episode = self._draw(self.episodes.ready, count)
        first = self._draw(LENGTH - span + 1, count)[:, None]
        at = first + torch.arange(0, span + 1, STRIDE, device=self.device)
        states = self.episodes.states[episode[:, None], at]
        taken = first + torch.arange(span, device=self.device)
        return states, self.model.blocks(self.episodes.controls[episode[:, None], taken])

    def _draw(self, below: int, count: int) -> Tensor:
        return torch.randint(below, (count,), device=self.device, generator=self.random)

    def _optimiser(self, parameters: Any) -> torch.optim.AdamW:
        return torch.optim.AdamW(
            parameters,
            lr=self.config.rate,
            weight_decay=self.config.decay,
            fused=self.device.type == "cuda",
        )

    def _update(self, optimiser: torch.optim.AdamW, loss: Tensor, progress: float) -> None:
        warm = min(1.0, progress / 0.02)
        for group in optimiser.param_groups:
            group["lr"] = self.config.rate * warm * (0.5 + 0.5 * math.cos(math.pi * progress))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(optimiser.param_groups[0]["params"], 1.0)
        optimiser.step()

    def _clock(self, until: float) -> Iterator[tuple[int, float]]:
        """Steps with the share of the phase that has passed, until the time is up."""
        first, step = time.monotonic() - self.began, 0
        while (now := time.monotonic() - self.began) < until or step == 0:
            yield step, min(1.0, (now - first) / (until - first))
            step += 1

    def _collect_development(self) -> Bank:
        config = CollectConfig(
            shape=self.config.shape,
            starts=self.config.development,
            split="development",
            block=8,
        )
        return collect(self.out / "development", config, LocalEngine())

    @torch.inference_mode()
    def _selection(self, model: LeWM) -> float:
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
        self._latents: list[Tensor] = []
        self._blocks: list[Tensor] = []
        self.extend()

    def __len__(self) -> int:
        return sum(len(part) for part in self._latents)

    @torch.no_grad()
    def extend(self) -> None:
        """Encode the episodes that have come since."""
        known, of = len(self), self._of
        ready = of.episodes.refresh(least=1)
        if ready == known:
            return
        states, controls = of.episodes.states[known:], of.episodes.controls[known:]
        phase = torch.arange(known, ready, device=of.device)[:, None] % STRIDE
        at = phase + torch.arange(0, LENGTH - STRIDE + 1, STRIDE, device=of.device)
        rows = torch.arange(len(states), device=of.device)[:, None]
        with torch.autocast(of.device.type, torch.float16, enabled=of.device.type == "cuda"):
            latents = encode_states(self._encoder, of.shape, states[rows, at], batch=4096)
        taken = phase + torch.arange(LENGTH - STRIDE, device=of.device)
        self._latents.append(latents.half())
        self._blocks.append(of.model.blocks(controls[rows, taken]))
        if len(self._latents) > 1:
            self._latents = [torch.cat(self._latents)]
            self._blocks = [torch.cat(self._blocks)]

    def windows(self, count: int, frames: int, step: int) -> tuple[Tensor, Tensor]:
        """Random windows: latents (B, T, D) and blocks (B, T - 1, 10)."""
        of, latents, blocks = self._of, self._latents[0], self._blocks[0]
        of.random.manual_seed(seed_for("cached", of.config.seed, step))
        episode = of._draw(len(latents), count)[:, None]
        first = of._draw(latents.shape[1] - frames + 1, count)[:, None]
        at = first + torch.arange(frames, device=of.device)
        return latents[episode, at].float(), blocks[episode, at[:, :-1]]


def _average(average: LeWM, model: LeWM, keep: float) -> None:
    """EMA of every trained tensor, BatchNorm statistics too."""
    pairs = list(zip(average.state_dict().values(), model.state_dict().values(), strict=True))
    floats = [(a, b) for a, b in pairs if a.is_floating_point()]
    torch._foreach_lerp_([a for a, _ in floats], [b for _, b in floats], 1 - keep)


def card(config: TrainConfig, model: LeWM, command: str, metrics: dict[str, Any]) -> dict[str, Any]:
    """What goes with the weights."""
    return {
        "recipe": asdict(config),
        "parameters": sum(p.numel() for p in model.parameters()),
        "command": command,
        "metrics": metrics,
    }
