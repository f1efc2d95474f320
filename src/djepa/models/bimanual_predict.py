"""Candidates of a bimanual start and their label-free features, before execution.

The native chunk has ID 0; variants have the IDs 1 to 16. All inputs are two pictures of the head
camera, the joints and the instruction; the world state is used only to render the pictures.

Legend: K = 17 candidates, H commands, P target coordinates.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from djepa.models.bimanual import HEIGHT, WIDTH_OF_IMAGE, Native, load_policy
from djepa.pools.bimanual import Proposer, targets_of
from djepa.rollout.bimanual import Arrays
from djepa.threads import one_thread
from djepa.worlds.aloha import AlohaWorld
from djepa.worlds.arms.kinematics import JOINTS
from djepa.worlds.bimanual.ik import POSE, to_joints, tool_poses
from djepa.worlds.bimanual.world import COMMAND, BimanualWorld
from djepa.worlds.protocol import Floats

TwoWorlds = BimanualWorld | AlohaWorld
CLOSED = 0.5  # opening below which a gripper counts as closed


@dataclass(frozen=True)
class Propose:
    """The native policy in the folder `where` and its variants; small enough to send to workers."""

    where: str

    def __call__(self, world: BimanualWorld, state: Floats) -> Arrays:
        """All arrays of `djepa.bank.bimanual.Known` for one start."""
        native = _native(self.where)
        proposer, joints = native.proposers[world.variant], state[-COMMAND:]
        small = world.view(state, "head", HEIGHT, WIDTH_OF_IMAGE)
        with one_thread():
            chunk, doubt = native.act(world.variant, small, joints)
        seen = proposer.targets(world.view(state, "head"))
        paths = proposer.variants(seen)
        guess, _ = to_joints(world, joints, paths[0])
        variants, far = zip(*(to_joints(world, joints, path, guess) for path in paths), strict=True)
        commands = np.stack([within(chunk), *variants]).astype(np.float32)
        missed = np.array([0.0, *(one.max() for one in far)])  # the native chunk is of joints
        scene = native.scene.targets(world.variant, world.view(state, "head"), small, joints)
        said = describe(world, proposer, commands.astype(np.float64), (seen, scene))
        ids = np.arange(len(commands))
        own: Arrays = {"image": small, "ids": ids, "commands": commands, "missed": missed}
        return {**own, "doubt": np.array(doubt), **said}


@lru_cache(maxsize=2)
def _native(where: str) -> Native:
    return load_policy(where)


def within(chunk: Floats) -> Floats:
    """Openings cut to [0, 1]; the drives cut joints to their limits themselves."""
    found = np.clip(chunk, -np.pi, np.pi)
    found[..., JOINTS :: JOINTS + 1] = np.clip(found[..., JOINTS :: JOINTS + 1], 0, 1)
    return found


def describe(
    world: TwoWorlds, proposer: Proposer, commands: Floats, aims: tuple[Floats, Floats]
) -> Arrays:
    """Features of commands (K, H, 14) relative to each other and to two predictions of the targets.

    `aims`: targets (P,) predicted from colours, and from the whole scene.
    """
    seen, scene = aims
    poses = tool_poses(world, commands)
    targets = targets_of(world.variant, poses)
    q, near = relation(poses, seen)
    usual, _ = relation(proposer.templates, proposer.known[:, None])
    bends = np.diff(commands, 2, axis=1)
    bends = np.delete(bends, np.arange(JOINTS, COMMAND, JOINTS + 1), -1)  # without grippers
    return {
        "targets": targets,
        "seen": seen,
        "expected": scene,
        "apart": _gap(targets, targets[0]),
        "visual": _gap(targets, seen),
        "scene": _gap(targets, scene),
        "effort": np.sqrt(np.square(bends).mean((1, 2))),
        "timing": np.abs(q - np.median(usual)),
        "relation": q[0],
        "distance": near[0],
    }


def relation(poses: Floats, targets: Floats) -> tuple[Floats, Floats]:
    """(K, H, 16) poses and the targets (P,) -> q and least distance of the grasps in m, (K,) each.

    q is the step, as a share of the sequence, at which both tools are nearest to their grasps,
    among the steps with both grippers closed; of all steps if there is none.
    """
    arms = poses.reshape(*poses.shape[:-1], 2, POSE)
    grasps = targets.reshape(*targets.shape[:-1], 2, 2, 3)[..., 0, :]
    far = np.linalg.norm(arms[..., :3] - grasps, axis=-1).mean(-1)  # (K, H)
    closed = np.all(arms[..., 7] < CLOSED, axis=-1)
    never = ~np.any(closed, axis=1, keepdims=True)
    far = np.where(closed | never, far, np.inf)
    return far.argmin(1) / far.shape[1], far.min(1)


def _gap(targets: Floats, aim: Floats) -> Floats:
    """(K,) mean distance over grasp and place of both arms."""
    apart = (targets - aim).reshape(*targets.shape[:-1], 4, 3)
    return np.asarray(np.linalg.norm(apart, axis=-1).mean(-1))
