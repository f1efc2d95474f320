import platform
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.numpy import load_file

from djepa.errors import DjepaError
from djepa.worlds.protocol import World
from djepa.worlds.push import SUBSTEPS, PushWorld, pusher_path
from djepa.worlds.shapes import SHAPES

LIBRARY = load_file(Path(__file__).parents[1] / "goldens" / "push_library.safetensors")
X86 = platform.machine().lower() in ("x86_64", "amd64")
needs_x86 = pytest.mark.skipif(not X86, reason="the recorded bits are those of x86-64")
every_shape = pytest.mark.parametrize("shape", SHAPES)

FINITE = st.floats(allow_nan=False, allow_infinity=False, width=64)
STATES = arrays(np.float64, 10, elements=FINITE)


def recorded(shape: str, count: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    keys = (f"{shape}.start", f"{shape}.controls", f"{shape}.states")
    return list(zip(*(LIBRARY[key][:count] for key in keys), strict=True))


def step_through(world: PushWorld, start: np.ndarray, controls: np.ndarray) -> np.ndarray:
    world.restore(start)
    return np.array([world.snapshot(), *(world.step(control) for control in controls)])


def random_controls(seed: int, K: int = 8, H: int = 10) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (K, H, 2)).astype(np.float32)


def rollouts(shape: str) -> list[bytes]:
    world, starts = PushWorld(shape), LIBRARY[f"{shape}.start"][:4]
    return [world.execute(start, random_controls(5)).tobytes() for start in starts]


@needs_x86
@every_shape
def test_execute_equals_the_library_to_the_last_bit(shape):
    world = PushWorld(shape)
    for start, controls, states in recorded(shape, 240):
        path = world.execute(start, controls[None])[0]
        assert path[0].tobytes() == start.tobytes()
        assert path[1:].tobytes() == states.tobytes()


@needs_x86
@every_shape
def test_step_equals_the_library_to_the_last_bit(shape):
    world = PushWorld(shape)
    for start, controls, states in recorded(shape, 240):
        assert step_through(world, start, controls)[1:].tobytes() == states.tobytes()


def test_the_recordings_hold_contacts_walls_and_turns():
    world, moved, walls = PushWorld("T"), 0, 0
    for start, _, states in recorded("T", 240):
        moved += bool(np.abs(states[-1, 2:5] - start[2:5]).max() > 1.0)
        walls += bool(world.wall_penetration(states).max() > 0.0)
    assert moved > 120
    assert walls > 0


@given(state=STATES, control=arrays(np.float32, 2, elements=st.floats(-1, 1, width=32)))
@settings(max_examples=150, deadline=None)
def test_restore_is_exact_for_any_state(state, control):
    world = PushWorld("Z")
    world.restore(state)
    assert world.snapshot().tobytes() == state.tobytes()
    world.restore(LIBRARY["Z.start"][0])
    world.step(control)
    world.restore(state)
    assert world.snapshot().tobytes() == state.tobytes()
    assert world.execute(LIBRARY["Z.start"][1], control[None, None]).shape == (1, 2, 10)
    assert world.snapshot().tobytes() == state.tobytes()


def test_arrays_given_and_returned_are_the_users_own():
    world, state = PushWorld(), LIBRARY["T.start"][0].copy()
    world.restore(state)
    state += 1.0
    world.snapshot()[:] = 0.0
    assert world.snapshot().tobytes() == LIBRARY["T.start"][0].tobytes()
    world.step([0.1, 0.2])[:] = 0.0
    assert world.snapshot().any()


@every_shape
def test_rollouts_repeat_after_others(shape):
    world = PushWorld(shape)
    first = rollouts(shape)
    for start, controls, _ in recorded(shape, 4):
        world.execute(start, controls[None])
        step_through(world, start, controls)
    assert rollouts(shape) == first


def test_another_process_makes_the_same_bits():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert pool.submit(rollouts, "T").result() == rollouts("T")


