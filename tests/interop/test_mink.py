"""Our inverse kinematics of the PiPER-class arm beside mink's, which solves quadratic programs.

Both are local: they follow the flange from given joints. Targets are the flange poses of random
joints within the limits, so each can be reached. What is found is judged by MuJoCo's kinematics.

Legend: N poses, 6 joints.
"""

from collections.abc import Mapping

import numpy as np
import pytest
from scratch import needs

from djepa.worlds.arms.kinematics import HIGH, JOINTS, LOW, forward, inverse, pose_error
from djepa.worlds.arms.piper import arm_xml, load_mujoco, scene_xml
from djepa.worlds.protocol import Floats

N, STEPS, MOST = 200, 60, 300  # poses; our steps; most of mink's
PLACE, TURN = 1e-3, 1e-2  # m and rad within which a pose counts as reached, as for the device
DAMPING = 1e-2  # of mink's task: of 0, 0.001, 0.01 and 1 one that fails least from near
READY = np.array([0.0, 1.8, -1.4, 0.0, 0.9, 0.0])
NEAR = 0.5  # rad, most that a joint is away from a solution


def problems() -> tuple[Floats, Mapping[str, Floats]]:
    """Poses (N, 4, 4), and joints (N, 6) from which they are searched."""
    rng = np.random.default_rng(0)
    joints = rng.uniform(LOW, HIGH, (N, JOINTS))
    near = np.clip(joints + rng.uniform(-NEAR, NEAR, joints.shape), LOW, HIGH)
    return forward(joints), {"near": near, "ready": np.tile(READY, (N, 1))}


def by_mink(targets: Floats, seeds: Floats) -> Floats:
    """(N, 4, 4), (N, 6) -> joints (N, 6) within the limits."""
    import mink

    model = load_mujoco().MjModel.from_xml_string(scene_xml((arm_xml(),)))
    cost = {"position_cost": 1.0, "orientation_cost": 1.0, "lm_damping": DAMPING}
    task = mink.FrameTask("flange", "site", **cost)
    limits, found = [mink.ConfigurationLimit(model)], []
    for target, seed in zip(targets, seeds, strict=True):
        arm = mink.Configuration(model, q=np.concatenate([seed, np.zeros(model.nq - JOINTS)]))
        task.set_target(mink.SE3.from_matrix(target))
        for _ in range(MOST):
            move = mink.solve_ik(arm, [task], 1.0, "daqp", damping=1e-6, limits=limits)
            arm.integrate_inplace(move, 1.0)
            if np.abs(task.compute_error(arm)).max() < PLACE / 100:
                break
        found.append(arm.q[:JOINTS].copy())
    return np.array(found)


def flanges(joints: Floats) -> Floats:
    """(N, 6) -> (N, 4, 4) by MuJoCo."""
    mujoco = load_mujoco()
    model = mujoco.MjModel.from_xml_string(scene_xml((arm_xml(),)))
    data, frames = mujoco.MjData(model), np.tile(np.eye(4), (len(joints), 1, 1))
    for frame, angles in zip(frames, joints, strict=True):
        data.qpos[:JOINTS] = angles
        mujoco.mj_kinematics(model, data)
        frame[:3, :3] = data.site("flange").xmat.reshape(3, 3)
        frame[:3, 3] = data.site("flange").xpos
    return frames


def together(one: Floats, other: Floats) -> Floats:
    """Two rows of frames (N, 4, 4) -> (N,): whether they are the same pose."""
    away = pose_error(one, other)
    return (np.linalg.norm(away[:, :3], axis=1) < PLACE) & (
        np.linalg.norm(away[:, 3:], axis=1) < TURN
    )


def compared() -> dict[str, dict[str, Floats]]:
    """Where the search begins -> solver -> joints (N, 6)."""
    targets, seeds = problems()
    return {
        name: {"ours": inverse(targets, seed, steps=STEPS)[0], "mink": by_mink(targets, seed)}
        for name, seed in seeds.items()
    }


@needs("mink")
@pytest.mark.filterwarnings("ignore")
def test_both_reach_the_same_poses() -> None:
    targets, _ = problems()
    for name, found in compared().items():
        for joints in found.values():
            assert ((joints >= LOW - 1e-9) & (joints <= HIGH + 1e-9)).all()
        ends = {solver: flanges(joints) for solver, joints in found.items()}
        solved = {solver: together(targets, end) for solver, end in ends.items()}
        both = solved["ours"] & solved["mink"]
        least = {"near": 0.95, "ready": 0.5}[name] * N
        assert all(ok.sum() >= least for ok in solved.values())
        assert both.sum() >= {"near": 0.95, "ready": 0.4}[name] * N
        assert together(ends["ours"], ends["mink"])[both].all()
        _, left = inverse(targets, found["ours"], steps=0)  # what ours says of itself
        assert (((left[:, 0] < PLACE) & (left[:, 1] < TURN)) == solved["ours"]).all()


if __name__ == "__main__":
    for name, found in compared().items():
        solved = {s: together(problems()[0], flanges(joints)) for s, joints in found.items()}
        failed = ", ".join(f"{s} {N - ok.sum()}" for s, ok in solved.items())
        neither = N - (solved["ours"] | solved["mink"]).sum()
        print(f"from {name}, failures of {N}: {failed}, both {neither}")
