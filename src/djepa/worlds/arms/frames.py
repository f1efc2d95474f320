"""The vendor's CAN frames that the device uses: identifiers, units, packing.

Angles are in 0.001°, lengths in 0.001 mm, signed 32 bit, big-endian, two per frame.
"""

import struct

import numpy as np

from djepa.worlds.protocol import Floats

STOP, MODE, GRIP, ENABLE = 0x150, 0x151, 0x159, 0x471
POSE = (0x152, 0x153, 0x154)  # x y, z rx, ry rz
JOINTS = (0x155, 0x156, 0x157)  # two joints each
STATUS, GRIPPER = 0x2A1, 0x2A8
POSE_NOW = (0x2A2, 0x2A3, 0x2A4)
JOINTS_NOW = (0x2A5, 0x2A6, 0x2A7)
MOTORS = tuple(range(0x261, 0x267))  # slow feedback of each motor; bit 6 of byte 5: enabled
MOVE_P, MOVE_J, BY_CAN = 0x00, 0x01, 0x01
STOPPED, NO_SOLUTION, NORMAL = 0x01, 0x02, 0x00
MILLIDEGREES = 180_000 / np.pi  # per radian
MICROMETRES = 1e6  # per metre
POSE_UNITS = np.array([MICROMETRES] * 3 + [MILLIDEGREES] * 3)


def to_units(values: Floats, units: Floats | float) -> list[int]:
    """SI values -> whole numbers on the bus."""
    return [int(x) for x in np.rint(np.asarray(values) * units)]


def pairs(values: list[int]) -> list[bytes]:
    """Six whole numbers -> the data of three frames."""
    return [struct.pack(">ii", *values[i : i + 2]) for i in (0, 2, 4)]


def unpair(data: bytes) -> tuple[int, int]:
    """The data of a frame -> its two whole numbers."""
    first, second = struct.unpack(">ii", data)
    return first, second