def test_candidates_do_not_meet():
    world, start = PushWorld("+"), LIBRARY["+.start"][3]
    controls = random_controls(1, K=12)
    together = world.execute(start, controls)
    order = np.random.default_rng(0).permutation(12)
    assert world.execute(start, controls[order]).tobytes() == together[order].tobytes()
    for k in range(12):
        assert world.execute(start, controls[k : k + 1])[0].tobytes() == together[k].tobytes()


@every_shape
@pytest.mark.parametrize("seed", range(3))
def test_execute_equals_step_by_step(shape, seed):
    """Also from states in mid-flight, with velocities and contacts."""
    world, controls = PushWorld(shape), random_controls(seed, K=4)
    start = LIBRARY[f"{shape}.states"][seed, 12]
    for k, path in enumerate(world.execute(start, controls)):
        assert path.tobytes() == step_through(world, start, controls[k]).tobytes()


def test_execute_leaves_the_live_state_and_its_contacts_alone():
    world = PushWorld()
    for start, controls, states in recorded("T", 40):
        want = step_through(world, start, controls)[1:]
        world.restore(start)
        for h in range(len(controls)):
            assert world.step(controls[h]).tobytes() == want[h].tobytes()
            if h % 8 == 0:
                world.execute(states[h], random_controls(h, K=1, H=1))


@given(
    start=st.integers(0, 239),
    controls=arrays(np.float32, (3, 4, 2), elements=st.floats(-1, 1, width=32)),
)
@settings(max_examples=50, deadline=None)
def test_the_same_values_give_the_same_bits_whatever_their_type(start, controls):
    world, state = PushWorld(), LIBRARY["T.start"][start]
    want = world.execute(state, controls.astype(np.float64)).tobytes()
    assert world.execute(state, controls).tobytes() == want
    assert world.execute(state.tolist(), controls.tolist()).tobytes() == want
    path = step_through(world, state, controls[0])
    assert path.tobytes() == step_through(world, state, controls[0].astype(np.float64)).tobytes()


@given(
    start=arrays(np.float64, 10, elements=st.floats(-600, 600)),
    controls=arrays(np.float64, (2, 3, 2), elements=st.floats(-1, 1)),
)
@settings(max_examples=60, deadline=None)
def test_pusher_path_is_the_engines_own(start, controls):
    world = PushWorld("I")
    places, velocities = pusher_path(start, controls)
    assert places.shape == velocities.shape == (2, 3 * SUBSTEPS, 2)
    for k in range(2):
        path = step_through(world, start, controls[k])[1:]
        assert places[k, SUBSTEPS - 1 :: SUBSTEPS].tobytes() == path[:, 0:2].tobytes()
        assert velocities[k, SUBSTEPS - 1 :: SUBSTEPS].tobytes() == path[:, 5:7].tobytes()


def test_it_follows_the_protocol():
    world = PushWorld("L", "push-symmetric.v1")
    assert isinstance(world, World)
    assert (world.name, world.version, world.rule) == ("push", 1, "push-symmetric.v1")
    assert world.execute(world.snapshot(), np.zeros((0, 3, 2))).shape == (0, 4, 10)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1.0000001, -2.0])
def test_bad_controls_are_refused_and_change_nothing(bad):
    world = PushWorld()
    before = world.snapshot().tobytes()
    with pytest.raises(DjepaError, match=r"must lie in \[-1, 1\]"):
        world.step([0.0, bad])
    with pytest.raises(DjepaError, match=r"must lie in \[-1, 1\]"):
        world.execute(world.snapshot(), [[[0.0, 0.0], [bad, 0.0]]])
    assert world.snapshot().tobytes() == before


def test_bad_shapes_and_states_are_refused():
    world = PushWorld()
    for controls in (np.zeros((3, 2)), np.zeros((1, 3, 3)), np.zeros(2)):
        with pytest.raises(DjepaError, match="must have shape"):
            world.execute(world.snapshot(), controls)
    for state in (np.zeros(9), np.zeros((1, 10))):
        with pytest.raises(DjepaError, match="10 numbers"):
            world.restore(state)
    with pytest.raises(DjepaError, match="must be finite"):
        world.restore([np.nan] * 10)
