"""Train the native driving model on generated traffic: minutes on a GPU or on a few CPU cores.

    python -m djepa.models.traffic_train runs/weights/traffic

Its loss is the cross-entropy of the score with the executed PDMS of every candidate, plus the error
of predicted latents and a penalty (SIGReg) that keeps latents from collapsing.

Legend: N scenes, K = 32 candidates, B scenes of a batch.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
import tyro
from torch import Tensor

from djepa.models.native import device_of, processes, saying
from djepa.models.nets import initialise
from djepa.models.objectives import SIGREG_WEIGHT, sigreg
from djepa.models.traffic import LATENT, Inputs, TrafficModel, save_native
from djepa.models.traffic_raster import Frame, later, mirrored, raster, seen
from djepa.models.weights import DRIVING, claim_native
from djepa.pools.driving import Vocabulary, fit_vocabulary, propose
from djepa.seeds import generator, seed_for
from djepa.worlds.traffic.execute import execute
from djepa.worlds.traffic.generate import make_log, scenes_of
from djepa.worlds.traffic.judge import Judge, Judgement
from djepa.worlds.traffic.plane import Array
from djepa.worlds.traffic.scene import STEPS, H, Scene, V

TARGETS = 4  # candidates of a scene whose later view is a target
PREDICT = 1.0  # weight of the latent error
DIRECTIONS = 256


@dataclass(frozen=True)
class TrafficTraining:
    """What is trained on, and how long."""

    logs: int = 4000
    """Generated logs of the split `native`; each gives up to `per_log` scenes."""
    per_log: int = 3
    """Scenes of a log."""
    vocabulary_logs: int = 350
    """The first logs, whose motions are clustered."""
    held_logs: int = 200
    """Further logs of the split that are only measured."""
    epochs: int = 24
    """Passes over all scenes, every other one mirrored."""
    batch: int = 64
    """Scenes of a step."""
    rate: float = 1e-3
    """Peak learning rate; it falls to 0 as a half cosine."""
    decay: float = 1e-2
    """Weight decay."""
    seed: int = 0
    """Of scenes, first weights and batches."""


@dataclass(frozen=True)
class Example:
    """One scene with its candidates and their outcomes."""

    name: str
    log: str
    frame: Frame  # (9, 64, 64)
    ego: Array  # (3,)
    poses: Array  # (K, 8, 3)
    judged: Judgement
    targets: tuple[int, ...] = ()  # candidates
    views: Frame | None = None  # (targets, 9, 64, 64) the scene after them


def example(
    scene: Scene, vocabulary: Vocabulary, rng: np.random.Generator | None = None
) -> Example:
    """Propose, execute, judge; with `rng`, also the later views of some candidates."""
    poses = propose(vocabulary, scene)
    states = execute(scene.ego, poses)
    frame = raster(scene, scene.ego[:3], seen(scene))
    found = Example(
        scene.name, scene.log, frame, scene.ego[V:], poses, Judge(scene).of_states(states)
    )
    if rng is None:
        return found
    rows = tuple(sorted(rng.choice(len(poses), TARGETS, replace=False).tolist()))
    views = np.stack([raster(scene, states[k, -1, : H + 1], later(scene, STEPS)) for k in rows])
    return Example(**{**vars(found), "targets": rows, "views": views})


def inputs_of(examples: Iterable[Example]) -> Inputs:
    """The model's inputs of these examples, without outcomes."""
    found = list(examples)
    parts = ([one.frame for one in found], [one.ego for one in found], [one.poses for one in found])
    frames, ego, poses = (torch.from_numpy(np.stack(part)) for part in parts)
    return Inputs(frames, ego.float(), poses.float())


class Lesson(NamedTuple):
    """Scenes with the outcomes of their candidates, on the training device."""

    inputs: Inputs
    pdms: Tensor  # (N, K)
    targets: Tensor  # (N, TARGETS) candidates
    views: Tensor  # (N, TARGETS, 9, 64, 64) uint8

    def batch(self, rows: Tensor, mirror: bool) -> "Lesson":
        """These scenes, perhaps with left and right exchanged."""
        frames, ego, poses = (part[rows] for part in vars(self.inputs).values())
        views = self.views[rows]
        if mirror:
            frames, views = mirrored(frames), mirrored(views)
            poses, ego = poses * poses.new_tensor([1, -1, -1]), ego * ego.new_tensor([1, 1, -1])
        return Lesson(Inputs(frames, ego, poses), self.pdms[rows], self.targets[rows], views)


def lesson_of(examples: list[Example], device: str) -> Lesson:
    """All examples as tensors."""
    inputs = inputs_of(examples)
    views = np.stack([one.views for one in examples if one.views is not None])
    return Lesson(
        Inputs(*(part.to(device) for part in vars(inputs).values())),
        torch.from_numpy(np.stack([one.judged.pdms for one in examples])).float().to(device),
        torch.tensor([one.targets for one in examples], device=device),
        torch.from_numpy(views).to(device),
    )


