"""A MuJoCo arm on a CAN bus that receives and sends the vendor's frames.

With python-can's virtual bus the vendor's own SDK drives it in one process, without hardware. It
imitates enabling, the modes MOVE P and MOVE J (both interpolate joints), speed in per cent, the
gripper, emergency stop and recovery, and the feedback of status, pose, joints, gripper and motors.
"""

from __future__ import annotations

import struct
import threading
import time
from types import TracebackType
from typing import Any

import numpy as np

from djepa.errors import MissingExtraError
from djepa.worlds.arms import frames as f
from djepa.worlds.arms.kinematics import end_pose, inverse, to_frame
from djepa.worlds.arms.simulated import TICK, SimulatedArm


class PiperFirmware:
    """The simulated firmware; runs in its own thread, in real time, until it is closed."""

    def __init__(
        self, channel: str, interface: str = "virtual", arm: SimulatedArm | None = None
    ) -> None:
        try:
            import can
        except ImportError as error:
            raise MissingExtraError("An arm on a CAN bus", "arms") from error
        self._message = can.Message
        self.arm = arm or SimulatedArm()
        self.received: dict[int, int] = {}  # identifier -> number of frames received
        self._bus: Any = can.Bus(channel=channel, interface=interface)
        self._joints, self._pose = [0] * 6, [0] * 6
        self._enabled, self._status, self._mode, self._speed = False, f.NORMAL, f.MOVE_P, 0.0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> PiperFirmware:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the thread and leave the bus."""
        self._closed.set()
        self._thread.join()
        self._bus.shutdown()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._closed.is_set():
            while (frame := self._bus.recv(timeout=0.0)) is not None:
                self._receive(frame.arbitration_id, bytes(frame.data))
            self.arm.advance(TICK)
            self._answer()
            due = max(due + TICK, time.monotonic() - TICK)
            time.sleep(max(0.0, due - time.monotonic()))

    def _receive(self, name: int, data: bytes) -> None:
        self.received[name] = self.received.get(name, 0) + 1
        if name == f.STOP:
            self._emergency(data[0])
        elif name == f.ENABLE:
            self._enabled = data[1] == 0x02
        elif name == f.MODE:
            self._mode, self._speed = data[1], data[2] / 100 if data[0] == f.BY_CAN else 0.0
        elif name == f.GRIP and self._ready():
            opening, _, code = struct.unpack(">iHB", data[:7])
            if code & 1:
                self.arm.grip(opening / f.MICROMETRES)
        elif name in f.JOINTS:
            self._put(self._joints, f.JOINTS.index(name), data)
            if name == f.JOINTS[-1] and self._ready(f.MOVE_J):
                self.arm.move(np.array(self._joints) / f.MILLIDEGREES, self._speed)
        elif name in f.POSE:
            self._put(self._pose, f.POSE.index(name), data)
            if name == f.POSE[-1] and self._ready(f.MOVE_P):
                self._go()

    def _put(self, numbers: list[int], pair: int, data: bytes) -> None:
        numbers[2 * pair : 2 * pair + 2] = f.unpair(data)

    def _ready(self, mode: int | None = None) -> bool:
        return self._enabled and self._status != f.STOPPED and mode in (None, self._mode)

    def _go(self) -> None:
        """Move to the pose, or report that there is no solution."""
        target = to_frame(np.array(self._pose) / f.POSE_UNITS)
        joints, left = inverse(target, self.arm.joints, steps=60)
        reached = left[0] < 1e-3 and left[1] < 1e-2
        self._status = f.NORMAL if reached else f.NO_SOLUTION
        if reached:
            self.arm.move(joints, self._speed)

    def _emergency(self, code: int) -> None:
        """1: stay and refuse commands. 2: recover; motors must be enabled again."""
        if code == 0x01:
            self.arm.hold()
            self._status = f.STOPPED
        elif code == 0x02:
            self._status, self._enabled = f.NORMAL, False

    def _answer(self) -> None:
        joints = self.arm.joints
        moving = int(np.abs(self.arm.target - joints).max() > 2e-3)
        mode = f.BY_CAN if self._speed else 0
        self._send(f.STATUS, bytes([mode, self._status, self._mode, 0, moving, 0, 0, 0]))
        pose = f.pairs(f.to_units(end_pose(joints), f.POSE_UNITS))
        angles = f.pairs(f.to_units(joints, f.MILLIDEGREES))
        for name, data in zip((*f.POSE_NOW, *f.JOINTS_NOW), pose + angles, strict=True):
            self._send(name, data)
        opening = round(self.arm.opening * f.MICROMETRES)
        self._send(f.GRIPPER, struct.pack(">ihBB", opening, 0, self._enabled << 6, 0))
        for name in f.MOTORS:
            self._send(name, bytes([0, 240, 0, 30, 30, self._enabled << 6, 0, 0]))

    def _send(self, name: int, data: bytes) -> None:
        self._bus.send(self._message(arbitration_id=name, data=data, is_extended_id=False))
