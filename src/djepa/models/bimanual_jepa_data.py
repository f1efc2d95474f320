"""Executed demonstrations and variants of them, with pictures at six moments, to train a predictor.

An episode is a start, the expert's demonstration, and variants: the same poses with grasps and
places moved, by the same warp that makes the candidates of the study. All are executed from the
start, so failures are seen too. Validation episodes have more variants and no demonstration among
the candidates: a choice among those is measured.

Legend: E episodes, B branches of an episode, T = 6 moments, H commands, P target coordinates.
"""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from djepa.artefacts.folder import open_shard, seal_shard
from djepa.files import write_atomically
from djepa.models.bimanual import HEIGHT, WIDTH_OF_IMAGE
from djepa.models.bimanual_jepa import STRIDE, asked, felt
from djepa.models.bimanual_predict import within
from djepa.models.native import Say
from djepa.pools.bimanual import targets_of, warp
from djepa.rollout.bimanual import attempt, world_of
from djepa.rollout.engine import Engine, in_order
from djepa.seeds import generator
from djepa.worlds.arms.kinematics import JOINTS
from djepa.worlds.bimanual.arm import FINGER
from djepa.worlds.bimanual.experts import HORIZON, expert
from djepa.worlds.bimanual.ik import to_joints
from djepa.worlds.bimanual.scene import TASKS
from djepa.worlds.protocol import Floats

FORMAT, VERSION = "djepa-bimanual-branches", 1
Arrays = dict[str, npt.NDArray[Any]]

MOMENTS = tuple(range(0, HORIZON + 1, STRIDE))
ALONG, ACROSS = (-0.03, 0.07), (-0.045, 0.045)  # m, of a variant along and across the grasps' line
EACH = np.array([0.008, 0.008, 0.004])  # m, further shift of each target
CLOSER = 0.35  # the first variant of a training episode is that much nearer to the demonstration


class Data(NamedTuple):
    """Branches of the episodes of all tasks: N episodes, B branches of each."""

    first: Tensor  # (N, 60, 80, 3)
    frames: Tensor  # (N, B, 5, 60, 80, 3)
    tools: Tensor  # (N, B, 6, 20)
    told: Tensor  # (N, B, 5, 40)
    success: Tensor  # (N, B)
    task: Tensor  # (N,) its number


class Draw(NamedTuple):
    """The settings that determine the episodes."""

    task: str
    part: str  # training or validation
    seed: int
    variants: int


def play(draw: Draw, number: int) -> Arrays:
    """One episode: the start's picture, then commands, pictures and joints of every branch."""
    world, rng = world_of(draw.task), generator("bimanual-jepa", *draw[:3], number)
    state = world.initial_state(rng)
    shown, poses = expert(world, state)  # type: ignore[arg-type]
    paths = [warp(draw.task, poses, by) for by in shifts(draw, targets_of(draw.task, poses), rng)]
    moved = [to_joints(world, state[-shown.shape[1] :], path, shown)[0] for path in paths]
    commands = within(np.stack([shown, *moved])).astype(np.float32)
    states, error = attempt(world, state, commands)
    solved = world.judge(world.goal(state), states[:, 1:])[0].any(1) & ~error
    seen = states[:, list(MOMENTS[1:])]
    return {
        "first": world.view(state, "head", HEIGHT, WIDTH_OF_IMAGE),
        "frames": world.view(seen, "head", HEIGHT, WIDTH_OF_IMAGE),
        "joints": measured(states[:, list(MOMENTS)]).astype(np.float32),
        "commands": commands,
        "success": solved,
    }


def shifts(draw: Draw, targets: Floats, rng: np.random.Generator) -> Floats:
    """(variants, P): the same offset of all targets along and across, and a little of each."""
    V, line = draw.variants, targets[6:8] - targets[:2]
    along = line / max(float(np.linalg.norm(line)), 1e-9)
    across = np.array([-along[1], along[0]])
    steps = np.outer(rng.uniform(*ALONG, V), along) + np.outer(rng.uniform(*ACROSS, V), across)
    found = np.tile(np.pad(steps, ((0, 0), (0, 1))), (1, 4)) + rng.normal(size=(V, 12)) * np.tile(
        EACH, 4
    )
    if draw.part == "training":
        found[0] *= CLOSER
    return found


def measured(states: Floats) -> Floats:
    """(..., S) -> (..., 14) where joints and fingers are, as commands name them."""
    arms = states[..., : 2 * (JOINTS + 2)].reshape(*states.shape[:-1], 2, JOINTS + 2)
    opening = arms[..., JOINTS:].mean(-1, keepdims=True) / FINGER
    return np.concatenate([arms[..., :JOINTS], opening], -1).reshape(*states.shape[:-1], -1)


def simulated(out: Path, engine: Engine, draw: Draw, episodes: int) -> Arrays:
    """Arrays first (E, 60, 80, 3), frames (E, B, 5, 60, 80, 3), joints (E, B, 6, 14), commands
    (E, B, H, 14), success (E, B): from the file that an earlier run left, or made into it.
    """
    names = draw.task.replace(" ", "-"), draw.part, episodes, draw.variants, draw.seed
    file = out / ("-".join(map(str, names)) + ".safetensors")
    record = {"format": FORMAT, "version": VERSION, "episodes": episodes, **draw._asdict()}
    if not file.exists():
        items = ((number, number) for number in range(episodes))
        played = list(in_order(engine.map(partial(play, draw), items)))
        arrays = {name: np.stack([one[name] for one in played]) for name in played[0]}
        write_atomically(file, seal_shard(file, arrays, record))
    return open_shard(file, record)


def load(
    out: Path, part: str, seed: int, episodes: int, variants: int, engine: Engine, say: Say
) -> Data:
    """`episodes` episodes of each task."""
    found = []
    for number, task in enumerate(TASKS):
        of = simulated(out, engine, Draw(task, part, seed, variants), episodes)
        found.append(_data(task, number, of))
        won = ", ".join(f"{100 * share:.0f}" for share in of["success"].mean(0))
        say(f"{part}, {task}: {episodes} episodes; branches that succeed, %: {won}")
    return Data(*(torch.cat(parts) for parts in zip(*found, strict=True)))


def _data(task: str, number: int, of: Arrays) -> Data:
    world, N = world_of(task), len(of["first"])
    tools, told = felt(world, of["joints"]), asked(world, of["commands"])
    arrays = of["first"], of["frames"], tools.astype(np.float32), told.astype(np.float32)
    every = (*arrays, of["success"], np.full(N, number))
    return Data(*(torch.from_numpy(np.ascontiguousarray(array)) for array in every))
