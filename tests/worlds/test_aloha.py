"""gym-aloha's two tasks: exact restore, the environment's own reward, experts, candidates."""

from functools import partial

import numpy as np
import pytest

pytest.importorskip("gym_aloha", reason="the extra 'aloha' is not installed")

from djepa.errors import DjepaError
from djepa.pools.bimanual import targets_of
from djepa.seeds import generator
from djepa.testing import check_world
from djepa.worlds.aloha import HOLD, TASKS, AlohaWorld
from djepa.worlds.aloha_expert import HORIZON, expert
from djepa.worlds.protocol import Floats


def solved(task: str) -> tuple[AlohaWorld, Floats, Floats, Floats]:
    world = AlohaWorld(task)
    start = world.initial_state(generator("test", task))
    commands, poses = expert(world, start)
    return world, world.execute(start, commands[None])[0], commands, poses


@pytest.mark.parametrize("task", TASKS)
def test_the_expert_gets_the_largest_reward_and_an_episode_goes_on_with_the_same_bits(
    task: str,
) -> None:
    world, states, commands, poses = solved(task)
    success, cost = world.judge(world.goal(states[0]), states)
    assert commands.shape == (HORIZON, 14)
    assert targets_of(task, poses).shape == (12,)
    assert states[-1, -1] == 4
    assert success[-1]
    assert not success[:20].any()
    assert ((cost < 1) == success).all()
    rest = AlohaWorld(task).execute(states[17], commands[None, 17:])[0]
    assert rest.tobytes() == states[17:].tobytes()


def test_the_environment_itself_goes_the_same_way_to_the_same_rewards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its own `step`, without its three images a step, which take most of the time."""
    from dm_control.mujoco import Physics

    world, states, commands, _ = solved("transfer cube")
    again = world.initial_state(generator("test", "transfer cube"))
    assert np.array_equal(again, states[0])
    env, last, best = world._env, states[0][-15:-1], 0.0
    world.restore(again)
    monkeypatch.setattr(Physics, "render", lambda *a, **k: np.zeros((1, 1, 3), np.uint8))
    env._reset_next_step = False
    for at, command in enumerate(commands):
        for i in range(1, HOLD + 1):
            step = env.step(last + i / HOLD * (command - last))
            best = max(best, step.reward)
        last = command
        assert best == states[at + 1, -1]
        assert np.array_equal(env.physics.data.qpos, states[at + 1, 1 : 1 + world.positions])


def test_the_world_keeps_every_promise() -> None:
    world, states, _, _ = solved("transfer cube")
    try:
        world.render(states[0], 48)
    except DjepaError as error:
        pytest.skip(str(error))
    made = partial(AlohaWorld, "transfer cube")
    assert "restore is exact" in check_world(world, states[[0, 14, 30]], factory=made)


def test_cameras_differ_in_pictures_alone() -> None:
    world, states, commands, _ = solved("insertion")
    moved = states[0].copy()
    moved[world._physics + 3] += 0.05  # the view from above, turned
    try:
        before, after = (world.view(one, "top", 60, 80) for one in (states[0], moved))
    except DjepaError as error:
        pytest.skip(str(error))
    assert (before != after).any()
    assert np.array_equal(world.view(states[0], "angle"), world.view(moved, "angle"))
    path = world.execute(moved, commands[None, :3])[0]
    assert np.array_equal(path[:, : world._physics], states[:4, : world._physics])


def test_candidates_follow_from_pictures_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import fields

    from djepa.bank.bimanual import Known
    from djepa.models import aloha

    for name, few in (("SHOWN", 32), ("HELD", 8), ("FEW", 16)):
        monkeypatch.setattr(aloha, name, few)
    aloha.fitted.cache_clear()
    world = AlohaWorld("insertion")
    state = world.initial_state(generator("test", "candidates"))
    try:
        known = aloha.propose(world, state)
    except DjepaError as error:
        pytest.skip(str(error))
    finally:
        aloha.fitted.cache_clear()
    assert {field.name for field in fields(Known)} - set(known) == {"number", "identity", "state"}
    assert known["commands"].shape == (17, HORIZON, 14)
    assert known["apart"][0] == 0  # ID 0 is the native chunk
    assert known["visual"][1:].min() < 0.02 < known["visual"][1:].max()  # m: there are offsets
    line = world.places(state)[:, :2]
    gap = np.linalg.norm(known["seen"].reshape(2, 2, 3)[:, 0, :2] - line[::-1], axis=-1)
    assert (gap < 0.05).all()  # m between where the colours say and where socket and peg lie


def test_the_study_has_both_tasks_and_every_population_starts_of_its_own() -> None:
    from djepa.rollout.bimanual import BimanualConfig, outcomes, start_of, world_of
    from djepa.studies.design import Place, Sizes
    from djepa.studies.names import get_design

    design, starts = get_design("aloha"), set()
    assert design.names == list(TASKS)
    for role in ("fit", "calibration", "confirmation", "audit"):
        for case in design.cases(role, Sizes(4, 4, 4, audit=4), Place(None, None)):
            assert isinstance(case.bank, BimanualConfig)
            starts |= {(case.name, start_of(case.bank, i).tobytes()) for i in range(2)}
    assert len(starts) == 16
    world, start = world_of("insertion"), start_of(case.bank, 0)
    found = outcomes(world, start, np.tile(start[-15:-1].astype(np.float32), (1, 2, 1)))
    assert found["success"].tolist() == [False]
    assert found["cost"].tolist() == [4.0]  # the reward that is missing
