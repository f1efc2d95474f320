"""A PiPER-class arm as MuJoCo XML: published joint frames and limits, own capsules and boxes.

Frames and limits are those of `djepa.worlds.arms.kinematics`; masses, gains and shapes are chosen
for two arms that work together. The gripper has two fingers, each with a slide joint.
"""

from dataclasses import dataclass

import numpy as np

from djepa.worlds.arms.kinematics import HIGH, JOINTS, LOW, A, D, mounting

GAINS = ((600, 40), (600, 40), (600, 40), (200, 12), (150, 8), (100, 5))  # kp, kv
MASSES = (0.7, 1.1, 0.5, 0.4, 0.4, 0.3)  # kg
RADII = (0.045, 0.035, 0.03, 0.03, 0.028, 0.03)  # m
TOOL = 0.145  # m from the flange to the point between the finger tips
FINGER = 0.035  # m, travel of a finger: the gripper opens to 7 cm
GRIP = (900, 25, 25)  # kp, kv, most force in N
LIMITS = np.rint(np.rad2deg([LOW, HIGH]).T).astype(int)  # degrees


@dataclass(frozen=True)
class Mount:
    """Where an arm stands, and its name."""

    name: str
    place: tuple[float, float, float]
    turn: float  # degrees about the vertical
    colour: str = "0.82 0.83 0.85 1"


def arm_xml(mount: Mount) -> str:
    """The bodies of one arm; joints are NAME1 to NAME6, fingers NAMEa and NAMEb."""
    name = mount.name
    turn = np.deg2rad(mount.turn) / 2
    inner, close = "", ""
    for i in range(JOINTS):
        place, turned = mounting(i)
        low, high = LIMITS[i]
        inner += f"""
<body name="{name}{i + 1}" pos="{_text(place)}" quat="{_text(turned)}" gravcomp="1">
 <joint name="{name}{i + 1}" axis="0 0 1" range="{low} {high}" armature="0.05" damping="1"/>
 {_link(i, mount.colour)}"""
        close += "</body>"
    return f"""
<body name="{name}0" pos="{_text(mount.place)}" quat="{_text((np.cos(turn), 0, 0, np.sin(turn)))}">
 <geom type="cylinder" size="0.055 0.04" pos="0 0 0.04" rgba="0.25 0.26 0.29 1" {FREE}/>
 {inner}{_hand(name)}{close}
</body>"""


FREE = 'contype="0" conaffinity="0"'  # the base and the wrist touch nothing


def _link(i: int, colour: str) -> str:
    """A capsule from joint i to the next joint."""
    ends = [(0, 0, 0), (A[2], 0, 0), (A[3], -D[3], 0), (0, 0, 0), (0, 0, 0), (0, 0, 0.03)]
    end = ends[i]
    mass, radius = MASSES[i], RADII[i]
    if not any(end):
        return f'<geom type="sphere" size="{radius}" mass="{mass}" rgba="{colour}" {FREE}/>'
    free = FREE if i == 5 else ""
    return (
        f'<geom type="capsule" fromto="0 0 0 {_text(end)}" size="{radius}" mass="{mass}" '
        f'rgba="{colour}" {free}/>'
    )


def _hand(name: str) -> str:
    """Palm, two fingers that close along y, and the point between their tips."""
    palm = TOOL - 0.075
    fingers = "".join(
        f"""
<body name="{name}{which}" pos="0 0 {TOOL - 0.03:.4f}" gravcomp="1">
 <joint name="{name}{which}" type="slide" axis="0 {sign} 0" range="0 {FINGER}" limited="true"
  armature="0.1" damping="2"/>
 <geom type="box" size="0.011 0.006 0.036" pos="0 {sign * 0.006} 0" mass="0.05"
  rgba="0.18 0.19 0.21 1" friction="1.5 0.02 0.001" condim="4" priority="1"/>
</body>"""
        for which, sign in (("a", 1), ("b", -1))
    )
    return f"""
<geom type="box" size="0.022 0.045 0.022" pos="0 0 {palm:.4f}" mass="0.25" rgba="0.3 0.31 0.34 1"/>
<site name="{name}tool" pos="0 0 {TOOL}" size="0.004" rgba="0 0 0 0"/>
{fingers}"""


def actuators_xml(name: str) -> str:
    """Position drives: six joints, then both fingers."""
    joints = "".join(
        f'<position name="{name}{i + 1}" joint="{name}{i + 1}" kp="{kp}" kv="{kv}" '
        f'ctrlrange="{np.deg2rad(LIMITS[i][0]):.9f} {np.deg2rad(LIMITS[i][1]):.9f}" '
        'forcerange="-60 60"/>'
        for i, (kp, kv) in enumerate(GAINS)
    )
    kp, kv, most = GRIP
    return joints + "".join(
        f'<position name="{name}{which}" joint="{name}{which}" kp="{kp}" kv="{kv}" '
        f'ctrlrange="0 {FINGER}" forcerange="-{most} {most}"/>'
        for which in "ab"
    )


def _text(numbers: object) -> str:
    return " ".join(f"{x:.9g}" for x in np.asarray(numbers, np.float64).ravel())
