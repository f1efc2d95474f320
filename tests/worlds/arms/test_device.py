import sys
import time
from collections.abc import Callable

import numpy as np
import pytest

from djepa.errors import DjepaError, MissingExtraError
from djepa.worlds.arms import frames
from djepa.worlds.arms.device import Limits, MujocoBackend, PiperDevice
from djepa.worlds.arms.kinematics import HIGH, LOW, TOOL, end_pose, forward
from djepa.worlds.arms.simulated import HOME, SimulatedArm

pytest.importorskip("mujoco", reason="extra arms")
READY = np.array([0.2, 1.7, -1.4, 0.1, 0.8, -0.3])
SHIFT = np.array([0.02, 0.01, -0.02, 0.0, 0.0, 0.1])
OLD_KEYWORD = pytest.mark.filterwarnings("ignore:The 'bustype':DeprecationWarning")  # the SDK's


def until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)


def device(**limits: object) -> PiperDevice:
    return PiperDevice(MujocoBackend(), Limits(**limits))  # type: ignore[arg-type]


def test_joint_pose_and_gripper_commands_arrive() -> None:
    with device(joint_speed=1e6, tool_speed=1e6, watchdog=10) as arm:
        np.testing.assert_array_equal(arm.move_joints(READY), READY)
        assert arm.grip(0.05) == 0.05
        arm.wait(1.5)
        np.testing.assert_allclose(arm.state().joints, READY, atol=3e-3)
        assert arm.state().opening == pytest.approx(0.05, abs=1e-3)
        pose = end_pose(READY) + SHIFT
        arm.move_pose(pose)
        arm.wait(1.5)
        np.testing.assert_allclose(arm.state().pose, pose, atol=3e-3)


def test_commands_are_cut_to_joint_limits_and_speed() -> None:
    with device(joint_speed=1e6, low=(-9, -9, -9), high=(9, 9, 9)) as arm:
        sent = arm.move_joints(np.full(6, 99.0))
        assert (sent <= HIGH).all()
        assert (sent >= LOW).all()
    with device(joint_speed=0.4) as arm:
        arm.wait(0.1)
        sent = arm.move_joints([*HOME[:5], 1.0])
        assert sent[5] == pytest.approx(0.4 * 0.1, rel=0.02)  # 0.1 s have passed
        np.testing.assert_allclose(sent[:5], HOME[:5])
        assert arm.grip(9.0) == 0.07
    with device(tool_speed=0.2) as arm:
        arm.wait(0.1)
        before = end_pose(HOME)
        sent = arm.move_pose(before + np.array([0, 0, 0.1, 0, 0, 0]))
        assert sent[2] - before[2] == pytest.approx(0.02, rel=0.02)


TURNS = [
    np.eye(6)[3] * 1.2,
    np.eye(6)[4] * -0.8,
    np.eye(6)[5] * 1.5,
    np.array([0, 0.1, 0, 1, 1, 1]),
]


@pytest.mark.parametrize("turn", TURNS)
def test_a_pose_turns_no_joint_faster_than_its_limit(turn: list[float]) -> None:
    with device(joint_speed=0.2, tool_speed=1e6) as arm:
        arm.wait(0.05)
        sent = arm.move_pose(end_pose(np.array(HOME) + turn))  # of these joints, in rad
        most = float(np.abs(arm.target - HOME).max())
        assert most == pytest.approx(0.2 * 0.05, rel=0.02)  # 0.05 s have passed
        np.testing.assert_allclose(sent, end_pose(arm.target), atol=1e-9)
        before = arm.state().joints
        arm.wait(0.05)
        assert np.abs(arm.state().joints - before).max() < 0.011


def test_a_pose_is_reached_in_many_slow_steps() -> None:
    goal = end_pose(np.array(HOME) + 0.3 * np.eye(6)[5])
    with device(joint_speed=0.5, tool_speed=1e6) as arm:
        for _ in range(14):
            arm.wait(0.1)
            before = arm.target
            sent = arm.move_pose(goal)
            assert np.abs(arm.target - before).max() < 0.051
        np.testing.assert_allclose(sent, goal, atol=1e-6)


