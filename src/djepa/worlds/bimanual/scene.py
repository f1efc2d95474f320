"""The four scenes: a table, two arms, coloured objects, four cameras.

Lengths in m, z up; the table is 0.74 high. Both arms face +y, the left one stands at x < 0.
Every object that moves, and every one whose place differs between starts, has a free joint, so a
state contains its pose. Only objects have saturated colours: the pixels of a colour in an image are
the object.
"""

from dataclasses import dataclass

import numpy as np

from djepa.errors import check_name
from djepa.worlds.arms.kinematics import JOINTS
from djepa.worlds.bimanual.arm import FINGER, Mount, actuators_xml, arm_xml
from djepa.worlds.protocol import Floats

TABLE = 0.74
ARMS = ("l", "r")
MOUNTS = (Mount("l", (-0.25, -0.35, TABLE), 90), Mount("r", (0.25, -0.35, TABLE), 90))
HOME = np.array([0.0, 0.55, -0.75, 0.0, 0.95, 0.0])  # rad, of either arm
SPREAD = 0.03  # rad, of the joints at a start
CAMERAS = {  # place, what it looks at
    "head": ((0.0, -0.5, 1.42), (0.0, 0.0, TABLE)),
    "front": ((0.0, 0.75, 1.15), (0.0, -0.05, TABLE)),
    "left": ((-0.75, -0.1, 1.15), (0.0, 0.0, TABLE)),
    "right": ((0.75, -0.1, 1.15), (0.0, 0.0, TABLE)),
}
FOV = 42.0  # degrees, vertical
HEAD = np.array([0.01] * 3 + [0.022] * 3)  # m and rad, variation of the head camera between starts
STEP = 0.004  # s of an integration
RED, BLUE, GREEN, ORANGE = "0.85 0.1 0.1 1", "0.1 0.25 0.85 1", "0.1 0.65 0.2 1", "0.95 0.5 0.05 1"
HUES = {"red": 0.0, "blue": 228.0, "green": 131.0, "orange": 30.0}  # degrees
ROLLER = (0.018, 0.15)  # radius, half length
BLOCK = (0.02, 0.02, 0.065)
PAD = (0.05, 0.05, 0.005)
BREAD = (0.018, 0.025, 0.015)
PAN, RIM, HANDLE = 0.07, 0.012, (0.05, 0.009, 0.012)  # radius, half height of the rim, half sizes
GRIP_AT = 0.13  # of the handle, from the middle of the pan
OBJECT = (0.018, 0.018, 0.018)
DRAWER = (0.065, 0.06, 0.03)  # half sizes of the inner space
SHUT = 0.16  # y from the middle of the cabinet's front to the drawer's middle when it is shut


@dataclass(frozen=True)
class Item:
    """An object whose pose is drawn uniformly."""

    name: str
    colour: str  # of HUES
    low: tuple[float, float, float]  # x, y, yaw
    high: tuple[float, float, float]
    height: float  # of its middle above the table
    body: str  # geoms


def _box(sizes: object, place: object = (0, 0, 0), more: str = "") -> str:
    return f'<geom type="box" size="{_text(sizes)}" pos="{_text(place)}" {more}/>'


def _text(numbers: object) -> str:
    return " ".join(f"{x:.9g}" for x in np.asarray(numbers, np.float64).ravel())


def _pan() -> str:
    paint = f'rgba="{GREEN}"'
    floor = f'<geom type="cylinder" size="{PAN} 0.004" mass="0.06" {paint}/>'
    turns = np.arange(12) * np.pi / 6
    side = PAN * np.tan(np.pi / 12)
    rim = "".join(
        f'<geom type="box" size="0.003 {side:.5f} {RIM}" mass="0.003" {paint} '
        f'pos="{PAN * np.cos(t):.5f} {PAN * np.sin(t):.5f} {RIM - 0.002:.5f}" '
        f'euler="0 0 {np.rad2deg(t):.1f}"/>'
        for t in turns
    )
    place = (PAN + HANDLE[0], 0, 0.012)
    return floor + rim + _box(HANDLE, place, f'mass="0.03" {paint} friction="1.2 0.02 0.001"')


def _cabinet() -> str:
    """A shell with an open front, and a drawer that slides out towards -y."""
    x, y, z = (DRAWER[0] + 0.012, DRAWER[1] + 0.012, DRAWER[2] + 0.014)
    grey = 'rgba="0.55 0.55 0.56 1" mass="1.5"'
    shell = (
        _box((x + 0.006, y, 0.004), (0, 0, -z + 0.004), grey)
        + _box((x + 0.006, y, 0.004), (0, 0, z), grey)
        + "".join(_box((0.004, y, z), (s * (x + 0.004), 0, 0), grey) for s in (-1, 1))
        + _box((x, 0.004, z), (0, y + 0.004, 0), grey)
    )
    paint = f'rgba="{BLUE}" mass="0.04"'
    w, d, h = DRAWER
    walls = (
        _box((w, d, 0.003), (0, 0, -h), paint)
        + "".join(_box((0.003, d, h), (s * w, 0, 0), paint) for s in (-1, 1))
        + _box((w, 0.003, h), (0, d, 0), paint)
        + _box((w + 0.008, 0.004, h + 0.006), (0, -d - 0.008, 0), paint)
    )
    post = _box((0.007, 0.007, 0.028), (0, -d - 0.045, 0), paint + ' friction="1.5 0.02 0.001"')
    arms = "".join(_box((0.007, 0.016, 0.005), (0, -d - 0.026, s * 0.023), paint) for s in (-1, 1))
    return (
        shell
        + f"""<body name="drawer"><joint name="drawer" type="slide" axis="0 -1 0" range="0 0.13"
 limited="true" damping="4" frictionloss="0.6"/>{walls}{post}{arms}</body>"""
    )


