"""Scripted experts: from the true poses of objects to the poses of both tools.

A script is a list of keys per arm: the command at which it is reached, position, orientation and
opening.
Between keys the position moves in a straight line and the orientation turns about one axis, both
slowly at the ends.

Legend: H commands of an episode.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from djepa.errors import DjepaError
from djepa.worlds.bimanual.ik import POSE, to_joints, tool_poses
from djepa.worlds.bimanual.rules import drawer_place
from djepa.worlds.bimanual.scene import (
    BLOCK,
    DRAWER,
    GRIP_AT,
    PAD,
    TABLE,
)
from djepa.worlds.bimanual.world import COMMAND, BimanualWorld
from djepa.worlds.protocol import Floats

HORIZON = 40  # commands of an episode: 8 s
PULL = 0.105  # m that the drawer is opened
REACH = 0.09  # m along the roller from its middle to a gripper
ANCHORS = {  # the commands at which the left arm, then the right, first grasps and later places
    "grab roller": ((13, 25), (13, 25)),
    "handover block": ((8, 17), (20, 36)),
    "bread to skillet": ((10, 32), (10, 24)),
    "object to drawer": ((12, 33), (10, 18)),
}


class Key(NamedTuple):
    """The pose and opening of a tool at a command."""

    at: int
    place: Floats
    turn: Floats  # quaternion
    opening: float


Script = tuple[list[Key], list[Key]]  # of the left arm and of the right


def expert(world: BimanualWorld, state: Floats) -> tuple[Floats, Floats]:
    """(H, 14) commands that solve most starts, and their (H, 16) tool poses."""
    home = state[-COMMAND:]
    begin = tool_poses(world, home)
    scripts = {
        "grab roller": _roller,
        "handover block": _handover,
        "bread to skillet": _skillet,
        "object to drawer": _drawer,
    }[world.variant](world, state)
    arms = zip(begin.reshape(2, POSE), scripts, strict=True)
    poses = np.concatenate([follow(first, keys) for first, keys in arms], -1)
    return to_joints(world, home, poses)[0], poses


def follow(begin: Floats, keys: list[Key], horizon: int = HORIZON) -> Floats:
    """(H, 8) poses through all keys."""
    known = [Key(-1, begin[:3], begin[3:7], begin[7]), *keys]
    if known[-1].at >= horizon:
        raise DjepaError(f"A script of {known[-1].at + 1} commands is longer than {horizon}.")
    poses = np.tile(_pose(known[-1]), (horizon, 1))
    for a, b in pairwise(known):
        for t in range(a.at + 1, b.at + 1):
            u = (t - a.at) / (b.at - a.at)
            w = 3 * u**2 - 2 * u**3
            turn = b.turn if a.turn @ b.turn > 0 else -b.turn
            q = (1 - w) * a.turn + w * turn
            place = (1 - w) * a.place + w * b.place
            opening = (1 - u) * a.opening + u * b.opening
            poses[t] = np.concatenate([place, q / np.linalg.norm(q), [opening]])
    return poses


def _pose(key: Key) -> Floats:
    return np.concatenate([key.place, key.turn, [key.opening]])


def facing(approach: Floats, across: Floats) -> Floats:
    """(4,) orientation of a tool that points along `approach`, its fingers open along `across`."""
    z = np.asarray(approach, float) / np.linalg.norm(approach)
    y = np.asarray(across, float) - z * (across @ z)
    y /= np.linalg.norm(y)
    matrix = np.stack([np.cross(y, z), y, z], 1)
    return np.asarray(Rotation.from_matrix(matrix).as_quat(scalar_first=True))


def _down(yaw: float, forward: float = 0.35) -> Floats:
    """(4,) a tool that points down and a little forward, its fingers open at `yaw` from x."""
    across = np.array([np.cos(yaw), np.sin(yaw), 0.0])
    return facing(np.array([0.0, forward, -1.0]), across)


def _yaw(place: Floats) -> float:
    return float(2 * np.arctan2(place[6], place[3]))


UP = np.array([0.0, 0.0, 1.0])


def _by(x: float, y: float, z: float) -> Floats:
    return np.array([x, y, z])


def _roller(world: BimanualWorld, state: Floats) -> Script:
    place = world.place(state, "roller")
    yaw = _yaw(place)
    along = np.array([np.cos(yaw), np.sin(yaw), 0.0])
    found = []
    for sign in (-1, 1):
        turn = _down(yaw - np.pi / 2, 0.2)
        grip = place[:3] + sign * REACH * along + _by(0, 0, 0.004)
        keys = [
            Key(8, grip + 0.09 * UP, turn, 1.0),
            Key(13, grip, turn, 1.0),
            Key(17, grip, turn, 0.0),
            Key(25, grip + 0.12 * UP, turn, 0.0),
        ]
        found.append(keys)
    return found[0], found[1]


def _handover(world: BimanualWorld, state: Floats) -> Script:
    block, pad = world.place(state, "block")[:3], world.place(state, "pad")[:3]
    top = block + _by(0, 0, BLOCK[2] - 0.03)
    hold = _down(np.pi, 0.8)
    middle = np.array([0.04, 0.05, TABLE + 0.05 + BLOCK[2]])  # of the block
    given = middle + _by(0, 0, BLOCK[2] - 0.03)
    yaw = 0.3  # of the block while both hold it: a compromise between the two wrists
    across = np.array([np.cos(yaw), np.sin(yaw), 0.0])
    level = facing(np.array([-0.8 * across[1], 0.8 * across[0], -0.7]), -across)
    turned = _down(np.pi + yaw, 0.8)
    taken = middle - _by(0, 0, BLOCK[2] - 0.045)
    back = np.array([0.1, -0.99, 0.0])
    ready = taken + 0.10 * back
    put = pad + _by(0, 0, PAD[2] + 0.045 + 0.002)
    left = [
        Key(5, top + 0.07 * UP, hold, 1.0),
        Key(8, top, hold, 1.0),
        Key(10, top, hold, 0.0),
        Key(13, top + 0.09 * UP, hold, 0.0),
        Key(17, given, turned, 0.0),
        Key(23, given, turned, 0.0),
        Key(25, given, turned, 1.0),
        Key(28, given + _by(-0.02, -0.05, 0.05), turned, 1.0),
        Key(32, given + _by(-0.12, -0.02, 0.05), turned, 1.0),
    ]
    right = [
        Key(14, ready, level, 1.0),
        Key(17, ready, level, 1.0),
        Key(20, taken, level, 1.0),
        Key(22, taken, level, 0.0),
        Key(28, taken, level, 0.0),
        Key(33, put + 0.04 * UP, level, 0.0),
        Key(36, put, level, 0.0),
        Key(38, put, level, 1.0),
        Key(39, put + 0.02 * back, level, 1.0),
    ]
    return left, right


def _skillet(world: BimanualWorld, state: Floats) -> Script:
    bread, pan = world.place(state, "bread"), world.place(state, "skillet")
    yaw = _yaw(pan)
    along = np.array([np.cos(yaw), np.sin(yaw), 0.0])
    grip = pan[:3] + GRIP_AT * along + _by(0, 0, 0.014)
    fork = _down(yaw - np.pi / 2, 0.2)
    spot = np.array([0.0, -0.06, TABLE + 0.075]) + GRIP_AT * along  # where the handle is held
    middle = spot - GRIP_AT * along
    right = [
        Key(6, grip + 0.07 * UP, fork, 1.0),
        Key(10, grip, fork, 1.0),
        Key(13, grip, fork, 0.0),
        Key(18, grip + 0.05 * UP, fork, 0.0),
        Key(24, spot, fork, 0.0),
    ]
    hold = _down(np.pi + _yaw(bread), 0.5)
    tilted = _down(np.pi + _yaw(bread), 0.9)
    over = middle + _by(0.025, 0, 0.06)  # a held pan hangs a little to the right
    left = [
        Key(6, bread[:3] + 0.07 * UP, hold, 1.0),
        Key(10, bread[:3] + _by(0, 0, 0.004), hold, 1.0),
        Key(13, bread[:3] + _by(0, 0, 0.004), hold, 0.0),
        Key(18, bread[:3] + 0.10 * UP, hold, 0.0),
        Key(24, bread[:3] + 0.10 * UP, hold, 0.0),
        Key(29, over + 0.03 * UP, tilted, 0.0),
        Key(32, over - _by(0, 0, 0.03), tilted, 0.0),
        Key(34, over - _by(0, 0, 0.03), tilted, 0.7),
        Key(37, over + 0.06 * UP, tilted, 1.0),
    ]
    return left, right


def _drawer(world: BimanualWorld, state: Floats) -> Script:
    thing, drawer = world.place(state, "object"), drawer_place(world, state)
    level = facing(np.array([-0.25, 0.85, -0.7]), np.array([-1.0, -0.25, 0.0]))
    handle = drawer + _by(0, -DRAWER[1] - 0.045, 0)
    before = handle + _by(0.03, -0.09, 0.02)
    pulled = handle + _by(0, -PULL, 0)
    right = [
        Key(6, before, level, 1.0),
        Key(10, handle, level, 1.0),
        Key(12, handle, level, 0.0),
        Key(18, pulled, level, 0.0),
        Key(20, pulled, level, 1.0),
        Key(24, pulled + _by(0.06, -0.10, 0.03), level, 1.0),
    ]
    hold = _down(np.pi + _yaw(thing), 0.3)
    low = thing[:3] + _by(0, 0, 0.002)
    tilted = _down(np.pi + _yaw(thing), 0.7)
    over = drawer + _by(0, -PULL, DRAWER[2] + 0.06)
    inside = drawer + _by(0, -PULL, 0.02)
    left = [
        Key(8, low + 0.08 * UP, hold, 1.0),
        Key(12, low, hold, 1.0),
        Key(14, low, hold, 0.0),
        Key(19, low + 0.13 * UP, hold, 0.0),
        Key(24, low + 0.13 * UP, hold, 0.0),
        Key(30, over, tilted, 0.0),
        Key(33, inside, tilted, 0.0),
        Key(35, inside, tilted, 0.9),
        Key(38, over, tilted, 1.0),
    ]
    return left, right