def test_the_tool_stays_inside_the_workspace() -> None:
    tool = forward(HOME, TOOL)[:3, 3]
    low = (-1.0, -1.0, float(tool[2]) - 0.03)
    with device(joint_speed=1e6, tool_speed=1e6, low=low, high=(1, 1, 1)) as arm:
        down = np.array(HOME) + 0.6 * np.eye(6)[1]  # joint 2 alone lowers the tool
        sent = arm.move_joints(down)
        assert forward(sent, TOOL)[2, 3] == pytest.approx(low[2], abs=1e-4)
        arm.wait(0.4)
        flange = arm.move_pose(end_pose(HOME) - [0, 0, 0.2, 0, 0, 0])
        assert flange[2] == pytest.approx(end_pose(HOME)[2] - 0.03, abs=1e-6)
    with device(low=(5, 5, 5), high=(6, 6, 6)) as arm, pytest.raises(DjepaError, match="workspace"):
        arm.move_joints(HOME)


def test_what_cannot_be_reached_or_is_no_number_is_refused() -> None:
    with device(tool_speed=1e6, high=(9, 9, 9)) as arm:
        with pytest.raises(DjepaError, match="cannot reach"):
            arm.move_pose([2.0, 0, 0.2, 0, 1.5, 0])
        with pytest.raises(DjepaError, match="6 finite numbers"):
            arm.move_joints([np.nan] * 6)
        with pytest.raises(DjepaError, match="6 finite numbers"):
            arm.move_joints([0.0] * 5)
        arm.wait(0.3)
        np.testing.assert_allclose(arm.state().joints, HOME, atol=1e-3)


def test_the_watchdog_holds_an_arm_that_nobody_commands() -> None:
    with device(joint_speed=1e6, watchdog=0.2) as arm:
        arm.move_joints(np.array(HOME) + 1.5 * np.eye(6)[0], speed=0.2)  # takes 2.5 s
        arm.wait(0.15)
        assert not arm.held
        arm.wait(0.35)
        assert arm.held
        there = arm.state().joints[0]
        assert 0.05 < there < 0.5
        arm.wait(1.0)
        assert arm.state().joints[0] == pytest.approx(there, abs=0.02)
        arm.move_joints(arm.state().joints)
        assert not arm.held


def test_an_emergency_stop_refuses_commands_until_resumed() -> None:
    with device(joint_speed=1e6) as arm:
        arm.move_joints(READY)
        arm.wait(0.1)
        arm.stop()
        there = arm.state().joints
        assert arm.state().stopped
        for command in (lambda: arm.move_joints(HOME), lambda: arm.grip(0.0)):
            with pytest.raises(DjepaError, match=r"stopped.*resume"):
                command()
        arm.wait(0.5)
        np.testing.assert_allclose(arm.state().joints, there, atol=0.03)
        arm.resume()
        arm.move_joints(READY)
        arm.wait(0.4)
        np.testing.assert_allclose(arm.state().joints, READY, atol=5e-3)
    with pytest.raises(DjepaError, match="closed"):
        arm.move_joints(HOME)


def test_a_chosen_candidate_is_sent_unchanged_or_not_at_all() -> None:
    from djepa.worlds.arms.send import send
    from djepa.worlds.arms.table import ArmWorld, at_rest, servo_targets

    world = ArmWorld("stack")
    state = at_rest(world, [0.34, 0.0, 0.12], 0.07)
    candidate = np.array([[0.6, -0.4, 0.2, 0.0], [0.0, 0.8, -0.5, 1.0], [-0.2, 0.0, 0.0, 0.0]])
    simulated = SimulatedArm()
    simulated.place(state[:6], 0.07)
    with PiperDevice(MujocoBackend(simulated)) as arm:
        arm.wait(0.25)
        sent = send(arm, candidate, 0.07)
        np.testing.assert_array_equal(sent, servo_targets(state[-7:], candidate[None])[0, 1:])
        arm.wait(0.4)
        end = world.execute(state, candidate[None])[0, -1]  # the world commands the same targets
        np.testing.assert_allclose(arm.state().joints, end[:6], atol=0.01)
    with PiperDevice(MujocoBackend(), Limits(joint_speed=0.05)) as arm:
        arm.move_joints(HOME)
        with pytest.raises(DjepaError, match=r"Control 0 .* cut by the device's limits"):
            send(arm, candidate, 0.0)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from djepa.worlds.arms.firmware import PiperFirmware
    from djepa.worlds.arms.sdk import SdkBackend

    for name, make in (
        ("piper_sdk", SdkBackend),
        ("can", lambda: PiperFirmware("none")),
        ("mujoco", SimulatedArm),
    ):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, None)
            with pytest.raises(MissingExtraError, match=r"djepa\[arms\]"):
                make()


