"""A PiPER arm to command: one device, two back ends (MuJoCo; the vendor's SDK over CAN).

The device is the interface of a planner to an arm. Every command is clipped to the joint limits,
the workspace box and a maximum speed; the command actually sent is returned. Without a command for
`Limits.watchdog` seconds the arm stops where it is. After `stop` every command is refused until
`resume`. SI units everywhere: m, rad, s; a back end converts.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from djepa.errors import DjepaError
from djepa.worlds.arms import kinematics as k
from djepa.worlds.arms.simulated import SimulatedArm
from djepa.worlds.protocol import Floats


@dataclass(frozen=True, eq=False)
class ArmState:
    """What an arm reports."""

    time: float  # s, of the back end's clock
    joints: Floats  # (6,) rad
    pose: Floats  # (6,) of the flange: x, y, z in m, rx, ry, rz in rad
    opening: float  # m between the fingers
    stopped: bool  # by an emergency stop


class Backend(Protocol):
    """A back end that moves an arm; its commands are already checked and in SI units."""

    live: bool  # runs in real time, so that the watchdog needs a thread

    def now(self) -> float:
        """Time of the back end's clock in s."""

    def wait(self, seconds: float) -> None:
        """Let time pass."""

    def state(self) -> ArmState:
        """The present state."""

    def move_joints(self, joints: Floats, speed: float) -> None:
        """Go to (6,) joint angles; `speed` is a share of full speed."""

    def move_pose(self, pose: Floats, speed: float) -> None:
        """Bring the flange to (6,) x, y, z, rx, ry, rz."""

    def grip(self, opening: float) -> None:
        """Bring the fingers to this gap."""

    def hold(self) -> None:
        """Stay at the present position; commands are accepted."""

    def stop(self) -> None:
        """Emergency stop."""

    def resume(self) -> None:
        """End an emergency stop."""

    def close(self) -> None:
        """Release the arm."""


@dataclass(frozen=True)
class Limits:
    """Limits to which commands are clipped."""

    joint_speed: float = 1.5  # rad/s of the fastest joint, whether joints or a pose are commanded
    tool_speed: float = 0.5  # m/s, for commands of poses
    low: tuple[float, float, float] = (-0.6, -0.6, -0.005)  # m, box of the tool's centre
    high: tuple[float, float, float] = (0.7, 0.7, 0.8)
    watchdog: float = 0.5  # s without a command until the arm is held
    period: float = 0.25  # s, the most that counts as passed since the last command


