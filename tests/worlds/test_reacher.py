import copy
import pickle
import sys
import warnings
from dataclasses import fields, replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

pytest.importorskip("mujoco", reason="the extra 'mujoco' is not installed")
pytest.importorskip("dm_control", reason="the extra 'mujoco' is not installed")

from djepa.errors import DjepaError, MissingExtraError
from djepa.seeds import generator
from djepa.testing import PROMISES, check_world
from djepa.worlds import reacher_mujoco
from djepa.worlds.behaviours import drive
from djepa.worlds.protocol import World
from djepa.worlds.reacher import DT, TOLERANCE, WRIST_STOP, ReacherWorld, joints, reacher_v1
from djepa.worlds.reacher_behaviours import BEHAVIOURS, Explorer, get_behaviour
from djepa.worlds.reacher_starts import DROPS, draw_start, initial_state
from djepa.worlds.starts import CONTEXT_FRAMES, HISTORY, Start, replays

MAKERS = BEHAVIOURS | {"explorer": Explorer}  # the last one is for training data alone
FINITE = st.floats(allow_nan=False, allow_infinity=False, width=64)
AT_STOP = np.array([0.3, 2.7, 1.0, 4.0])  # the solver works from the first control on


@pytest.fixture(scope="module")
def suite():
    """dm_control's own reacher."""
    with warnings.catch_warnings(action="ignore"):  # it looks for a display
        from dm_control import suite as library
    return library.load("reacher", "hard", task_kwargs={"random": 0})


def library_path(physics, start, controls, repeat: int = 1) -> np.ndarray:
    """(H + 1, 4) states as the library makes them."""
    with physics.reset_context():
        physics.set_state(start)
    states = [physics.get_state().copy()]
    for control in controls:
        physics.set_control(control)
        physics.step(repeat)
        states.append(physics.get_state().copy())
    return np.array(states)


def rollouts(count: int = 60) -> list[tuple[np.ndarray, np.ndarray]]:
    """Starts and (25, 2) controls; many of them run into a stop of the wrist."""
    rng = generator("reacher-rollouts")
    found = []
    for i in range(count):
        start = np.append(initial_state(None, rng)[:2], rng.normal(0.0, 3.0, 2))
        controls = rng.uniform(-1, 1, (25, 2))
        found.append((start, np.repeat(controls[:1], 25, axis=0) if i % 2 else controls))
    return found


def random_controls(K: int = 8, H: int = 25) -> np.ndarray:
    return generator("reacher-controls").uniform(-1, 1, (K, H, 2)).astype(np.float32)


@pytest.mark.parametrize("repeat", [1, 2])
def test_it_keeps_every_promise(repeat):
    world = ReacherWorld(repeat=repeat)
    assert isinstance(world, World)
    assert (world.name, world.version, world.rule) == ("reacher", 1, "reacher.v1")
    states = [AT_STOP, -AT_STOP, np.zeros(4)]
    assert check_world(world, states) == PROMISES[:-2]
    assert check_world(ReacherWorld(), factory=ReacherWorld) == PROMISES
    assert world.execute(AT_STOP, np.zeros((0, 3, 2))).shape == (0, 4, 4)
    assert world.execute(AT_STOP, np.zeros((2, 0, 2))).tolist() == [[AT_STOP.tolist()]] * 2


def test_the_recorded_trajectory():
    """The end of it as dm_control 1.0.41 with MuJoCo 3.8.1 made it; the wrist meets its stop."""
    h = np.arange(25)
    controls = np.stack([np.sin(0.5 * h), np.cos(0.3 * h)], axis=-1).astype(np.float32)
    path = ReacherWorld().execute([0.3, 2.6, 1.0, 2.0], controls[None])[0]
    assert path[:, 1].max() > WRIST_STOP
    end = [0.49227798778450466, 2.71609412636384, -2.5285949418229903, 3.5426219096936635]
    assert np.abs(path[-1] - end).max() < 1e-12


def test_a_control_lasts_as_long_as_in_dm_control(suite):
    assert suite.control_timestep() == suite.physics.timestep() == DT


