"""Train a geometry: first the encoder, then the predictor alone on cached latents.

The encoder is good after minutes; what limits the choice among candidates is the predictor's
rollout error. So the encoder is frozen early, every frame is encoded once, and the predictor trains
in large batches, averaged over time (EMA) and kept where it selects best on development starts.

First phase: LeWM and TD-JEPA train encoder and predictor together; the patch geometries distil
their encoder from itself; with `encoder` given there is none.

Legend: B windows, T frames of a window, D latent.
"""

import copy
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.files import write_atomically
from djepa.models.cache import Cache
from djepa.models.distil import AVERAGE, Student, distil_loss, draw_views
from djepa.models.episodes import Episodes, Simulation, length, plan_shards
from djepa.models.kinds import Model, build
from djepa.models.lewm import LeWM
from djepa.models.objectives import Draws, draw
from djepa.models.patches import PatchGeometry
from djepa.models.predict import predict
from djepa.models.recipes import RECIPES, TrainConfig, begin_with, take_encoder
from djepa.models.step import Step
from djepa.models.tdjepa import TDJEPA, PlanningCost
from djepa.rollout.engine import LocalEngine
from djepa.rollout.execute import CollectConfig
from djepa.seeds import seed_for
from djepa.tasks.task import Scene, get_task

MARKS = (0.5, 0.7, 0.85, 0.95)  # shares of the predictor phase at which a checkpoint is judged
SAVE_EVERY = 60.0  # seconds

GRADIENT_GAP = 0.1  # bfloat16 alone makes about 0.01

Windows = Callable[[int], tuple[Tensor, ...]]
Loss = Callable[..., Tensor]


