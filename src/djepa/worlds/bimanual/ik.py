"""From poses of both tools to joint commands, by damped least squares on MuJoCo's Jacobian.

    dq = W Jᵀ (J W Jᵀ + λ I)⁻¹ e,      e = (position error, weighted orientation error)

A pose is 8 numbers: x, y, z, a unit quaternion, an opening; 16 for both arms. Orientation weighs
less than position, so that a pose beyond the wrist's range keeps its position.

Legend: H commands.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from djepa.worlds.arms.kinematics import JOINTS
from djepa.worlds.bimanual.scene import to_drives
from djepa.worlds.protocol import Floats

POSE = 8
TURN = 0.12  # m of position error per radian of orientation
DAMP, ROUNDS, CLOSE, MOST = 1e-4, 12, 2e-4, 0.25  # λ, iterations, m, rad of one iteration
UNITS, RIDGE = np.repeat([1.0, TURN], 3)[:, None], DAMP * np.eye(6)


@dataclass(frozen=True, eq=False)
class Chain:
    """Two arms of six joints and two fingers each, whose joints come first in a MuJoCo model."""

    engine: Any
    model: Any
    sites: list[int]  # of both tools
    low: Floats  # (6,) rad
    high: Floats


class TwoArms(Protocol):
    """A world that has two arms."""

    @property
    def chain(self) -> Chain:
        """The kinematic chain of both arms."""


def to_joints(
    world: TwoArms, start: Floats, poses: Floats, guess: Floats | None = None
) -> tuple[Floats, Floats]:
    """(H, 16) poses -> (H, 14) commands from (14,) `start`, and (H, 2) position errors in m.

    Each pose is solved from the previous command, or from `guess` (H, 14) of a similar path.
    """
    solver = _Solver(world.chain)
    command, commands, missed = start.copy(), [], []
    for t, pose in enumerate(poses):
        command = command.copy() if guess is None else guess[t].copy()
        arms = command.reshape(2, JOINTS + 1)
        error = []
        for i, target in enumerate(pose.reshape(2, POSE)):
            arms[i, :JOINTS], miss = solver.solve(i, arms[i, :JOINTS], target)
            arms[i, JOINTS] = target[-1]
            error.append(miss)
        commands.append(command)
        missed.append(error)
    return np.array(commands), np.array(missed)


def tool_poses(world: TwoArms, commands: Floats) -> Floats:
    """(..., 14) commands -> (..., 16) tool poses by forward kinematics."""
    solver = _Solver(world.chain)
    flat = commands.reshape(-1, commands.shape[-1])
    found = np.array([solver.forward(command) for command in flat])
    return found.reshape(*commands.shape[:-1], 2 * POSE)


class _Solver:
    def __init__(self, chain: Chain) -> None:
        self.engine, self.model, self.sites = chain.engine, chain.model, chain.sites
        self.low, self.high = chain.low, chain.high
        self.data = self.engine.MjData(self.model)
        self.jacobian = np.zeros((6, self.model.nv))

    def forward(self, command: Floats) -> Floats:
        """(16,) poses of one command."""
        drives = to_drives(command)
        self.data.qpos[: len(drives)] = drives
        self.engine.mj_kinematics(self.model, self.data)
        found: list[Any] = []
        for site, opening in zip(self.sites, command[JOINTS :: JOINTS + 1], strict=True):
            turn = np.zeros(4)
            self.engine.mju_mat2Quat(turn, self.data.site_xmat[site])
            found += [*self.data.site_xpos[site], *turn, opening]
        return np.array(found)

    def solve(self, arm: int, joints: Floats, pose: Floats) -> tuple[Floats, float]:
        """(6,) joints nearest to the pose, and their position error in m."""
        data, engine, site = self.data, self.engine, self.sites[arm]
        at = slice(arm * (JOINTS + 2), arm * (JOINTS + 2) + JOINTS)
        q, nine, error = joints.copy(), np.zeros(9), np.zeros(6)
        engine.mju_quat2Mat(nine, pose[3:7])
        wanted = nine.reshape(3, 3)
        for _ in range(ROUNDS):
            data.qpos[at] = q
            engine.mj_kinematics(self.model, data)
            engine.mj_comPos(self.model, data)
            engine.mj_jacSite(self.model, data, self.jacobian[:3], self.jacobian[3:], site)
            now = data.site_xmat[site].reshape(3, 3)
            m = (0.5 * TURN) * (wanted @ now.T)  # its antisymmetric part is the remaining rotation
            error[:3] = pose[:3] - data.site_xpos[site]
            error[3:] = m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]
            if np.abs(error).max() < CLOSE:
                break
            J = self.jacobian[:, at] * UNITS
            dq = J.T @ np.linalg.solve(J @ J.T + RIDGE, error)
            dq *= min(1.0, MOST / max(np.abs(dq).max(), 1e-9))
            q = np.clip(q + dq, self.low, self.high)
        data.qpos[at] = q
        engine.mj_kinematics(self.model, data)
        return q, float(np.linalg.norm(pose[:3] - data.site_xpos[site]))