def test_it_agrees_with_dm_control(suite):
    """To the last bit until the wrist meets a stop, and to 1e-12 after."""
    world, stopped = ReacherWorld(), 0
    for start, controls in rollouts():
        theirs, ours = (
            library_path(suite.physics, start, controls),
            world.execute(start, [controls]),
        )
        free = np.abs(theirs[:, 1]).max() < WRIST_STOP
        stopped += not free
        assert np.abs(ours[0] - theirs).max() < 1e-12
        assert not free or ours[0].tobytes() == theirs.tobytes()
    assert stopped > 5


@pytest.mark.parametrize("repeat", [1, 2])
def test_it_is_dm_control_without_the_warm_start_to_the_last_bit(suite, repeat):
    options, world = suite.physics.model.opt, ReacherWorld(repeat=repeat)
    before = int(options.disableflags)
    options.disableflags = world._model.opt.disableflags
    try:
        for start, controls in rollouts(20):
            theirs = library_path(suite.physics, start, controls, repeat)
            assert world.execute(start, [controls])[0].tobytes() == theirs.tobytes()
    finally:
        options.disableflags = before


@given(state=arrays(np.float64, 4, elements=FINITE))
@settings(max_examples=100, deadline=None)
def test_restore_is_exact_for_any_state(state):
    world = ReacherWorld()
    world.restore(AT_STOP)
    world.step([1.0, 1.0])
    world.restore(state)
    assert world.snapshot().tobytes() == state.tobytes()
    world.execute(AT_STOP, random_controls(1, 3))
    assert world.snapshot().tobytes() == state.tobytes()


def test_nothing_that_ran_before_leaks_into_a_rollout():
    """Not even the solver's warm start, which counts while the wrist is at its stop."""
    controls = random_controls()
    fresh = ReacherWorld().execute(AT_STOP, controls)
    world = ReacherWorld()
    for other in (-AT_STOP, np.zeros(4), AT_STOP + 0.1):
        world.execute(other, -controls)
        world.restore(other)
        world.step([1.0, 1.0])
        world._data.qacc_warmstart[:] = 1e3
        assert world.execute(AT_STOP, controls).tobytes() == fresh.tobytes()
        world._data.qacc_warmstart[:] = -1e3
        world.restore(AT_STOP)
        assert world.step(controls[0, 0]).tobytes() == fresh[0, 1].tobytes()
    order = np.random.default_rng(0).permutation(len(controls))
    assert world.execute(AT_STOP, controls[order]).tobytes() == fresh[order].tobytes()


def test_four_numbers_are_the_whole_state():
    """A rollout cut anywhere and restored goes on with the same bits, also at a stop."""
    world, controls = ReacherWorld(), random_controls(2)
    for path, taken in zip(world.execute(AT_STOP, controls), controls, strict=True):
        for h in range(25):
            rest = ReacherWorld().execute(path[h], taken[None, h:])[0]
            assert rest.tobytes() == path[h:].tobytes()


def test_a_copy_goes_on_alike():
    world = ReacherWorld(repeat=2)
    world.restore(AT_STOP)
    world.step([0.2, 0.9])
    for other in (copy.deepcopy(world), pickle.loads(pickle.dumps(world))):
        assert (other.repeat, other.rule) == (2, "reacher.v1")
        assert other.snapshot().tobytes() == world.snapshot().tobytes()
    assert other.step([0.5, 0.5]).tobytes() == world.step([0.5, 0.5]).tobytes()


def test_a_repeated_control_is_two_controls():
    controls = random_controls(3, 6)
    once = ReacherWorld().execute(AT_STOP, np.repeat(controls, 2, axis=1))
    assert ReacherWorld(repeat=2).execute(AT_STOP, controls).tobytes() == once[:, ::2].tobytes()


@pytest.mark.parametrize(
    ("error", "solved"),
    [
        ((0.0, 0.0), True),
        ((np.nextafter(0.05, 0), 0.0), True),
        ((0.05, 0.0), False),
        ((0.0, np.nextafter(0.05, 0)), True),
        ((0.0, -0.05), False),
        ((np.nextafter(0.05, 0), -np.nextafter(0.05, 0)), True),  # the larger, not the sum
    ],
)
def test_the_rule_at_its_boundary(error, solved):
    success, cost = ReacherWorld().judge(np.zeros(4), [*error, 7.0, -7.0])  # velocities are free
    assert success == solved == (cost < 1)
    assert cost == np.abs(error).max() / TOLERANCE


