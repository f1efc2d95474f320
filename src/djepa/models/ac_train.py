"""Train the arm's action-conditioned model on simulated camera frames.

    python -m djepa.models.ac_train runs/weights/arm-ac

First the encoder: the principal components of patches, under a smooth window. Then the predictor,
by the L1 error of its tokens one step ahead and two steps ahead, its own predictions fed back, as
V-JEPA 2-AC is trained. Both tasks of the arm world share one model.

Legend: E episodes, L controls of an episode, B rows of a batch.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import tyro
from torch import Tensor, nn

from djepa.errors import check_name
from djepa.models.ac import ActionConditioned, to_moves
from djepa.models.kinds import build
from djepa.models.native import fit_components
from djepa.models.step import Step
from djepa.models.weights import save_geometry
from djepa.rollout.engine import LocalEngine, in_order
from djepa.seeds import generator, seed_for
from djepa.worlds.arms.camera import CAMERAS, projection, render_states
from djepa.worlds.arms.starts import Explorer, initial_state
from djepa.worlds.arms.table import TASKS, ArmWorld, poses
from djepa.worlds.behaviours import drive

LENGTH = 8  # controls of an episode
WINDOW = 2  # steps that the predictor is rolled out in training
FRAMES = 400  # episodes that the encoder is fitted to
HELD = 16  # every 16th episode is held out


@dataclass(frozen=True)
class ACTraining:
    """What is trained on, and how long."""

    camera: str = "front"
    """front or top."""
    episodes: int = 500
    """Of each task; each has eight controls."""
    steps: int = 2000
    """Updates of the predictor."""
    batch: int = 64
    """Rows of an update."""
    rate: float = 1e-3
    """Highest learning rate."""
    seed: int = 0
    """Of all draws."""
    device: str = "cpu"
    """cpu or cuda."""
    workers: int = 0
    """Processes that simulate; 0: as many as cores."""


class Data(NamedTuple):
    """Camera frames and poses (E, L + 1, ...), and controls (E, L, 4)."""

    frames: Tensor
    poses: Tensor
    controls: Tensor


def play(task: str, seed: int, episode: int) -> tuple[np.ndarray, np.ndarray]:
    """One training episode: states (L + 1, S) and controls (L, 4)."""
    world, rng = ArmWorld(task), generator("arm-episode", task, seed, episode)
    world.restore(initial_state(world, rng))
    states, controls = drive(world, Explorer(world, rng), LENGTH)  # type: ignore[arg-type]
    return states, controls


def simulate(config: ACTraining) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Task -> states (E, L + 1, S) and controls (E, L, 4) of its episodes."""
    engine, found = LocalEngine(config.workers), {}
    for task in TASKS:
        work = partial(play, task, config.seed)
        played = in_order(engine.map(work, ((i, i) for i in range(config.episodes))))
        states, controls = zip(*played, strict=True)
        found[task] = np.stack(states), np.stack(controls)
    return found


def draw(
    episodes: dict[str, tuple[np.ndarray, np.ndarray]], image: int, config: ACTraining
) -> Data:
    """Episodes of both tasks as the camera sees them, in a mixed order."""
    parts = [
        (render_states(task, states, image, config.camera), poses(states), controls)
        for task, (states, controls) in episodes.items()
    ]
    frames, felt, done = (np.concatenate(some) for some in zip(*parts, strict=True))
    order = generator("arm-order", config.seed).permutation(len(frames))
    arrays = (frames[order], felt[order].astype(np.float32), done[order].astype(np.float32))
    return Data(*(torch.from_numpy(array).to(config.device) for array in arrays))


def train(out: Path, config: ACTraining, command: str = "") -> ActionConditioned:
    """Simulate, fit, write."""
    check_name("camera", config.camera, CAMERAS)
    began = time.monotonic()
    model = build("ac", torch.Generator().manual_seed(seed_for("ac", config.seed)))
    assert isinstance(model, ActionConditioned)
    model.camera.copy_(torch.from_numpy(projection(config.camera, model.grid)))
    data = draw(simulate(config), model.image, config)
    metrics = fit(model.to(config.device), data, config)
    print(f"{(time.monotonic() - began) / 60:.1f} min: {metrics}", flush=True)
    save_geometry(model, out, card(model, config, metrics, command))
    return model.eval()


