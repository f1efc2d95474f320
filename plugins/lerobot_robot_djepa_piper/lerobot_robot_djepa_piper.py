"""LeRobot: the arm as the robot type `djepa_piper`, simulated or on a CAN bus.

LeRobot imports installed packages whose names begin with `lerobot_robot_`; importing registers the
type. Joints are in degrees, the gripper in mm.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from lerobot.cameras.configs import CameraConfig
from lerobot.cameras.utils import make_cameras_from_configs
from lerobot.robots.config import RobotConfig
from lerobot.robots.robot import Robot

from djepa.errors import DjepaError
from djepa.worlds.arms.device import Backend, Limits, MujocoBackend, PiperDevice
from djepa.worlds.arms.sdk import SdkBackend

JOINTS = tuple(f"joint_{i}.pos" for i in range(1, 7))
GRIPPER = "gripper.pos"
SIMULATED = "mujoco"


@RobotConfig.register_subclass("djepa_piper")
@dataclass
class DjepaPiperConfig(RobotConfig):
    """Where the arm is and how fast it may move."""

    channel: str = SIMULATED  # mujoco, or a CAN channel such as can0
    interface: str = "socketcan"  # of python-can
    joint_speed: float = 1.5  # rad/s of the fastest joint
    watchdog: float = 0.5  # s without a command until the arm is held
    cameras: dict[str, CameraConfig] = field(default_factory=dict)


class DjepaPiper(Robot):
    """Every command goes through the limits, the watchdog and the stop of `PiperDevice`."""

    config_class = DjepaPiperConfig
    name = "djepa_piper"

    def __init__(self, config: DjepaPiperConfig) -> None:
        super().__init__(config)
        self.config, self.device = config, None
        self.cameras = make_cameras_from_configs(config.cameras)

    device: PiperDevice | None

    @cached_property
    def observation_features(self) -> dict[str, Any]:
        """Angles, gap, and the frames of cameras; known before the arm is connected."""
        seen = {n: (c.height, c.width, 3) for n, c in self.config.cameras.items()}
        return {**self.action_features, **seen}

    @cached_property
    def action_features(self) -> dict[str, type]:
        """Angles in degrees and the gap in mm."""
        return dict.fromkeys((*JOINTS, GRIPPER), float)

    @property
    def is_connected(self) -> bool:
        """Whether the arm and every camera answer."""
        return self.device is not None and all(c.is_connected for c in self.cameras.values())

    @property
    def is_calibrated(self) -> bool:
        """The arm's encoders are absolute."""
        return True

    def calibrate(self) -> None:
        """Nothing to do."""

    def configure(self) -> None:
        """Nothing to do: the limits are given at the connection."""

    def connect(self, calibrate: bool = True) -> None:
        """Take the arm."""
        if self.device is not None:
            raise DjepaError("The arm is already connected.")
        c = self.config
        backend: Backend = (
            MujocoBackend() if c.channel == SIMULATED else SdkBackend(c.channel, c.interface)
        )
        limits = Limits(joint_speed=c.joint_speed, watchdog=c.watchdog)
        self.device = PiperDevice(backend, limits)
        for camera in self.cameras.values():
            camera.connect()

    def get_observation(self) -> dict[str, Any]:
        """What the arm reports, and what cameras see."""
        state = self._arm().state()
        felt = dict(zip(JOINTS, np.rad2deg(state.joints).tolist(), strict=True))
        seen = {name: camera.async_read() for name, camera in self.cameras.items()}
        return {**felt, GRIPPER: 1000 * state.opening, **seen}

    def send_action(self, action: dict[str, Any]) -> dict[str, Any]:
        """Command angles and gap; returns what was sent, after every limit."""
        missing = [name for name in (*JOINTS, GRIPPER) if name not in action]
        if missing:
            raise DjepaError(f"The action lacks {', '.join(missing)}.")
        device = self._arm()
        sent = device.move_joints(np.deg2rad([float(action[name]) for name in JOINTS]))
        opening = device.grip(float(action[GRIPPER]) / 1000)
        if not device.backend.live:  # a simulated arm moves while a live one would
            device.wait(device.limits.period / 5)
        return {
            **dict(zip(JOINTS, np.rad2deg(sent).tolist(), strict=True)),
            GRIPPER: 1000 * opening,
        }

    def disconnect(self) -> None:
        """Hold the arm and let go of it."""
        self._arm().close()
        self.device = None
        for camera in self.cameras.values():
            camera.disconnect()

    def _arm(self) -> PiperDevice:
        if self.device is None:
            raise DjepaError("The arm is not connected: call connect().")
        return self.device
