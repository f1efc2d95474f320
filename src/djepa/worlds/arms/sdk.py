"""The arm behind the vendor's SDK: piper_sdk over CAN, converted to SI units."""

import time
from typing import Any

import numpy as np

from djepa.errors import DjepaError, MissingExtraError
from djepa.worlds.arms import frames as f
from djepa.worlds.arms.device import ArmState
from djepa.worlds.protocol import Floats

EFFORT = 1000  # of the gripper, in 0.001 N/m
PATIENCE = 5.0  # s, timeout of an arm that does not answer


class SdkBackend:
    """A PiPER on a CAN channel: `can0` by socketcan in a laboratory, any other bus in a test."""

    live = True

    def __init__(self, channel: str = "can0", interface: str = "socketcan") -> None:
        try:
            from piper_sdk import C_PiperInterface_V2
        except ImportError as error:
            raise MissingExtraError("The arm's CAN interface", "arms") from error
        self._sdk: Any = C_PiperInterface_V2(channel, judge_flag=False, can_auto_init=False)
        try:
            self._sdk.CreateCanBus(channel, bustype=interface, judge_flag=False)
            self._sdk.ConnectPort(can_init=True, piper_init=False)
        except (ConnectionError, ValueError, OSError) as error:
            raise DjepaError(f"The CAN channel '{channel}' ({interface}): {error}") from error
        self._channel, self._speed, self._mode = channel, -1, -1
        self._enable()

    def _enable(self) -> None:
        """Switch the motors on; an arm that does not answer is an error."""
        for _ in range(round(PATIENCE / 0.01)):
            if self._sdk.EnablePiper() and self._sdk.GetArmJointMsgs().time_stamp > 0:
                return
            time.sleep(0.01)
        self.close()
        raise DjepaError(
            f"No arm answers on the CAN channel '{self._channel}', or a motor cannot be enabled. "
            "Is it powered, and the channel up at 1,000,000 bit/s?"
        )

    def now(self) -> float:
        """Seconds of this machine."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)

    def state(self) -> ArmState:
        """The state in the frames last received."""
        joints, pose = self._sdk.GetArmJointMsgs(), self._sdk.GetArmEndPoseMsgs().end_pose
        angles = [getattr(joints.joint_state, f"joint_{i}") for i in range(1, 7)]
        axes = [getattr(pose, f"{axis}_axis") for axis in ("X", "Y", "Z", "RX", "RY", "RZ")]
        opening = self._sdk.GetArmGripperMsgs().gripper_state.grippers_angle
        status = int(self._sdk.GetArmStatus().arm_status.arm_status)
        return ArmState(
            float(joints.time_stamp),
            np.array(angles) / f.MILLIDEGREES,
            np.array(axes) / f.POSE_UNITS,
            opening / f.MICROMETRES,
            status == f.STOPPED,
        )

    def move_joints(self, joints: Floats, speed: float) -> None:
        """Mode MOVE J, angles in 0.001°."""
        self._use(f.MOVE_J, speed)
        self._sdk.JointCtrl(*f.to_units(joints, f.MILLIDEGREES))

    def move_pose(self, pose: Floats, speed: float) -> None:
        """Mode MOVE P, lengths in 0.001 mm and angles in 0.001°."""
        self._use(f.MOVE_P, speed)
        self._sdk.EndPoseCtrl(*f.to_units(pose, f.POSE_UNITS))

    def grip(self, opening: float) -> None:
        """The gap in 0.001 mm."""
        self._sdk.GripperCtrl(round(opening * f.MICROMETRES), EFFORT, 0x01, 0)

    def hold(self) -> None:
        """Command the angles that were last reported."""
        self.move_joints(self.state().joints, 1.0)

    def stop(self) -> None:
        """The vendor's emergency stop."""
        self._sdk.EmergencyStop(0x01)

    def resume(self) -> None:
        """Recover, enable the motors again, and wait until the arm confirms."""
        self._sdk.EmergencyStop(0x02)
        self._mode = -1
        for _ in range(round(PATIENCE / 0.01)):
            time.sleep(0.01)
            if not self.state().stopped:
                return self._enable()
        raise DjepaError("The arm does not leave its emergency stop.")

    def close(self) -> None:
        """Leave the bus; the motors stay enabled, so that the arm does not fall."""
        self._sdk.DisconnectPort()

    def _use(self, mode: int, speed: float) -> None:
        """Set mode and speed if they differ from the last ones."""
        percent = round(100 * float(np.clip(speed, 0.01, 1.0)))
        if (mode, percent) != (self._mode, self._speed):
            self._sdk.MotionCtrl_2(f.BY_CAN, mode, percent, 0x00)
            self._mode, self._speed = mode, percent
