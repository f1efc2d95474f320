import numpy as np
import pytest

from djepa.errors import DjepaError
from djepa.worlds.arms.kinematics import (
    HIGH,
    LOW,
    TOOL,
    ZERO_OFFSET,
    end_pose,
    forward,
    from_euler,
    inverse,
    to_euler,
    to_frame,
)
from djepa.worlds.arms.piper import Mount, arm_xml, scene_xml

mujoco = pytest.importorskip("mujoco", reason="extra arms")


def random_joints(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(LOW, HIGH, (count, 6))


@pytest.mark.parametrize("offset", [0, 1])
def test_forward_kinematics_are_the_vendors(offset: int) -> None:
    vendor = pytest.importorskip("piper_sdk.kinematics.piper_fk", reason="extra arms")
    fk = vendor.C_PiperForwardKinematics(dh_is_offset=offset)
    joints = random_joints(50)
    theirs = np.array([fk.CalFK(list(q))[-1] for q in joints])
    ours = end_pose(joints, zero=ZERO_OFFSET) if offset else end_pose(joints)
    assert np.abs(ours[:, :3] * 1000 - theirs[:, :3]).max() < 1e-6  # mm
    np.testing.assert_allclose(
        from_euler(ours[:, 3:]), from_euler(np.deg2rad(theirs[:, 3:])), atol=1e-6
    )


def test_the_mujoco_arm_is_within_2_mm_of_the_vendors_kinematics() -> None:
    vendor = pytest.importorskip("piper_sdk.kinematics.piper_fk", reason="extra arms")
    fk = vendor.C_PiperForwardKinematics(dh_is_offset=0)
    model = mujoco.MjModel.from_xml_string(scene_xml((arm_xml(),)))
    data = mujoco.MjData(model)
    for q in random_joints(50, seed=1):
        data.qpos[:6] = q
        mujoco.mj_kinematics(model, data)
        x, y, z, *angles = fk.CalFK(list(q))[-1]
        assert np.linalg.norm(data.site("flange").xpos * 1000 - [x, y, z]) < 2.0
        turn = data.site("flange").xmat.reshape(3, 3)
        np.testing.assert_allclose(turn, from_euler(np.deg2rad(angles)), atol=1e-6)


def test_euler_angles_turn_about_the_fixed_axes_x_then_y_then_z() -> None:
    from scipy.spatial.transform import Rotation

    angles = np.random.default_rng(0).uniform(-1.5, 1.5, (20, 3))
    np.testing.assert_allclose(
        from_euler(angles), Rotation.from_euler("xyz", angles).as_matrix(), atol=1e-12
    )
    np.testing.assert_allclose(to_euler(from_euler(angles)), angles, atol=1e-9)
    upright = from_euler([0.3, np.pi / 2, 0.0])
    np.testing.assert_allclose(from_euler(to_euler(upright)), upright, atol=1e-7)


def test_inverse_kinematics_find_their_way_back() -> None:
    rng = np.random.default_rng(2)
    joints = rng.uniform(LOW + 0.3, HIGH - 0.3, (40, 6))
    seed = np.clip(joints + rng.uniform(-0.15, 0.15, joints.shape), LOW, HIGH)
    target = forward(joints, TOOL)
    found, left = inverse(target, seed, TOOL, steps=40)
    assert np.median(left[:, 0]) < 1e-5
    np.testing.assert_allclose(
        left[:, 0], np.linalg.norm((forward(found, TOOL) - target)[:, :3, 3], axis=-1)
    )
    assert ((found >= LOW) & (found <= HIGH)).all()
    np.testing.assert_array_equal(found[:1], inverse(target[:1], seed[:1], TOOL, steps=40)[0])
    _, far = inverse(to_frame([2.0, 0, 0.2, 0, 0, 0]), joints[0], TOOL)
    assert far[0] > 1.0


def test_two_arms_stand_in_one_scene() -> None:
    arms = tuple(
        arm_xml(Mount(side, (0.0, y, 0.0), yaw=0.5, layer=n))
        for n, (side, y) in enumerate((("left_", 0.3), ("right_", -0.3)))
    )
    model = mujoco.MjModel.from_xml_string(scene_xml(arms))
    assert (model.nq, model.nu) == (16, 14)
    assert model.body_mass[model.body("left_base").id :].sum() / 2 == pytest.approx(4.2, abs=0.05)
    with pytest.raises(DjepaError, match="layer"):
        arm_xml(Mount(layer=9))


def test_the_servos_reach_a_commanded_pose_and_hold_it() -> None:
    model = mujoco.MjModel.from_xml_string(scene_xml((arm_xml(),)))
    data = mujoco.MjData(model)
    target = np.array([0.3, 1.6, -1.2, 0.1, 0.9, -0.2, 0.05])
    data.ctrl[:] = target
    mujoco.mj_step(model, data, 1000)
    np.testing.assert_allclose(data.qpos[:6], target[:6], atol=2e-3)
    assert data.qpos[6:8].sum() == pytest.approx(0.05, abs=1e-3)
    np.testing.assert_allclose(data.qvel, 0.0, atol=1e-3)