@given(turns=st.integers(-50, 50), error=st.floats(-0.2, 0.2), at=st.floats(-3.2, 3.2))
@settings(max_examples=100, deadline=None)
def test_the_shoulder_wraps_and_the_wrist_does_not(turns, error, at):
    goal = np.array([at, 0.5, 0, 0])
    near = reacher_v1(goal, np.array([at + error + 2 * np.pi * turns, 0.5, 0, 0]))
    assert near == pytest.approx(abs(error) / TOLERANCE, abs=1e-10)
    over = reacher_v1(goal, np.array([at, 0.5 + 2 * np.pi, 0, 0]))
    assert over == pytest.approx(2 * np.pi / TOLERANCE)


def test_the_shoulder_wraps_at_its_boundary():
    world, goal = ReacherWorld(), [np.pi - 0.02, 0, 0, 0]
    assert world.judge(goal, [-np.pi + 0.0299, 0, 0, 0])[0]
    assert not world.judge(goal, [-np.pi + 0.0301, 0, 0, 0])[0]


def test_the_largest_cost_of_two_stops_is_the_way_between_them():
    stops = np.array([[0, WRIST_STOP, 0, 0], [0, -WRIST_STOP, 0, 0]])
    assert reacher_v1(stops[0], stops[1]) == pytest.approx(2 * WRIST_STOP / TOLERANCE)


@pytest.mark.parametrize("behaviour", MAKERS)
def test_a_seed_fixes_a_segment_that_moves_and_is_stored_as_it_was(behaviour):
    world = ReacherWorld()

    def segment(seed: int):
        rng = generator("segment", behaviour, seed)
        world.restore(initial_state(world, rng))
        return drive(world, MAKERS[behaviour](world, rng), 40)

    for seed in range(5):
        states, controls = segment(seed)
        again = segment(seed)
        assert (states.tobytes(), controls.tobytes()) == tuple(part.tobytes() for part in again)
        assert controls.dtype == np.float32
        assert (np.abs(controls) <= 1.0).all()
        assert np.abs(states - states[0]).max() > TOLERANCE
        assert world.execute(states[0], controls[None])[0].tobytes() == states.tobytes()
    assert (segment(0)[1] != segment(1)[1]).any()


def test_reach_arrives_where_it_aims():
    world, near = ReacherWorld(), 0
    for seed in range(20):
        hand = get_behaviour("reach", world, generator("aim", seed))
        world.restore(np.zeros(4))
        hand.act(world.snapshot())
        aim, hand._left = hand._target.copy(), 1000
        states, _ = drive(world, hand, 100)
        near += bool(np.abs(states[:, :2] - aim).max(axis=1).min() < 0.1)
    assert near >= 15


def draws(behaviour: str, count: int, centres: int = 3) -> list[tuple[Start, np.ndarray]]:
    world = ReacherWorld()
    found = (draw_start(world, behaviour, generator(behaviour, i), 25, centres) for i in range(99))
    return list(islice((entry for entry in found if not isinstance(entry, str)), count))


@pytest.fixture(scope="module", params=BEHAVIOURS)
def kept(request):
    return draws(request.param, 10)


def test_kept_starts_are_whole(kept):
    world = ReacherWorld()
    assert len(kept) == 10
    for start, centres in kept:
        assert start.context.shape == (CONTEXT_FRAMES, 4)
        assert start.history.shape == (HISTORY, 2)
        assert centres.shape == (3, 25, 2)
        assert start.history.dtype == centres.dtype == np.float32
        assert not world.judge(start.goal, start.state)[0]
        ends = world.execute(start.state, centres)[:, -1]
        assert ends[0].tobytes() == start.goal.tobytes()
        assert not any(world.judge(end, start.state)[0] for end in ends)
        assert replays(world, start, centres[0])
        path = world.execute(start.context[0], start.history[None])[0]  # all of it, to the last bit
        assert path[::5].tobytes() == start.context.tobytes()
        assert start.context[-1].tobytes() == start.state.tobytes()


