"""A PiPER-class arm as MuJoCo XML, written by code from the published DH table and joint limits.

The shapes are our own capsules and boxes; the masses are ours too and add up to the arm's 4.2 kg.
Gravity on the arm is compensated, as its firmware does. An arm has seven actuators: the angles of
its six joints in rad, then the gap between the fingers in m.

Arms do not collide with themselves; they collide with each other if their `layer`s differ, and
with every object of the default contype and conaffinity 1.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from djepa.errors import DjepaError, MissingExtraError
from djepa.worlds.arms.kinematics import HIGH, JOINTS, LOW, OPENING, TOOL, A, D, mounting

# Stiffness (Nm/rad), damping (Nms/rad) and largest torque (Nm) of a servo, one row per joint.
STIFFNESS = (400.0, 400.0, 400.0, 120.0, 120.0, 60.0)
DAMPING = (30.0, 30.0, 30.0, 6.0, 6.0, 3.0)
TORQUE = (60.0, 60.0, 60.0, 20.0, 20.0, 10.0)
GRIP_STIFFNESS, GRIP_DAMPING, GRIP_FORCE = 600.0, 20.0, 20.0  # N/m, Ns/m, N
LAYERS = 8  # most layers in one scene
WHITE, GREY, DARK = "0.92 0.93 0.95 1", "0.55 0.58 0.62 1", "0.18 0.19 0.21 1"


@dataclass(frozen=True)
class Mount:
    """Where an arm stands, and the `prefix` of the names of its parts."""

    prefix: str = ""
    position: tuple[float, float, float] = (0.0, 0.0, 0.0)
    yaw: float = 0.0  # rad about the vertical; at 0 the arm faces along x
    layer: int = 0  # arms of one scene have different layers


ALONE = Mount()


@dataclass(frozen=True)
class ArmXml:
    """The XML of one arm, for a scene's worldbody and its other sections."""

    body: str
    tendon: str
    equality: str
    actuator: str


def arm_xml(mount: Mount = ALONE) -> ArmXml:
    """The XML of one arm. Sites: `flange` (the vendor's end pose) and `tool` (between the tips)."""
    if not 0 <= mount.layer < LAYERS:
        raise DjepaError(f"An arm's layer is 0 to {LAYERS - 1}, got {mount.layer}.")
    p = mount.prefix
    body = f"<body name='{p}link6' {_frame(5)}>{_joint(p, 5)}{_hand(p)}</body>"
    for i in reversed(range(JOINTS - 1)):
        place = _frame(i)
        body = f"<body name='{p}link{i + 1}' {place}>{_joint(p, i)}{SHAPES[i]}{body}</body>"
    base = _capsule(0.05, (0, 0, 0.0), (0, 0, 0.07), 1.0, GREY)
    turn = f"quat='{np.cos(mount.yaw / 2)} 0 0 {np.sin(mount.yaw / 2)}'"
    body = f"<body name='{p}base' pos='{_row(mount.position)}' {turn}>{base}{body}</body>"
    own, others = 2 << mount.layer, 1 | (((1 << LAYERS) - 1) << 1) & ~(2 << mount.layer)
    body = body.replace("<geom ", f"<geom contype='{own}' conaffinity='{others}' ")
    body = body.replace("<body ", "<body gravcomp='1' ")
    grip = f"{p}grip"
    tendon = f"<fixed name='{grip}'><joint joint='{p}finger1' coef='1'/>"
    tendon += f"<joint joint='{p}finger2' coef='1'/></fixed>"
    equality = f"<joint joint1='{p}finger1' joint2='{p}finger2' polycoef='0 1 0 0 0'/>"
    actuator = "".join(
        f"<position name='{p}joint{i + 1}' joint='{p}joint{i + 1}' kp='{STIFFNESS[i]}' "
        f"kv='{DAMPING[i]}' ctrlrange='{LOW[i]} {HIGH[i]}' forcerange='{-TORQUE[i]} {TORQUE[i]}'/>"
        for i in range(JOINTS)
    )
    actuator += (
        f"<position name='{grip}' tendon='{grip}' kp='{GRIP_STIFFNESS}' kv='{GRIP_DAMPING}' "
        f"ctrlrange='0 {OPENING}' forcerange='{-GRIP_FORCE} {GRIP_FORCE}'/>"
    )
    return ArmXml(body, tendon, equality, actuator)