def test_units_of_the_frames() -> None:
    assert frames.to_units(np.array([np.pi / 2, -np.pi]), frames.MILLIDEGREES) == [90_000, -180_000]
    assert frames.to_units(np.array([0.123456, -0.07]), frames.MICROMETRES) == [123_456, -70_000]
    assert frames.pairs([1, -1, 0, 0, 0, 256])[0] == b"\0\0\0\1\xff\xff\xff\xff"
    assert frames.unpair(frames.pairs([1, -1, 0, 0, 0, 256])[2]) == (0, 256)


@pytest.fixture
def bus(request: pytest.FixtureRequest) -> str:
    pytest.importorskip("can", reason="extra arms")
    pytest.importorskip("piper_sdk", reason="extra arms")
    return f"virtual-{request.node.name}"


@OLD_KEYWORD
def test_the_vendors_sdk_drives_the_simulated_arm_over_the_bus(bus: str) -> None:
    from djepa.worlds.arms.firmware import PiperFirmware
    from djepa.worlds.arms.sdk import SdkBackend

    limits = Limits(joint_speed=1e6, tool_speed=1e6, watchdog=60)
    with (
        PiperFirmware(bus) as firmware,
        PiperDevice(SdkBackend(bus, "virtual"), limits) as arm,
    ):
        sent = arm.move_joints(READY)
        np.testing.assert_array_equal(sent, READY)
        arm.grip(0.04)
        until(lambda: np.abs(arm.state().joints - READY).max() < 3e-3)
        until(lambda: abs(arm.state().opening - 0.04) < 1e-3)
        np.testing.assert_allclose(firmware.arm.target, READY, atol=1e-5)  # to 0.001°
        state = arm.state()
        np.testing.assert_allclose(state.pose, end_pose(state.joints), atol=2e-3)

        pose = end_pose(READY) + SHIFT
        arm.move_pose(pose)
        until(lambda: np.abs(arm.state().pose - pose).max() < 3e-3)
        assert firmware.received[0x154] == 1
        assert firmware.received[0x157] == 1

        arm.limits = Limits(joint_speed=0.2, tool_speed=1e6, watchdog=60)
        before = arm.target
        turned = arm.move_pose(end_pose(READY + 1.5 * np.eye(6)[5]))
        period = arm.limits.period  # the most that counts as passed since the last command
        np.testing.assert_allclose(turned, end_pose(arm.target), atol=1e-9)
        assert np.abs(arm.target - before).max() <= 0.2 * period * 1.01
        until(lambda: firmware.received[0x154] == 2)
        arm.limits = limits

        arm.stop()
        until(lambda: arm.state().stopped)
        with pytest.raises(DjepaError, match="resume"):
            arm.move_joints(READY)
        assert firmware.received[0x157] == 1
        arm.resume()
        assert not arm.state().stopped
        arm.move_joints(READY)
        until(lambda: np.abs(arm.state().joints - READY).max() < 3e-3)


@OLD_KEYWORD
def test_over_the_bus_the_watchdog_is_a_thread(bus: str) -> None:
    from djepa.worlds.arms.firmware import PiperFirmware
    from djepa.worlds.arms.sdk import SdkBackend

    limits = Limits(joint_speed=1e6, watchdog=0.2)
    with PiperFirmware(bus) as firmware, PiperDevice(SdkBackend(bus, "virtual"), limits) as arm:
        arm.move_joints(np.array(HOME) + 1.5 * np.eye(6)[0], speed=0.1)  # takes 5 s
        until(lambda: arm.held)
        until(lambda: firmware.received[0x157] == 2)
        assert firmware.arm.target[0] < 1.4


@OLD_KEYWORD
def test_an_arm_that_does_not_answer_is_an_error(bus: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from djepa.worlds.arms import sdk

    monkeypatch.setattr(sdk, "PATIENCE", 0.05)
    with pytest.raises(DjepaError, match="No arm answers"):
        sdk.SdkBackend(bus, "virtual")
