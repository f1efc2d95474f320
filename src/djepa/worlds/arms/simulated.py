"""One arm in MuJoCo that follows joint targets at a limited rate, as the firmware does.

SI units: rad, m, s. The simulated device and the firmware on the bus share `SimulatedArm`.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.worlds.arms.kinematics import HIGH, JOINTS, LOW, OPENING
from djepa.worlds.arms.piper import arm_xml, load_mujoco, scene_xml
from djepa.worlds.protocol import Floats

RATE = 3.0  # rad/s at 100 % speed
GRIP_RATE = 0.1  # m/s
TICK = 0.01  # s between two servo targets
HOME = (0.0, 1.57, -1.3485, 0.0, 0.0, 0.0)


class SimulatedArm:
    """The arm alone in an empty scene."""

    def __init__(self) -> None:
        self._engine: Any = load_mujoco()
        self._model = self._engine.MjModel.from_xml_string(scene_xml((arm_xml(),)))
        self._data = self._engine.MjData(self._model)
        joints = [f"joint{i + 1}" for i in range(JOINTS)]
        names = [*joints, "finger1", "finger2"]
        self._at = [int(self._model.joint(name).qposadr[0]) for name in names]
        self._servos = [self._model.actuator(name).id for name in (*joints, "grip")]
        self._steps = round(TICK / self._model.opt.timestep)
        self.place(HOME, 0.0)

    def place(self, joints: npt.ArrayLike, opening: float) -> None:
        """Put the arm at these joint angles (6,) and this opening, at rest."""
        self._data.qpos[self._at] = [*np.asarray(joints, np.float64), opening / 2, opening / 2]
        self._data.qvel[:] = 0.0
        self._target = np.array([*np.asarray(joints, np.float64), opening])
        self._servo, self._speed = self._target.copy(), 1.0
        self._data.ctrl[self._servos] = self._servo
        self._engine.mj_forward(self._model, self._data)

    @property
    def time(self) -> float:
        """Seconds since the model began."""
        return float(self._data.time)

    @property
    def joints(self) -> Floats:
        """(6,) rad."""
        return np.array(self._data.qpos[self._at[:JOINTS]])

    @property
    def opening(self) -> float:
        """Gap between the fingers in m."""
        return float(self._data.qpos[self._at[JOINTS:]].sum())

    @property
    def target(self) -> Floats:
        """(6,) the commanded joint angles."""
        return self._target[:JOINTS].copy()

    def move(self, joints: npt.ArrayLike, speed: float = 1.0) -> None:
        """Go to (6,) joint angles at a share of the full rate."""
        self._target[:JOINTS] = np.clip(joints, LOW, HIGH)
        self._speed = float(np.clip(speed, 0.0, 1.0))

    def grip(self, opening: float) -> None:
        """Bring the fingers to this gap."""
        self._target[JOINTS] = np.clip(opening, 0.0, OPENING)

    def hold(self) -> None:
        """Stay where it is."""
        self._target[:JOINTS] = self._servo[:JOINTS] = self.joints

    def advance(self, seconds: float) -> None:
        """Run the physics in steps of 10 ms; servo targets approach the commanded ones."""
        most = np.array([RATE * self._speed * TICK] * JOINTS + [GRIP_RATE * TICK])
        for _ in range(max(1, round(seconds / TICK))):
            self._servo += np.clip(self._target - self._servo, -most, most)
            self._data.ctrl[self._servos] = self._servo
            self._engine.mj_step(self._model, self._data, self._steps)