def scene_xml(arms: tuple[ArmXml, ...], worldbody: str = "", extra: str = "") -> str:
    """A whole MuJoCo model: arms, further bodies, and further top-level sections, in this order.

    2 ms steps, no warm start (a rollout must not depend on earlier ones), no automatic reset.
    """
    join = "".join
    return (
        "<mujoco><compiler angle='radian' autolimits='true'/>"
        "<option timestep='0.002' integrator='implicitfast' cone='elliptic' impratio='10'>"
        "<flag warmstart='disable' autoreset='disable'/></option>"
        f"<worldbody>{join(a.body for a in arms)}{worldbody}</worldbody>"
        f"<tendon>{join(a.tendon for a in arms)}</tendon>"
        f"<equality>{join(a.equality for a in arms)}</equality>"
        f"<actuator>{join(a.actuator for a in arms)}</actuator>{extra}</mujoco>"
    )


def load_mujoco(what: str = "An arm") -> Any:
    """MuJoCo, or an error that names the extra."""
    try:
        import mujoco
        import mujoco.rollout
    except ImportError as error:
        raise MissingExtraError(what, "arms") from error
    return mujoco


def _frame(i: int) -> str:
    """The pose of link i + 1 on the previous link, as XML attributes."""
    position, turn = (_row(tuple(x)) for x in mounting(i))
    return f"pos='{position}' quat='{turn}'"


def _joint(p: str, i: int) -> str:
    bend = f"axis='0 0 1' range='{LOW[i]} {HIGH[i]}' armature='0.05' damping='0.5'"
    return f"<joint name='{p}joint{i + 1}' {bend}/>"


def _hand(p: str) -> str:
    """Link 6: the hand, two fingers that slide along y, and the two sites."""
    tip = TOOL - 0.03
    slide = f"type='slide' range='0 {OPENING / 2}' armature='0.02' damping='2'"
    fingers = ""
    for n, side in ((1, 1), (2, -1)):
        pad = (
            f"<geom name='{p}pad{n}' type='box' size='0.011 0.005 0.03' mass='0.04' "
            f"pos='0 {0.005 * side} {tip}' rgba='{DARK}' friction='1.5 0.02 0.0005' condim='4' "
            "solref='0.004 1' solimp='0.95 0.99 0.001'/>"
        )
        joint = f"<joint name='{p}finger{n}' axis='0 {side} 0' {slide}/>"
        fingers += f"<body name='{p}finger{n}'>{joint}{pad}</body>"
    palm = f"<geom type='box' size='0.025 0.045 0.03' pos='0 0 0.045' mass='0.3' rgba='{GREY}'/>"
    sites = (
        f"<site name='{p}flange' size='0.003'/><site name='{p}tool' pos='0 0 {TOOL}' size='0.003'/>"
    )
    return palm + sites + fingers


def _capsule(
    radius: float, begin: tuple[float, ...], end: tuple[float, ...], mass: float, rgba: str
) -> str:
    ends = _row((*begin, *end))
    return f"<geom type='capsule' size='{radius}' fromto='{ends}' mass='{mass}' rgba='{rgba}'/>"


def _row(numbers: tuple[float, ...]) -> str:
    return " ".join(repr(float(x)) for x in numbers)


SHAPES = (  # links 1 to 5, in their own frames
    _capsule(0.045, (0, 0, -0.02), (0, 0, 0.01), 0.7, WHITE),
    _capsule(0.035, (0, 0, 0), (float(A[2]), 0, 0), 1.1, WHITE),
    _capsule(0.03, (0, 0, 0), (float(A[3]), -float(D[3]) + 0.03, 0), 0.5, WHITE),
    _capsule(0.028, (0, 0, -0.02), (0, 0, 0.0), 0.25, GREY),
    _capsule(0.026, (0, 0, 0), (0, -float(D[5]) + 0.02, 0), 0.25, WHITE),
)