class Trainer:
    """One run in one folder; a run that was cut off goes on from its last saved state."""

    def __init__(self, config: TrainConfig, out: Path, data: Path | None = None) -> None:
        self.config, self.out, self.recipe = config, out, RECIPES[config.geometry]
        out.mkdir(parents=True, exist_ok=True)
        self.device = torch.device(config.device)
        self.task = get_task(config.world)
        self.scenes = [Scene(config.world, shape, config.look) for shape in config.shapes]
        self.length = length(config.world)
        self.first, self.then = (
            max(8, batch // config.shrink) for batch in (self.recipe.first, self.recipe.then)
        )
        self.first -= self.first % len(self.scenes)  # every batch has as many of each
        self.saved = self._read_state()
        if self.saved is None:
            (out / "log.jsonl").unlink(missing_ok=True)
        where = data or out / "episodes"
        shards = plan_shards(where, config.episodes, 0, config.shapes, config.world)
        self.simulation = None if data else Simulation(shards)
        self.development = self._collect_development()
        self.episodes = Episodes(shards, self.device, simulation=self.simulation)
        torch.manual_seed(seed_for("init", config.geometry, config.seed) % 2**31)
        sizes = {"actions": self.task.actions, "stride": self.task.stride}
        self.model = build(config.geometry, config.size, **sizes).to(self.device)
        if isinstance(self.model, TDJEPA):
            self.model.planned_by(PlanningCost(config.blend, config.terminal, config.context))
        for other in config.begin:
            begin_with(self.model, other, self.device)
        self.random = torch.Generator(self.device)
        self.began, self.steps = time.monotonic(), 0

    def run(self) -> Model:
        """Both phases; returns the model that selected best on the development starts."""
        self.episodes.refresh(least=min(8192, self.episodes.capacity))
        self._standardise()
        total, share = self.config.minutes * 60, self.config.joint
        if self.saved and self.saved["phase"] == "predictor":
            self._load(self.model, "model.")
        elif self.config.encoder:
            take_encoder(self.model, self.config.encoder, self.device)
        elif isinstance(self.model, PatchGeometry):
            self._distil_phase(self.model, total * share)
        else:
            self._joint_phase(self.model, total * share)
        model = self._predictor_phase(total if self.config.encoder else total * (1 - share))
        if self.simulation is not None:
            self.simulation.close()
        return model.eval()

    def say(self, **entry: Any) -> None:
        """One line of the log."""
        entry = {"seconds": round(time.monotonic() - self.began, 1), **entry}
        with (self.out / "log.jsonl").open("a") as log:
            log.write(json.dumps(entry) + "\n")
        print(json.dumps(entry), flush=True)

    def _joint_phase(self, model: LeWM, seconds: float) -> None:
        """Encoder, projectors and predictor together, on frames drawn inside the step."""

        def loss(states: Tensor, blocks: Tensor, directions: Tensor, pairs: Tensor) -> Tensor:
            latents = model.embed(self._frames(states, model.image)).float()
            return self.recipe.loss(model, latents, blocks, Draws(directions, pairs), True)

        self._compile("joint", model.encoder.blocks, loss, self._windows(0))
        step = Step(loss, model, self.config.rate / 2, self.config.decay)
        for _ in self._loop("joint", step, self._windows, seconds):
            self.episodes.refresh()
        self.say(phase="joint", step=self.steps, selection=self.select(model))

    def _distil_phase(self, model: PatchGeometry, seconds: float) -> None:
        """The encoder alone, taught by its own average."""
        student = Student(model.encoder).to(self.device)
        teacher = copy.deepcopy(student)  # until the step brings its own average

        def loss(states: Tensor, numbers: Tensor, masked: Tensor) -> Tensor:
            images = self._frames(states, model.image).permute(0, 3, 1, 2) / 255.0
            return distil_loss(student, teacher, images, numbers, masked)

        def batch(i: int) -> tuple[Tensor, ...]:
            self.random.manual_seed(seed_for("distil", self.config.seed, i))
            episode, at = self._training(), self._integers(0, self.length + 1)
            views = draw_views(self.first, model.encoder.patches, self.random)
            return self.episodes.states[episode, at][:, 0], *views

        self._compile("distil", student.encoder.blocks, loss, batch(0))
        step = Step(loss, student, self.config.rate, 0.04, keep=AVERAGE)
        assert step.shadow is not None
        teacher = step.shadow
        for _ in self._loop("distil", step, batch, seconds):
            self.episodes.refresh()
        model.encoder.load_state_dict(step.average().encoder.state_dict())

    def _predictor_phase(self, seconds: float) -> Model:
        """The predictor alone, on the latents of every episode there is."""
        model = self.model
        for name in ("encoder", "projector"):
            if hasattr(model, name):
                getattr(model, name).eval().requires_grad_(False)
        if isinstance(model, PatchGeometry) and not self.saved:
            self._standardise_features(model)
        cache = Cache(model, self.scenes, self.episodes)

        def loss(latents: Tensor, blocks: Tensor, directions: Tensor, pairs: Tensor) -> Tensor:
            return self.recipe.loss(model, latents, blocks, Draws(directions, pairs), False)

        def windows(i: int) -> tuple[Tensor, ...]:
            self.random.manual_seed(seed_for("cached", self.config.seed, i))
            latents, blocks, draws = cache.windows(self.then, self.recipe.frames, self.random)
            return latents, blocks, *draws

        self._compile("predictor", model.predictor.blocks, loss, windows(0))
        best = self._best_so_far()
        step = Step(loss, model, self.config.rate, self.config.decay, keep=0.999)
        marks = list(MARKS)
        for i, progress in self._loop("predictor", step, windows, seconds):
            if i % 1000 == 0:
                cache.extend()
            if marks and progress > marks[0]:
                marks = [mark for mark in marks if mark >= progress]
                best = self._better(best, step.average(), i, cache)
        return self._better(best, step.average(), i, cache)[1]

    def _loop(
        self, phase: str, step: Step[Any], windows: Windows, seconds: float
    ) -> Iterator[tuple[int, float]]:
        """Steps of a phase until its time is up: logged, and saved every minute."""
        step.record(windows(0))
        i, before = 0, 0.0
        if self.saved and self.saved["phase"] == phase:
            step.restore(load_file(self.out / "resume.safetensors"))
            i, before = self.saved["step"], self.saved["spent"]
        self.say(phase=phase, step=i, recorded=step.recorded, episodes=self.episodes.ready)
        began = kept = time.monotonic()
        while (spent := before + time.monotonic() - began) < seconds or i == 0:
            value = step(windows(i), min(1.0, spent / seconds))
            if i % 500 == 0:
                self.say(phase=phase, step=i, loss=value.item(), episodes=self.episodes.ready)
            yield i, min(1.0, spent / seconds)
            i += 1
            if self.device.type == "cuda" and i % 20 == 0:
                torch.cuda.synchronize()  # or the queue runs ahead of the clock
            if time.monotonic() - kept > SAVE_EVERY:
                self._write_state(phase, step, i, spent)
                kept = time.monotonic()
        self.saved, self.steps = None, i
        self.say(phase=phase, step=i, loss=value.item())

    def _write_state(self, phase: str, step: Step[Any], i: int, spent: float) -> None:
        head = {"config": asdict(self.config), "phase": phase, "step": i, "spent": spent}
        data = save(step.state(), metadata={"head": json.dumps(head)})
        write_atomically(self.out / "resume.safetensors", bytes(data))

    def _read_state(self) -> dict[str, Any] | None:
        path = self.out / "resume.safetensors"
        if not path.exists():
            return None
        with safe_open(path, "pt") as file:
            head: dict[str, Any] = json.loads(file.metadata()["head"])
        if head["config"] != json.loads(json.dumps(asdict(self.config))):  # as it comes back
            raise DjepaError(
                f"{self.out} holds an unfinished run of other settings; finish it "
                "with its own, remove it, or choose another --out."
            )
        return head

    def _load(self, model: Model, prefix: str) -> None:
        tensors = load_file(self.out / "resume.safetensors")
        own = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
        model.load_state_dict(own)

    def _best_so_far(self) -> tuple[float, Model]:
        path, model = self.out / "best.safetensors", copy.deepcopy(self.model)
        if not (self.saved and path.exists()):
            return -1.0, model  # any trained predictor is better than none
        model.load_state_dict(load_file(path))
        return self.select(model), model

    def _better(
        self, best: tuple[float, Model], model: Model, i: int, cache: Cache
    ) -> tuple[float, Model]:
        selection, loss = self.select(model), self._validate(model, cache)
        self.say(phase="predictor", step=i, validation=loss, selection=selection)
        if selection < best[0]:
            return best
        tensors = {name: value.cpu().contiguous() for name, value in model.state_dict().items()}
        write_atomically(self.out / "best.safetensors", bytes(save(tensors)))
        return selection, model

    @torch.no_grad()
    def _validate(self, model: Model, cache: Cache) -> float:
        """The loss on windows of episodes that nobody trains on, always the same ones."""
        self.random.manual_seed(seed_for("validation"))
        windows = cache.windows(self.then, self.recipe.frames, self.random, validation=True)
        return self.recipe.loss(model, *windows, False).item()

    def _windows(self, i: int) -> tuple[Tensor, ...]:
        """Random windows: states (B, T, S) a stride apart, blocks (B, T - 1, stride A), draws."""
        self.random.manual_seed(seed_for("window", self.config.seed, i))
        T, stride = self.recipe.frames, self.task.stride
        span = stride * (T - 1)
        episode, first = self._training(), self._integers(0, self.length - span + 1)
        at = first + torch.arange(0, span + 1, stride, device=self.device)
        taken = first + torch.arange(span, device=self.device)
        blocks = self.model.blocks(self.episodes.controls[episode, taken])
        draws = draw(self.first, T, self.model.latent, self.random)
        return self.episodes.states[episode, at], blocks, *draws

    def _integers(self, low: int, high: int) -> Tensor:
        """(first, 1) random integers from the generator of this step."""
        return torch.randint(low, high, (self.first, 1), device=self.device, generator=self.random)

    def _training(self) -> Tensor:
        """(first, 1) random training episodes: of the first scene, then of the second, ..."""
        n = len(self.scenes)
        some = self._integers(self.episodes.validation // n, self.episodes.ready // n)
        which = torch.arange(n, device=self.device).repeat_interleave(self.first // n)
        return n * some + which[:, None]

    def _frames(self, states: Tensor, image: int) -> Tensor:
        """States (B, ..., S) of episodes in the order of `_training` -> frames."""
        parts = states.chunk(len(self.scenes))
        drawn = [s.observe(part, image)[0] for s, part in zip(self.scenes, parts, strict=True)]
        return torch.cat(drawn) if len(drawn) > 1 else drawn[0]

    def _standardise(self) -> None:
        """Means and spreads of controls, and of proprioception where the model takes it."""
        model, controls = self.model, self.episodes.controls.flatten(0, 1)
        model.action_mean.copy_(controls.mean(0))
        model.action_std.copy_(controls.std(0))
        if isinstance(model, PatchGeometry):
            some = self.episodes.states[:1024].flatten(0, 1)
            body = torch.cat([self.scenes[0].observe(part, 16)[1] for part in some.split(4096)])
            model.proprio_mean.copy_(body.mean(0))
            model.proprio_std.copy_(body.std(0).clamp(min=1e-6))  # where nothing is felt

    @torch.no_grad()
    def _standardise_features(self, model: PatchGeometry) -> None:
        n = len(self.scenes)
        some = [self.episodes.states[i:1024:n, self.length // 2] for i in range(n)]
        frames = self._frames(torch.cat(some), model.image)
        features = model.patch_features(frames).flatten(0, 1)
        model.feature_mean.copy_(features.mean(0))
        model.feature_std.copy_(features.std(0))

    def _compile(self, phase: str, blocks: Any, loss: Loss, inputs: tuple[Tensor, ...]) -> None:
        """Compile the blocks, and keep that only if the gradients stay what they were.

        At some batch sizes compiled gradients came out wrong by orders of magnitude while the loss
        agreed: training then stands still without a word.
        """
        if self.device.type != "cuda":
            return
        plain = self._gradient(loss, inputs)
        for block in blocks:
            block.compile(dynamic=False)
        gap = float((self._gradient(loss, inputs) - plain).norm() / plain.norm())
        if not gap < GRADIENT_GAP:
            for block in blocks:
                block._compiled_call_impl = None
        self.say(phase=phase, compiled=gap < GRADIENT_GAP, gradient_gap=round(gap, 4))

    def _gradient(self, loss: Loss, inputs: tuple[Tensor, ...]) -> Tensor:
        """One long vector: the gradient of everything that is trained."""
        self.model.zero_grad(set_to_none=True)  # a phase before may have left some
        with torch.autocast(self.device.type, torch.bfloat16):
            value = loss(*inputs)
        value.backward()
        found = [p.grad.flatten() for p in self.model.parameters() if p.grad is not None]
        gradient = torch.cat(found).float()
        self.model.zero_grad(set_to_none=True)
        return gradient

    def _collect_development(self) -> list[Bank]:
        return collect_each(self.config, self.out / "development", self.config.development)

    @torch.inference_mode()
    def select(self, model: Model) -> float:
        """Share of development starts on which the native choice succeeds.

        A tie is no choice: a predictor that ignores actions would take the smallest ID, and the
        smallest IDs are the lightest perturbations of the reference.
        """
        model = copy.deepcopy(model).eval()  # a copy is not compiled, so shapes may vary freely
        hits = [self._hits(model, bank) for bank in self.development]
        return sum(hits) / sum(len(bank) for bank in self.development)

    def _hits(self, model: Model, bank: Bank) -> int:
        decisions, success, hits = bank.decisions, bank.outcomes.success, 0
        scene = bank.scene(self.config.look)
        for begin in range(0, len(success), 32):
            rows = slice(begin, begin + 32)
            cost = predict(model, scene, decisions, rows, self.device).cost
            choice = cost.argmin(1).cpu().numpy()
            alone = ((cost == cost.amin(1, keepdim=True)).sum(1) == 1).cpu().numpy()
            hits += int((success[rows][range(len(choice)), choice] & alone).sum())
        return hits


def collect_each(
    config: TrainConfig, folder: Path, starts: int, split: str = "development"
) -> list[Bank]:
    """Banks of as many starts of every shape as make `starts` together."""
    found, each = [], max(1, starts // len(config.shapes))
    for shape in config.shapes:
        wanted = CollectConfig(
            config.world, shape, starts=each, split=split, block=8 if each >= 8 else each
        )
        where = folder if len(config.shapes) == 1 else folder / shape
        found.append(collect(where, wanted, LocalEngine()))
    return found
