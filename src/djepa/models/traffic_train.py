"""Train the native driving model on generated traffic, on a CPU, in minutes.

    python -m djepa.models.traffic_train runs/weights/traffic

Its loss is the cross-entropy of the score with the executed PDMS of every candidate, plus the error
of predicted latents and a penalty (SIGReg) that keeps latents from collapsing.

Legend: N scenes, K = 32 candidates, B scenes of a batch.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import tyro
from torch import Tensor

from djepa.models.nets import initialise
from djepa.models.objectives import SIGREG_WEIGHT, sigreg
from djepa.models.traffic import LATENT, Inputs, TrafficModel, save_native
from djepa.models.traffic_raster import Frame, later, mirrored, raster, seen
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

    logs: int = 350
    """Generated logs of the split `native`; each gives up to `per_log` scenes."""
    per_log: int = 3
    """Scenes of a log."""
    epochs: int = 12
    """Passes over all scenes, every other one mirrored."""
    batch: int = 16
    """Scenes of a step."""
    rate: float = 1e-3
    """Peak learning rate; it falls to 0 as a half cosine."""
    decay: float = 1e-4
    """Weight decay."""
    seed: int = 0
    """Of scenes, first weights and batches."""


@dataclass(frozen=True)
class Example:
    """One scene, its candidates and what became of them."""

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


def inputs_of(examples: Iterable[Example], mirror: bool = False) -> Inputs:
    """What the model reads; outcomes stay behind."""
    found = list(examples)
    frames = np.stack([one.frame for one in found])
    poses, ego = np.stack([one.poses for one in found]), np.stack([one.ego for one in found])
    if mirror:
        frames = mirrored(frames)
        poses, ego = poses * [1.0, -1.0, -1.0], ego * [1.0, 1.0, -1.0]
    return Inputs(torch.from_numpy(frames), torch.from_numpy(ego), torch.from_numpy(poses))


def loss_of(
    model: TrafficModel, batch: list[Example], mirror: bool, random: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Total, and the score's part of it."""
    native = model(inputs_of(batch, mirror))
    pdms = torch.from_numpy(np.stack([one.judged.pdms for one in batch])).float()
    score = F.binary_cross_entropy_with_logits(native.logits[..., -1], pdms)
    views = np.stack([one.views for one in batch if one.views is not None])
    frames = torch.from_numpy(mirrored(views) if mirror else views)
    target, _ = model.encode(frames.flatten(0, 1))
    target = target.view(len(batch), TARGETS, LATENT)
    rows = torch.tensor([one.targets for one in batch])[..., None].expand(-1, -1, LATENT)
    error = F.mse_loss(native.predicted.gather(1, rows), target)
    directions = torch.randn(LATENT, DIRECTIONS, generator=random)
    spread = sigreg(torch.cat([native.latent[:, None], target], 1), directions)
    return score + PREDICT * error + SIGREG_WEIGHT * spread / 10, score


def train(
    config: TrafficTraining, examples: list[Example]
) -> Iterator[tuple[int, float, TrafficModel]]:
    """Yield (epoch, mean score loss, model) after every pass."""
    with torch.random.fork_rng(devices=[]):  # layers draw from the global stream when they are made
        model = TrafficModel()
    initialise(model, torch.Generator().manual_seed(seed_for("traffic", "init", config.seed)))
    optimiser = torch.optim.AdamW(model.parameters(), config.rate, weight_decay=config.decay)
    steps = config.epochs * -(-len(examples) // config.batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    random = torch.Generator()
    for epoch in range(config.epochs):
        random.manual_seed(seed_for("traffic", "epoch", config.seed, epoch))
        losses = []
        for rows in torch.randperm(len(examples), generator=random).split(config.batch):
            batch = [examples[i] for i in rows.tolist()]
            total, score = loss_of(model, batch, epoch % 2 == 1, random)
            optimiser.zero_grad()
            total.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            losses.append(score.item())
        yield epoch + 1, float(np.mean(losses)), model


def main(out: tyro.conf.Positional[Path], config: TrafficTraining = TrafficTraining()) -> None:  # noqa: B008
    """Generate scenes, train, and write weights, vocabulary and card to OUT."""
    begun = time.perf_counter()
    logs = [make_log("native", i, config.seed) for i in range(config.logs)]
    vocabulary = fit_vocabulary(logs, generator("traffic", "vocabulary", config.seed))
    examples = [
        example(scene, vocabulary, generator("traffic", "targets", scene.name))
        for log in logs
        for scene in scenes_of(log, config.per_log)
    ]
    print(f"{len(examples)} scenes in {time.perf_counter() - begun:.0f} s", flush=True)
    for epoch, loss, model in train(config, examples):
        print(
            f"epoch {epoch}: score loss {loss:.4f}, {time.perf_counter() - begun:.0f} s", flush=True
        )
        card = {"config": asdict(config), "scenes": len(examples), "epoch": epoch, "loss": loss}
        save_native(out, model, card)
    np.savez(out / "vocabulary.npz", motions=vocabulary.motions, speed=vocabulary.speed)


if __name__ == "__main__":
    tyro.cli(main)
