"""Scripted experts for gym-aloha: from poses of its objects to commands of both arms.

    transfer cube   right grasps the cube from above, raises it; left takes it from the side
    insertion       right grasps the peg and left the socket; both rise, then the peg goes in

Legend: H commands of an episode.
"""

import numpy as np
from scipy.spatial.transform import Rotation

from djepa.worlds.aloha import COMMAND, TASKS, AlohaWorld
from djepa.worlds.bimanual.experts import Key, Script, follow
from djepa.worlds.bimanual.ik import POSE, to_joints, tool_poses
from djepa.worlds.protocol import Floats

HORIZON = 30  # commands: 300 steps, as long as gym-aloha's episodes
ANCHORS = {  # the commands at which the left arm, then the right, first grasps and later places
    "transfer cube": ((25, 28), (9, 20)),
    "insertion": ((8, 18), (8, 18)),
}
COLOURS = {"transfer cube": ("red",), "insertion": ("red", "blue")}
PITCH = 60  # degrees by which a tool that grasps from the table points down
MEET = np.array([0.0, 0.5, 0.25])
OPEN, SHUT = 1.0, 0.0
UP, SIDE = np.array([0.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.0])


def expert(world: AlohaWorld, state: Floats) -> tuple[Floats, Floats]:
    """(H, 14) commands that solve most starts, and their (H, 16) tool poses."""
    home = state[-COMMAND - 1 : -1]
    begin = tool_poses(world, home).reshape(2, POSE)
    make = {"transfer cube": _transfer, "insertion": _insertion}[world.variant]
    scripts = make(world.places(state)[:, :2])
    poses = [follow(first, keys, HORIZON) for first, keys in zip(begin, scripts, strict=True)]
    both = np.concatenate(poses, -1)
    return to_joints(world, home, both)[0], both


def _turn(yaw: float, pitch: float, roll: float = 0.0) -> Floats:
    """(4,) quaternion from degrees; at 0 the tool points along x, its fingers open along y."""
    found = Rotation.from_euler("ZYX", (yaw, pitch, roll), degrees=True)
    return np.asarray(found.as_quat(scalar_first=True))


def _grasp(place: Floats, turn: Floats, when: tuple[int, int, int]) -> list[Key]:
    """Keys of a grasp: above the object, down, and closed."""
    above, there, shut = when
    keys = (above, place + 0.1 * UP, OPEN), (there, place, OPEN), (shut, place, SHUT)
    return [Key(at, where, turn, opening) for at, where, opening in keys]


def _transfer(places: Floats) -> Script:
    from_right, from_left = _turn(180, PITCH), _turn(0, 0, 90)
    cube = np.append(places[0], 0.02)
    right = _grasp(cube, from_right, (5, 9, 12))
    right += [Key(20, MEET, from_right, SHUT)]
    near, there = MEET - 0.12 * SIDE, MEET - 0.01 * SIDE
    keys = (14, near, OPEN), (21, near, OPEN), (25, there, OPEN), (28, there, SHUT)
    return [Key(at, where, from_left, opening) for at, where, opening in keys], right


def _insertion(places: Floats) -> Script:
    from_right, from_left = _turn(180, PITCH), _turn(0, PITCH)
    peg, socket = np.append(places[0], 0.01), np.append(places[1], 0.02)
    right, left = _grasp(peg, from_right, (4, 8, 11)), _grasp(socket, from_left, (4, 8, 11))
    for at, gap in ((18, 0.14), (21, 0.14), (27, 0.03)):  # m between socket and peg
        right.append(Key(at, MEET + gap * SIDE, from_right, SHUT))
        left.append(Key(at, MEET - max(gap - 0.03, 0.06) * SIDE, from_left, SHUT))
    return left, right


assert set(ANCHORS) == set(COLOURS) == set(TASKS)
