"""Two arms at a table: exact restore, experts that succeed, rules, kinematics, pictures."""

from functools import partial

import numpy as np
import pytest

pytest.importorskip("mujoco")

from djepa.errors import DjepaError
from djepa.seeds import generator
from djepa.testing import check_world
from djepa.worlds.bimanual.experts import HORIZON, expert
from djepa.worlds.bimanual.ik import to_joints, tool_poses
from djepa.worlds.bimanual.rules import goal_state
from djepa.worlds.bimanual.scene import TASKS
from djepa.worlds.bimanual.world import BimanualWorld
from djepa.worlds.protocol import Floats


def solved(task: str, seed: int = 0) -> tuple[BimanualWorld, Floats, Floats, Floats]:
    world = BimanualWorld(task)
    start = world.initial_state(generator("test", task, seed))
    commands, poses = expert(world, start)
    return world, world.execute(start, commands[None])[0], commands, poses


@pytest.mark.parametrize("task", TASKS)
def test_the_expert_succeeds_and_the_start_does_not(task: str) -> None:
    world, states, commands, _ = solved(task)
    success, cost = world.judge(goal_state(world, states[0]), states)
    assert commands.shape == (HORIZON, 14)
    assert success.any()
    assert not success[:10].any()
    assert (cost < 1).tolist() == success.tolist()


def test_the_world_keeps_every_promise() -> None:
    world, states, _, _ = solved("handover block")
    made = partial(BimanualWorld, "handover block")
    try:
        world.render(states[0], 48)
    except DjepaError as error:
        pytest.skip(str(error))
    assert "restore is exact" in check_world(world, states[[0, 24]], factory=made)


@pytest.mark.parametrize("task", TASKS)
def test_an_episode_stopped_anywhere_goes_on_with_the_same_bits(task: str) -> None:
    _, states, commands, _ = solved(task, 1)
    for at in (11, 23):
        rest = BimanualWorld(task).execute(states[at], commands[None, at:])[0]
        assert rest.tobytes() == states[at:].tobytes()


def test_an_opened_gripper_is_needed_to_have_handed_over() -> None:
    world, states, _, _ = solved("handover block")
    goal = goal_state(world, states[0])
    assert world.judge(goal, goal)[0]
    shut = goal.copy()
    shut[14:16] = 0.0  # fingers of the right arm
    assert not world.judge(goal, shut)[0]
    aside = goal.copy()
    aside[16] += 0.031  # the block, in x
    assert not world.judge(goal, aside)[0]
    aside[16] -= 0.002
    assert world.judge(goal, aside)[0]


def test_joint_commands_reach_the_poses_they_are_made_for() -> None:
    world, states, commands, poses = solved("handover block")
    again, missed = to_joints(world, states[0, -14:], poses)
    assert np.array_equal(again, commands)
    reached = tool_poses(world, commands).reshape(-1, 2, 8)
    asked = poses.reshape(-1, 2, 8)
    gap = np.linalg.norm(reached[..., :3] - asked[..., :3], axis=-1)
    assert np.allclose(gap, missed)
    assert np.median(gap) < 1e-3
    assert (reached[..., 7] == asked[..., 7]).all()


def test_end_effector_commands_are_followed_as_joints_are() -> None:
    world, states, _, poses = solved("handover block")
    again = world.execute(states[0], poses[None])[0]
    assert again.tobytes() == states.tobytes()
    world.restore(states[7])
    joints, _ = to_joints(world, states[7, -14:], poses[7:8])
    assert np.array_equal(world.step(poses[7]), world.execute(states[7], joints[None])[0, 1])
    with pytest.raises(DjepaError, match=r"got \(1, 3, 15\)"):
        world.execute(states[0], np.zeros((1, 3, 15)))


def test_the_arm_is_where_the_published_frames_say() -> None:
    """Modified Denavit-Hartenberg, multiplied out for the left arm, whose base is turned."""
    from djepa.worlds.arms.kinematics import ALPHA, ZERO, A, D
    from djepa.worlds.bimanual.arm import TOOL
    from djepa.worlds.bimanual.scene import MOUNTS

    world = BimanualWorld()
    joints = np.array([0.4, 1.1, -0.9, 0.5, 0.6, -0.7])
    frame = np.eye(4)
    for i, angle in enumerate(joints + ZERO):
        c, s, a = np.cos(angle), np.sin(angle), ALPHA[i]
        frame = frame @ np.array(
            [
                [c, -s, 0, A[i]],
                [s * np.cos(a), c * np.cos(a), -np.sin(a), -np.sin(a) * D[i]],
                [s * np.sin(a), c * np.sin(a), np.cos(a), np.cos(a) * D[i]],
                [0, 0, 0, 1],
            ]
        )
    x, y, z = (frame @ [0, 0, TOOL, 1])[:3]
    command = np.tile(np.append(joints, 1.0), 2)
    found = tool_poses(world, command)[:3]
    assert np.allclose(found, np.add(MOUNTS[0].place, (-y, x, z)), atol=1e-6)


def test_bad_input_is_named() -> None:
    with pytest.raises(DjepaError, match="task"):
        BimanualWorld("juggle")
    world = BimanualWorld()
    with pytest.raises(DjepaError, match="shape"):
        world.step(np.zeros(13))
    with pytest.raises(DjepaError, match="camera"):
        world.view(world.snapshot(), "ceiling")


def test_pictures_do_not_depend_on_what_another_task_drew_before() -> None:
    worlds = [BimanualWorld("grab roller"), BimanualWorld("handover block")]
    try:
        first = [world.view(world.snapshot(), "head", 60, 80) for world in worlds]
    except DjepaError as error:
        pytest.skip(str(error))
    for _ in range(2):
        for world, before in zip(worlds, first, strict=True):
            assert np.array_equal(world.view(world.snapshot(), "head", 60, 80), before)