def card(
    model: ActionConditioned, config: ACTraining, metrics: dict[str, float], command: str
) -> dict[str, Any]:
    """How the weights were made and what they reach."""
    return {
        "command": command,
        "metrics": metrics,
        "parameters": sum(p.numel() for p in model.parameters()),
        "recipe": {"world": "arm", **asdict(config)},
    }


def fit(model: ActionConditioned, data: Data, config: ACTraining) -> dict[str, float]:
    """Encoder, then predictor; returns errors on episodes that were not trained on."""
    _standardise(model, data)
    seen, rng = torch.arange(len(data.frames)) % HELD != 0, generator("arm-patches", config.seed)
    some = torch.from_numpy(rng.permutation(seen.nonzero().flatten().numpy())[:FRAMES])
    frames = data.frames[some.to(config.device), :: LENGTH // 2].flatten(0, 1)
    fit_components(model.encoder, frames.permute(0, 3, 1, 2) / 127.5 - 1.0, rng)
    return train_predictor(model, data, seen, config)


def train_predictor(
    model: ActionConditioned, data: Data, seen: Tensor, config: ACTraining
) -> dict[str, float]:
    """On tokens of a frozen encoder; returns errors on episodes that were not trained on."""
    with torch.no_grad():
        flat = data.frames.flatten(0, 1)
        tokens = torch.cat([model.tokens(part) for part in flat.split(256)])
    tokens = tokens.unflatten(0, data.frames.shape[:2])
    moves = to_moves(data.controls)
    rows = seen.nonzero().flatten().numpy()

    def loss(begin: Tensor, after: Tensor, felt: Tensor, done: Tensor) -> Tensor:
        now, total = begin, begin.new_zeros(())
        for step in range(WINDOW):
            now = model.predict(now, done[:, step], felt[:, step])
            total = total + (now - after[:, step]).abs().mean()
        return total

    def batch(rng: np.random.Generator) -> tuple[Tensor, ...]:
        e = torch.from_numpy(rng.choice(rows, config.batch)).to(tokens.device)
        t = torch.from_numpy(rng.integers(LENGTH - WINDOW + 1, size=config.batch)).to(e.device)
        at = t[:, None] + torch.arange(WINDOW, device=e.device)
        each = e[:, None]
        return tokens[e, t], tokens[each, at + 1], data.poses[each, at], moves[each, at]

    _run("predictor", loss, model, batch, config.steps, config)
    held = ~seen.to(tokens.device)
    found = _errors(model, tokens[held], data.poses[held], moves[held])
    return {"episodes": int(held.sum()), **found}


@torch.no_grad()
def _errors(
    model: ActionConditioned, tokens: Tensor, felt: Tensor, done: Tensor
) -> dict[str, float]:
    """Mean L1 errors after 1 and 5 steps, of the model and of predicting no change."""
    now, found = tokens[:, 0], {}
    for step in range(5):
        now = model.predict(now, done[:, step], felt[:, step])
        if step in (0, 4):
            found[f"l1_{step + 1}"] = (now - tokens[:, step + 1]).abs().mean()
            found[f"still_{step + 1}"] = (tokens[:, 0] - tokens[:, step + 1]).abs().mean()
    return {name: round(float(value), 5) for name, value in found.items()}


def _run(
    what: str,
    loss: Callable[..., Tensor],
    model: nn.Module,
    batch: Callable[[np.random.Generator], tuple[Tensor, ...]],
    steps: int,
    config: ACTraining,
) -> None:
    update = Step(loss, model, config.rate, 1e-4)
    for i in range(steps):
        last = update(batch(generator("ac", what, config.seed, i)), i / steps)
        if i % 100 == 0 or i == steps - 1:
            print(f"{what} {i}: {float(last):.4f}", flush=True)


def _standardise(model: ActionConditioned, data: Data) -> None:
    """Means and spreads of poses, actions and controls."""
    for name, values in (
        ("pose", data.poses),
        ("move", to_moves(data.controls)),
        ("action", data.controls),
    ):
        flat = values.flatten(0, 1)
        getattr(model, f"{name}_mean").copy_(flat.mean(0))
        getattr(model, f"{name}_std").copy_(flat.std(0).clamp_min(1e-3))


def main(
    out: tyro.conf.Positional[Path],
    config: tyro.conf.OmitArgPrefixes[ACTraining] = ACTraining(),  # noqa: B008
) -> None:
    """Train and write to OUT."""
    train(out, config, " ".join(["python -m djepa.models.ac_train", *sys.argv[1:]]))


if __name__ == "__main__":
    tyro.cli(main)