def test_a_generator_fixes_a_start(kept):
    world = ReacherWorld()
    names = {start.identity(world) for start, _ in kept}
    assert len(names) == len(kept)
    assert {start.identity(world) for b in BEHAVIOURS for start, _ in draws(b, 10)} >= names


def test_identity_changes_with_every_number(kept):
    start, names = kept[0][0], set()
    for field in fields(Start):
        array = getattr(start, field.name)
        for i in range(array.size):
            changed = array.copy()
            changed.flat[i] = np.nextafter(changed.flat[i], array.dtype.type(2000))
            names.add(replace(start, **{field.name: changed}).identity(ReacherWorld()))
    names |= {start.identity(world) for world in (ReacherWorld(), ReacherWorld(repeat=2))}
    assert len(names) == 2 + 4 + 4 + 12 + 20


def test_every_reason_of_a_draw_can_happen(monkeypatch):
    world, reasons = ReacherWorld(), set()
    monkeypatch.setattr(ReacherWorld, "judge", lambda *_: (np.True_, 0.0))
    reasons.add(draw_start(world, "swing", generator("reason"), 25))
    answers = iter([False])  # the reference is good, no other segment is
    monkeypatch.setattr(ReacherWorld, "judge", lambda *_: (next(answers, True), 0.0))
    reasons.add(draw_start(world, "swing", generator("reason"), 25, centres=2))
    assert reasons | {"replay"} == set(DROPS)


def test_initial_states_are_drawn_as_dm_control_draws_them():
    states = np.array([initial_state(None, generator("initial", i)) for i in range(400)])
    assert not states[:, 2:].any()
    assert np.abs(states[:, :2]).max(axis=0) == pytest.approx([np.pi, WRIST_STOP], rel=0.05)
    assert np.abs(joints(states)[:, 1]).max() < 0.241


def test_bad_input_is_refused_and_changes_nothing(tmp_path, monkeypatch):
    world = ReacherWorld()
    for bad in (np.nan, np.inf, 1.0000001):
        with pytest.raises(DjepaError, match=r"must lie in \[-1, 1\]"):
            world.step([0.0, bad])
    for controls in (np.zeros((3, 2)), np.zeros((1, 3, 3))):
        with pytest.raises(DjepaError, match="must have shape"):
            world.execute(np.zeros(4), controls)
    with pytest.raises(DjepaError, match="4 numbers"):
        world.restore(np.zeros(10))
    with pytest.raises(DjepaError, match="must be finite"):
        world.restore([np.nan] * 4)
    with pytest.raises(DjepaError, match="4 finite numbers"):
        world.judge(np.zeros(3), np.zeros((2, 4)))
    with pytest.raises(DjepaError, match=r"Unknown success rule 'reacher\.v2'"):
        ReacherWorld("reacher.v2")
    with pytest.raises(DjepaError, match="repeat must be"):
        ReacherWorld(repeat=0)
    assert not world.snapshot().any()
    monkeypatch.chdir(tmp_path)  # MuJoCo writes a log of what it finds unstable
    world.restore([0.0, 26.0, -13.0, -26.0])
    with pytest.raises(DjepaError, match="came apart"):
        world.execute(world.snapshot(), np.zeros((1, 25, 2)))
    world.restore([0.0, 1.0, 1e9, 1e9])
    with pytest.raises(DjepaError, match="came apart"):
        world.step([0.0, 0.0])
    fresh = ReacherWorld().execute(AT_STOP, random_controls(1))
    assert world.execute(AT_STOP, random_controls(1)).tobytes() == fresh.tobytes()


@pytest.mark.parametrize("missing", ["mujoco", "dm_control"])
def test_a_missing_extra_is_named(missing, monkeypatch):
    reacher_mujoco.load_model.cache_clear()
    with monkeypatch.context() as patch:
        if missing == "mujoco":
            patch.setitem(sys.modules, "mujoco", None)
        else:
            patch.setattr(reacher_mujoco.importlib.util, "find_spec", lambda name: None)
        with pytest.raises(MissingExtraError, match=r"djepa\[mujoco\]"):
            ReacherWorld()
    assert ReacherWorld().step([0.0, 0.0]).shape == (4,)