TASKS: dict[str, tuple[Item, ...]] = {
    "grab roller": (
        Item(
            "roller",
            "orange",
            (-0.06, -0.12, -0.45),
            (0.06, 0.02, 0.45),
            ROLLER[0],
            f'<geom type="cylinder" size="{_text(ROLLER)}" euler="0 90 0" mass="0.25" '
            f'rgba="{ORANGE}" friction="1 0.01 0.002" condim="6"/>',
        ),
    ),
    "handover block": (
        Item(
            "block",
            "red",
            (-0.24, -0.10, 0),
            (-0.10, 0.02, 0),
            BLOCK[2],
            _box(BLOCK, more=f'mass="0.12" rgba="{RED}" friction="1.2 0.02 0.001"'),
        ),
        Item(
            "pad",
            "blue",
            (0.12, 0.06, 0),
            (0.24, 0.15, 0),
            PAD[2],
            _box(PAD, more=f'mass="2" rgba="{BLUE}"'),
        ),
    ),
    "bread to skillet": (
        Item(
            "bread",
            "orange",
            (-0.26, -0.10, -0.4),
            (-0.14, 0.02, 0.4),
            BREAD[2],
            _box(BREAD, more=f'mass="0.04" rgba="{ORANGE}" friction="1.2 0.02 0.001"'),
        ),
        Item("skillet", "green", (0.02, -0.10, -0.3), (0.10, 0.0, 0.3), 0.004, _pan()),
    ),
    "object to drawer": (
        Item(
            "object",
            "red",
            (-0.26, -0.14, -0.4),
            (-0.16, -0.02, 0.4),
            OBJECT[2],
            _box(OBJECT, more=f'mass="0.05" rgba="{RED}" friction="1.2 0.02 0.001"'),
        ),
        Item("cabinet", "blue", (-0.02, 0.18, 0), (0.07, 0.23, 0), DRAWER[2] + 0.014, _cabinet()),
    ),
}


def scene_xml(task: str) -> str:
    """The whole model of a task."""
    check_name("task", task, TASKS)
    items = "".join(
        f'<body name="{item.name}"><freejoint name="{item.name}"/>{item.body}</body>'
        for item in TASKS[task]
    )
    cameras = "".join(
        f'<camera name="{name}" pos="{_text(place)}" xyaxes="{_text(camera_axes(place, aim))}" '
        f'fovy="{FOV}"/>'
        for name, (place, aim) in CAMERAS.items()
    )
    return f"""<mujoco model="{task}">
<compiler angle="degree" autolimits="true"/>
<option timestep="{STEP}" integrator="implicitfast" cone="elliptic" impratio="5" iterations="20">
 <flag warmstart="disable" autoreset="disable"/></option>
<visual><headlight ambient="0.45 0.45 0.45" diffuse="0.35 0.35 0.35" specular="0 0 0"/>
 <quality offsamples="0"/><global offwidth="640" offheight="480"/></visual>
<worldbody>
 <light pos="0 -0.2 2.2" dir="0 0.1 -1" directional="true" diffuse="0.4 0.4 0.4"
  specular="0 0 0" castshadow="false"/>
 {cameras}
 <geom name="table" type="box" size="0.6 0.45 0.02" pos="0 0 {TABLE - 0.02}"
  rgba="0.72 0.7 0.68 1" friction="0.9 0.02 0.001"/>
 <geom type="plane" size="3 3 0.1" rgba="0.35 0.36 0.38 1" contype="0" conaffinity="0"/>
 {"".join(map(arm_xml, MOUNTS))}
 {items}
</worldbody>
<actuator>{"".join(map(actuators_xml, ARMS))}</actuator>
</mujoco>"""


def camera_axes(place: tuple[float, ...], aim: tuple[float, ...]) -> Floats:
    """(2, 3) right and up of a camera."""
    look = np.subtract(aim, place)
    right = np.cross(look, (0, 0, 1))
    up = np.cross(right, look)
    return np.stack([right / np.linalg.norm(right), up / np.linalg.norm(up)])


def draw_places(task: str, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """Positions and quaternions of the items (n, 7), shift and turn of the head camera (6,), joints
    and openings of both arms (14,).
    """
    places = []
    for item in TASKS[task]:
        x, y, yaw = rng.uniform(item.low, item.high)
        turn = (np.cos(yaw / 2), 0, 0, np.sin(yaw / 2))
        places.append((x, y, TABLE + item.height, *turn))
    joints = HOME + rng.normal(0, SPREAD, (len(ARMS), JOINTS))
    head = rng.normal(0, HEAD)
    return np.array(places), head, np.column_stack([joints, np.ones(len(ARMS))]).ravel()


def to_drives(command: Floats) -> Floats:
    """(..., 14) joints and openings in [0, 1] -> (..., 16) targets of the drives."""
    arms = command.reshape(*command.shape[:-1], len(ARMS), JOINTS + 1)
    finger = arms[..., JOINTS:] * FINGER
    wide = np.concatenate([arms[..., :JOINTS], finger, finger], -1)
    return wide.reshape(*command.shape[:-1], -1)