class PiperDevice:
    """A commanded arm. Use it as a context manager: leaving it holds and releases the arm."""

    def __init__(
        self, backend: Backend, limits: Limits | None = None, zero: Floats = k.ZERO
    ) -> None:
        self.backend, self.limits, self._zero = backend, limits or Limits(), zero
        self._lock, self._closed = threading.RLock(), threading.Event()
        self._stopped = self._held = False
        self._last = backend.now()
        self._target = backend.state().joints
        if backend.live:
            threading.Thread(target=self._watch, daemon=True).start()

    def __enter__(self) -> PiperDevice:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def state(self) -> ArmState:
        """Joints, end pose, gripper; (rad, m)."""
        return self.backend.state()

    def move_joints(self, joints: npt.ArrayLike, speed: float = 1.0) -> Floats:
        """Command (6,) joint angles; returns the angles that were sent."""
        with self._lock:
            wanted = np.clip(self._checked("joint angles", joints, 6), k.LOW, k.HIGH)
            sent = self._inside(self._slowed(wanted, self._elapsed()))
            self.backend.move_joints(sent, speed)
            self._target = sent
            return sent.copy()

    def move_pose(self, pose: npt.ArrayLike, speed: float = 1.0) -> Floats:
        """Command (6,) the flange's x, y, z, rx, ry, rz; returns the pose that was sent.

        The pose is clipped to the workspace and to the tool's speed; it must then be reachable.
        Where a joint would turn faster than its limit, the pose on the way at which the joints are
        in time is sent instead.
        """
        with self._lock:
            wanted, passed = self._checked("a pose", pose, 6), self._elapsed()
            here = k.forward(self._target, zero=self._zero)[:3, 3]
            most = self.limits.tool_speed * passed
            way = wanted[:3] - here
            if (length := float(np.linalg.norm(way))) > most:
                wanted[:3] = here + way * (most / length)
            frame = k.to_frame(wanted)
            tool = frame[:3, 3] + k.TOOL * frame[:3, 2]
            wanted[:3] += np.clip(tool, self.limits.low, self.limits.high) - tool  # 0 if inside
            shift = self._zero - k.ZERO
            joints, left = _reach(wanted, self._target + shift)
            if not _reached(left):
                raise DjepaError(
                    f"The arm cannot reach {np.round(wanted, 3).tolist()} (x, y, z, rx, ry, rz): "
                    f"{left[0] * 1000:.0f} mm and {left[1]:.2f} rad are left. Nothing was sent."
                )
            joints = joints - shift
            slow = self._slowed(joints, passed)
            if slow is not joints:
                joints = self._inside(slow)
                wanted = k.end_pose(joints, zero=self._zero)
            self.backend.move_pose(wanted, speed)
            self._target = joints
            return wanted.copy()

    def grip(self, opening: float) -> float:
        """Command the gap between the fingers in m; returns the gap that was sent."""
        with self._lock:
            sent = float(np.clip(self._checked("an opening", [opening], 1)[0], 0.0, k.OPENING))
            self._elapsed()
            self.backend.grip(sent)
            return sent

    def stop(self) -> None:
        """Emergency stop. Never refused, and sent before anything else."""
        self.backend.stop()
        self._stopped = True

    def resume(self) -> None:
        """End the emergency stop; the arm stays where it is until the next command."""
        with self._lock:
            self.backend.resume()
            self._stopped, self._held = False, False
            self._target, self._last = self.backend.state().joints, self.backend.now()

    def wait(self, seconds: float) -> None:
        """Let time pass while the watchdog is active."""
        end = self.backend.now() + seconds
        while (left := end - self.backend.now()) > 1e-9:
            self.backend.wait(min(left, self.limits.watchdog / 4))
            self.tick()

    def tick(self) -> None:
        """The watchdog: hold the arm if the last command is too long ago."""
        with self._lock:
            late = self.backend.now() - self._last > self.limits.watchdog
            if late and not self._held and not self._stopped:
                self.backend.hold()
                self._target, self._held = self.backend.state().joints, True

    @property
    def target(self) -> Floats:
        """(6,) the joint angles that were last sent, or at which the arm was held."""
        return self._target.copy()

    @property
    def held(self) -> bool:
        """Whether the watchdog has stopped the arm since the last command."""
        return self._held

    def close(self) -> None:
        """Hold the arm and release it."""
        if not self._closed.is_set():
            self._closed.set()
            with self._lock:
                if not self._stopped:
                    self.backend.hold()
                self.backend.close()

    def _watch(self) -> None:
        while not self._closed.wait(self.limits.watchdog / 4):
            with self._lock:
                if not self._closed.is_set():
                    self.tick()

    def _checked(self, what: str, values: npt.ArrayLike, count: int) -> Floats:
        if self._closed.is_set():
            raise DjepaError("The arm was closed. Make a new device.")
        if self._stopped or self.backend.state().stopped:
            raise DjepaError("The arm is stopped. Look at it, then call resume().")
        array = np.array(values, np.float64)
        if array.shape != (count,) or not np.isfinite(array).all():
            raise DjepaError(f"A command of {what} is {count} finite numbers, got {values!r}.")
        return array

    def _elapsed(self) -> float:
        """Seconds since the last command, at most a period: pauses do not permit larger steps."""
        now = self.backend.now()
        passed = now - self._last
        self._last, self._held = now, False
        return min(max(passed, 1e-3), self.limits.period)

    def _slowed(self, wanted: Floats, seconds: float) -> Floats:
        """`wanted` (6,) itself, or the point on the way that the fastest joint can reach."""
        most, way = self.limits.joint_speed * seconds, wanted - self._target
        fastest = float(np.abs(way).max())
        return wanted if fastest <= most else self._target + way * (most / fastest)

    def _inside(self, wanted: Floats) -> Floats:
        """The last point on the way to `wanted` (6,) at which the tool is inside the workspace."""

        def outside(joints: Floats) -> bool:
            tool = k.forward(joints, k.TOOL, self._zero)[:3, 3]
            return bool(((tool < self.limits.low) | (tool > self.limits.high)).any())

        if not outside(wanted):
            return wanted
        if outside(self._target):
            raise DjepaError(
                "The tool is outside the workspace and the command does not bring it back. "
                "Widen Limits.low and Limits.high, or move the arm by hand."
            )
        inside, beyond = 0.0, 1.0
        for _ in range(20):
            middle = (inside + beyond) / 2
            if outside(self._target + middle * (wanted - self._target)):
                beyond = middle
            else:
                inside = middle
        return self._target + inside * (wanted - self._target)


class MujocoBackend:
    """The arm in MuJoCo; its clock is the simulation's."""

    live = False

    def __init__(self, arm: SimulatedArm | None = None) -> None:
        self.arm = arm or SimulatedArm()
        self._stopped = False

    def now(self) -> float:
        """Simulated seconds."""
        return self.arm.time

    def wait(self, seconds: float) -> None:
        """Simulate."""
        self.arm.advance(seconds)

    def state(self) -> ArmState:
        """The simulated state."""
        joints = self.arm.joints
        return ArmState(self.arm.time, joints, k.end_pose(joints), self.arm.opening, self._stopped)

    def move_joints(self, joints: Floats, speed: float) -> None:
        """As commanded."""
        self.arm.move(joints, speed)

    def move_pose(self, pose: Floats, speed: float) -> None:
        """By inverse kinematics."""
        self.arm.move(_reach(pose, self.arm.joints)[0], speed)

    def grip(self, opening: float) -> None:
        """As commanded."""
        self.arm.grip(opening)

    def hold(self) -> None:
        """Stay."""
        self.arm.hold()

    def stop(self) -> None:
        """Stay, and report the stop."""
        self.arm.hold()
        self._stopped = True

    def resume(self) -> None:
        """Accept commands again."""
        self._stopped = False

    def close(self) -> None:
        """Does nothing."""


def _reach(pose: Floats, seed: Floats) -> tuple[Floats, Floats]:
    """Joints (6,) of a pose, searched from `seed` in at most 48 steps, and the remaining error."""
    target, joints = k.to_frame(pose), seed
    for _ in range(8):
        joints, left = k.inverse(target, joints, steps=6)
        if left.max() < 1e-5:
            break
    return joints, left


def _reached(left: Floats) -> bool:
    """Whether the remaining error is within 1 mm and 0.01 rad."""
    return bool(left[0] < 1e-3 and left[1] < 1e-2)