def loss_of(model: TrafficModel, batch: Lesson, directions: Tensor) -> tuple[Tensor, Tensor]:
    """Total, and the score's part of it."""
    native = model(batch.inputs)
    score = F.binary_cross_entropy_with_logits(native.logits[..., -1], batch.pdms)
    target, _ = model.encode(batch.views.flatten(0, 1))
    target = target.view(len(batch.pdms), TARGETS, LATENT)
    rows = batch.targets[..., None].expand(-1, -1, LATENT)
    error = F.mse_loss(native.predicted.gather(1, rows), target)
    spread = sigreg(torch.cat([native.latent[:, None], target], 1), directions)
    return score + PREDICT * error + SIGREG_WEIGHT * spread / 10, score


def train(
    config: TrafficTraining, examples: list[Example], device: str = "cpu"
) -> Iterator[tuple[int, float, TrafficModel]]:
    """Yield (epoch, mean score loss, model) after every pass."""
    with torch.random.fork_rng(devices=[]):  # layers draw from the global stream when they are made
        model = TrafficModel()
    initialise(model, torch.Generator().manual_seed(seed_for("traffic", "init", config.seed)))
    model, lesson = model.to(device), lesson_of(examples, device)
    optimiser = torch.optim.AdamW(model.parameters(), config.rate, weight_decay=config.decay)
    steps = config.epochs * -(-len(examples) // config.batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    random = torch.Generator()
    for epoch in range(config.epochs):
        random.manual_seed(seed_for("traffic", "epoch", config.seed, epoch))
        losses = []
        for rows in torch.randperm(len(examples), generator=random).split(config.batch):
            directions = torch.randn(LATENT, DIRECTIONS, generator=random).to(device)
            batch = lesson.batch(rows.to(device), epoch % 2 == 1)
            total, score = loss_of(model.train(), batch, directions)
            optimiser.zero_grad()
            total.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            losses.append(score.detach())
        yield epoch + 1, float(torch.stack(losses).mean()), model.eval()


def examples_of(number: int, config: TrafficTraining, vocabulary: Vocabulary) -> list[Example]:
    """The scenes of one log of the split `native`."""
    return [
        example(scene, vocabulary, generator("traffic", "targets", scene.name))
        for scene in scenes_of(make_log("native", number, config.seed), config.per_log)
    ]


@torch.no_grad()
def measure(model: TrafficModel, examples: list[Example], device: str = "cpu") -> dict[str, float]:
    """Mean parts of PDMS of the model's choices; PDMS of all candidates and of the best."""
    chosen: list[int] = []
    for i in range(0, len(examples), 64):
        inputs = vars(inputs_of(examples[i : i + 64])).values()
        score = model(Inputs(*(part.to(device) for part in inputs))).score
        chosen += score.argmax(1).tolist()
    parts = ("pdms", "nc", "dac", "ttc", "ep", "comfort")
    judged = {name: np.stack([getattr(one.judged, name) for one in examples]) for name in parts}
    rows = np.arange(len(examples))
    return {
        **{name: float(values[rows, chosen].mean()) for name, values in judged.items()},
        "all": float(judged["pdms"].mean()),
        "best": float(judged["pdms"].max(1).mean()),
    }


def main(
    out: tyro.conf.Positional[Path],
    config: TrafficTraining = TrafficTraining(),  # noqa: B008
    device: str = "auto",
    workers: int = 0,
) -> None:
    """Generate scenes on `workers` cores (0: all), train, write weights, card, vocabulary to OUT.

    `device` is a name that PyTorch knows, or auto: the GPU if there is one.
    """
    say, device = saying(), device_of(device)
    claim_native(out, DRIVING)
    with processes(workers) as pool:
        first = range(min(config.logs, config.vocabulary_logs))
        logs = pool.map(partial(make_log, "native", seed=config.seed), first, chunksize=4)
        vocabulary = fit_vocabulary(logs, generator("traffic", "vocabulary", config.seed))
        say(f"{len(vocabulary.speed)} motions")
        job = partial(examples_of, config=config, vocabulary=vocabulary)
        found = list(pool.map(job, range(config.logs + config.held_logs), chunksize=4))
    examples = [one for log in found[: config.logs] for one in log]
    held = [one for log in found[config.logs :] for one in log]
    say(f"{len(examples)} scenes, {len(held)} only measured")
    card = {"config": asdict(config), "scenes": len(examples), "held scenes": len(held)}
    for epoch, loss, model in train(config, examples, device):
        metrics = measure(model, held, device) if held else {}
        say(f"epoch {epoch}: score loss {loss:.4f}, {metrics}")
        card |= {"epoch": epoch, "loss": loss, "held": metrics}
    save_native(out, model, vocabulary, card)


if __name__ == "__main__":
    tyro.cli(main)
