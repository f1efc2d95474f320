"""Candidates of a gym-aloha start and their label-free features, before execution.

    native chunk   mean + B W (colours of the top view, 1):  a linear policy of poses, fitted on
                   a few scripted demonstrations of the task, and followed by inverse kinematics
    16 variants    as on our own scenes: colours → grasps → a demonstration, warped → offsets

Fitting takes seconds and is deterministic to the bit, so nothing is stored: every process fits
its own copy. No outcome is read.

Legend: N demonstrations, K = 17 candidates, H commands, F numbers of colours, R directions.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from djepa.artefacts.records import sha256
from djepa.models.bimanual_predict import describe, within
from djepa.pools.bimanual import Proposer, features, fit_proposer
from djepa.rollout.bimanual import Arrays
from djepa.seeds import generator
from djepa.worlds.aloha import CAMERAS, COMMAND, TASKS, AlohaWorld
from djepa.worlds.aloha_expert import HORIZON, expert
from djepa.worlds.bimanual.ik import POSE, to_joints
from djepa.worlds.protocol import Floats

SHOWN, HELD = 48, 16  # demonstrations to fit on, and to choose a ridge by
FEW, DIRECTIONS, RIDGE = 24, 4, 1e-2  # of the native policy, for realistic success rates
SMALL = 60, 80  # of the image that is stored


@dataclass(frozen=True, eq=False)
class Linear:
    """The native policy of a task."""

    middle: Floats  # (F,) of the colours,
    scale: Floats  # and their spread
    inverse: Floats  # (F + 1, F + 1) of the ridge
    weights: Floats  # (F + 1, R)
    mean: Floats  # (H · 16,)
    basis: Floats  # (R, H · 16)

    def act(self, colours: Floats) -> tuple[Floats, float]:
        """(F,) -> poses (H, 16), and the distance of the scene from its demonstrations."""
        x = np.append((colours - self.middle) / self.scale, 1.0)
        poses = self.mean + x @ self.weights @ self.basis
        return poses.reshape(HORIZON, 2 * POSE), float(np.sqrt(x @ self.inverse @ x))


def fit_linear(colours: Floats, poses: Floats) -> Linear:
    """(N, F) and (N, H, 16): ridge to the principal directions of the poses."""
    middle, scale = colours.mean(0), np.maximum(colours.std(0), 1e-6)
    flat = poses.reshape(len(poses), -1)
    mean = flat.mean(0)
    basis = np.linalg.svd(flat - mean, full_matrices=False)[2][:DIRECTIONS]
    x = np.column_stack([(colours - middle) / scale, np.ones(len(flat))])
    inverse = np.linalg.inv(x.T @ x + RIDGE * len(x) * np.eye(x.shape[1]))
    weights = inverse @ x.T @ (flat - mean) @ basis.T
    return Linear(middle, scale, inverse, weights, mean, basis)


@dataclass(frozen=True, eq=False)
class Fitted:
    """Fits of one task: the policy, and per camera the map from colours to grasps and places."""

    native: Linear
    views: dict[str, Proposer]


@lru_cache(maxsize=len(TASKS))
def fitted(task: str) -> Fitted:
    """Fit policy and maps on the first demonstrations of the task."""
    world, colours, poses = AlohaWorld(task), [], []
    for number in range(SHOWN + HELD):
        state = world.initial_state(generator("aloha", "demonstration", task, number))
        colours.append([features(task, world.view(state, camera)) for camera in CAMERAS])
        poses.append(expert(world, state)[1])
    x, paths = np.array(colours), np.array(poses)
    views = {
        camera: fit_proposer(task, x[:SHOWN, i], paths[:SHOWN], x[SHOWN:, i], paths[SHOWN:])[0]
        for i, camera in enumerate(CAMERAS)
    }
    return Fitted(fit_linear(x[:FEW, 0], paths[:FEW]), views)


def policy_hash() -> str:
    """Hash of the fits of both tasks."""
    parts = []
    for task in TASKS:
        found = fitted(task)
        parts += [found.native.weights @ found.native.basis]  # invariant to the signs of directions
        parts += [one.weights for one in found.views.values()]
    return sha256(b"".join(np.round(part, 6).tobytes() for part in parts))


def propose(world: AlohaWorld, state: Floats) -> Arrays:
    """All arrays of `djepa.bank.bimanual.Known` for one start."""
    known, task, home = fitted(world.variant), world.variant, state[-COMMAND - 1 : -1]
    said = [features(task, world.view(state, camera)) for camera in CAMERAS]
    native, doubt = known.native.act(said[0])
    aims = [known.views[c].read(x) for c, x in zip(CAMERAS, said, strict=True)]
    proposer = known.views[CAMERAS[0]]
    paths = proposer.variants(aims[0])
    guess, _ = to_joints(world, home, paths[0])
    every = [to_joints(world, home, path, guess) for path in (native, *paths)]
    chunks, missed = [one for one, _ in every], np.array([far.max() for _, far in every])
    commands = np.stack([within(one) for one in chunks]).astype(np.float32)
    described = describe(world, proposer, commands.astype(np.float64), (aims[0], aims[1]))
    small, ids = world.view(state, CAMERAS[0], *SMALL), np.arange(len(commands))
    own: Arrays = {"image": small, "ids": ids, "commands": commands, "missed": missed}
    return {**own, "doubt": np.array(doubt), **described}
