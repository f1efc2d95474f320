import math
import pickle
import re
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from djepa.errors import DjepaError
from djepa.pools import granular_pool
from djepa.pools.granular import BOUND
from djepa.seeds import generator
from djepa.testing import PROMISES, check_world
from djepa.worlds.behaviours import drive
from djepa.worlds.chamfer import MAIN, STRICT, chamfer
from djepa.worlds.granular import (
    PUSH_BOUND,
    VIEW,
    GranularWorld,
    as_state,
    grain_radius,
    places,
    reset_places,
)
from djepa.worlds.granular_behaviours import BEHAVIOURS, Explorer, get_behaviour, region_of
from djepa.worlds.granular_space import BOARD, BOARD_RADIUS, MAX_SETTLE, REST, integrations
from djepa.worlds.granular_starts import attempts, draw_start, initial_state
from djepa.worlds.protocol import World
from djepa.worlds.starts import replays

n = 36
THROUGH = (-2.0, 0.1, 0.3, 0.0)  # a push into the middle of the pile


def pushes(seed: int, K: int = 4, H: int = 3) -> np.ndarray:
    """(K, H, 4) from a ring round the pile to somewhere in it."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, (K, H))
    begin = 1.8 * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    ends = rng.uniform(-0.8, 0.8, (K, H, 2))
    return np.concatenate([begin, ends], axis=-1).astype(np.float32)


@cache
def spread(particles: int = n) -> np.ndarray:
    """A state after some pushes: contacts, gaps, grains that still creep."""
    world = GranularWorld(particles)
    return world.execute(world.snapshot(), pushes(0, K=1, H=4))[0, -1]


def rollouts() -> bytes:
    return GranularWorld(n).execute(spread(), pushes(1)).tobytes()


def gaps(state: np.ndarray) -> float:
    """The smallest distance of two grains' middles."""
    points = places(state)
    apart = np.linalg.norm(points[:, None] - points, axis=-1)
    return float(apart[~np.eye(len(points), dtype=bool)].min())


def kept(world: GranularWorld, seed: int, **options):
    for attempt in range(20):
        found = draw_start(world, "sweep", generator("test-granular", seed, attempt), **options)
        if not isinstance(found, str):
            return found
    raise AssertionError("no start was kept")


def test_it_keeps_every_promise_of_a_world():
    factory = partial(GranularWorld, 16)
    assert check_world(factory(), action_bound=1.5, factory=factory) == PROMISES


def test_it_follows_the_protocol():
    world = GranularWorld(20, "granular-strict.v1")
    assert isinstance(world, World)
    assert (world.name, world.version, world.rule) == ("granular", 1, "granular-strict.v1")
    assert (world.state_size, world.action_size) == (80, 4)
    assert world.execute(world.snapshot(), np.zeros((0, 5, 4))).shape == (0, 6, 80)
    assert world.execute(world.snapshot(), np.zeros((2, 0, 4))).shape == (2, 1, 80)


@pytest.mark.parametrize("particles", [36, 100])
def test_a_rollout_stopped_and_restored_anywhere_goes_on_with_the_same_bits(particles):
    world, controls = GranularWorld(particles), pushes(2, K=1, H=4)
    path = world.execute(spread(particles), controls)[0]
    for h in range(4):
        world.restore(path[h])
        assert world.snapshot().tobytes() == path[h].tobytes()
        rest = np.array([world.step(control) for control in controls[0, h:]])
        assert rest.tobytes() == path[h + 1 :].tobytes()
        again = GranularWorld(particles).execute(path[h], controls[:, h:])[0]
        assert again.tobytes() == path[h:].tobytes()


def test_any_order_of_anything_makes_the_same_bits():
    world, controls = GranularWorld(n), pushes(3, K=8)
    together = world.execute(spread(), controls)
    rng = np.random.default_rng(0)
    for _ in range(3):
        order = rng.permutation(8)
        other = GranularWorld(int(rng.integers(1, 60)))  # memory that others used and gave back
        other.execute(other.snapshot(), pushes(int(rng.integers(99))))
        assert world.execute(spread(), controls[order]).tobytes() == together[order].tobytes()
    for k in range(8):
        alone = world.execute(spread(), controls[k : k + 1])
        assert alone[0].tobytes() == together[k].tobytes()


def test_another_process_makes_the_same_bits():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert pool.submit(rollouts).result() == rollouts()


def test_a_copy_is_the_world_in_the_same_state():
    world = GranularWorld(n)
    world.restore(spread())
    other = pickle.loads(pickle.dumps(world))
    assert other.step(THROUGH).tobytes() == world.step(THROUGH).tobytes()


def test_velocities_are_part_of_the_state():
    world, state = GranularWorld(1), np.array([0.0, 0.0, 1.0, 0.0])
    world.restore(state)
    x, y, vx, vy = world.step((3.0, 3.0, 3.5, 3.0))  # far away: the grain slides and stops
    assert 0.02 < x < 0.12
    assert y == vy == 0.0
    assert 0.0 <= vx < 0.01


def test_the_same_values_give_the_same_bits_whatever_their_type():
    world, controls = GranularWorld(n), pushes(4, K=2)
    want = world.execute(spread(), controls).tobytes()
    assert world.execute(spread(), controls.astype(np.float64)).tobytes() == want
    assert world.execute(spread().tolist(), controls.tolist()).tobytes() == want


@pytest.mark.parametrize("particles", [36, 100, 200])
def test_the_pile_rests_after_every_push(particles):
    world = GranularWorld(particles)
    path = world.execute(spread(particles), pushes(5, K=2))
    speeds = np.abs(path[:, 1:, 2 * particles :])
    assert speeds.max() < 0.02  # of a board that moves at 1.25
    still = world.execute(path[0, -1], np.zeros((1, 1, 4)))[0, -1]  # no push: it only settles
    assert np.abs(places(still) - places(path[0, -1])).max() < 4 * REST
    assert all(gaps(state) > 1.8 * world.radius for state in path[0])


def test_time_is_bounded():
    longest = integrations(math.hypot(2 * PUSH_BOUND, 2 * PUSH_BOUND)) + MAX_SETTLE
    assert longest < 600
    world = GranularWorld(9)
    heap = np.random.default_rng(0).uniform(-0.1, 0.1, (9, 2))  # grains within one another
    world.restore(as_state(heap))
    assert gaps(world.step(np.zeros(4))) > 1.5 * world.radius
    world.restore(as_state(np.zeros((9, 2))))  # all in one place
    assert np.isfinite(world.step(THROUGH)).all()


def test_the_board_clears_what_is_before_it_and_leaves_what_is_beside_it():
    world = GranularWorld(100)
    before = places(world.snapshot())
    after = places(world.step((-2.0, 0.0, 0.0, 0.0)))
    face = BOARD_RADIUS + world.radius
    lane = np.abs(after[:, 1]) < BOARD / 2 - world.radius
    assert after[lane, 0].min() > face - 0.01
    far = np.abs(before[:, 1]) > 0.95
    assert np.array_equal(after[far & (before[:, 0] < -0.5)], before[far & (before[:, 0] < -0.5)])


def test_a_push_beside_the_pile_or_without_length_moves_nothing():
    world = GranularWorld(n)
    before = world.snapshot()
    for push in ((3.0, 3.0, 3.5, 3.5), (0.0, 0.0, 0.0, 0.0), (4.0, -4.0, 4.0, 4.0)):
        assert np.array_equal(places(world.step(push)), places(before))


def test_the_pile_keeps_its_size_whatever_the_number_of_grains():
    for particles in (25, 100, 144, 200):
        pile = reset_places(particles)
        assert pile.shape == (particles, 2)
        np.testing.assert_allclose(pile.mean(axis=0), 0.0, atol=0.05)
        assert 0.9 < np.ptp(pile, axis=0).min() + 2 * grain_radius(particles) < 2.5
        assert gaps(as_state(pile * 0.6)) > 2 * grain_radius(particles)
    assert grain_radius(100) == pytest.approx(0.0644)
    assert PUSH_BOUND == BOUND


@pytest.mark.parametrize(
    ("rule", "threshold"), [("granular.v1", 0.18), ("granular-strict.v1", 0.12)]
)
def test_a_rule_is_met_below_its_threshold_and_not_at_it(rule, threshold):
    """A pile moved as a whole by d, less than half its spacing, is 2 d away from where it was."""
    world = GranularWorld(4, rule)
    goal = as_state(np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0]]))
    for share in (0.0, 0.5, 0.999, 1.001, 3.0):
        state = goal + share * threshold / 2 * np.array([1.0, 0.0] * 4 + [9.0] * 8)
        success, cost = world.judge(goal, state)  # velocities do not count
        assert cost == pytest.approx(share, abs=1e-12)
        assert success == (share < 1)


@pytest.mark.parametrize(
    ("rule", "threshold"), [("granular.v1", MAIN), ("granular-strict.v1", STRICT)]
)
def test_the_boundary_to_the_last_bit(rule, threshold):
    world = GranularWorld(1, rule)
    for distance in (threshold, np.nextafter(threshold, 1), np.nextafter(threshold, 0)):
        success, cost = world.judge(np.zeros(4), [distance / 2, 0.0, 0.0, 0.0])
        assert success == (distance < threshold) == (cost < 1.0)


def test_judge_looks_at_each_state_and_ignores_who_is_who():
    world = GranularWorld(n)
    ends = world.execute(spread(), pushes(6))[:, -1]
    order = np.random.default_rng(0).permutation(n)
    success, cost = world.judge(as_state(places(ends[0])[order]), ends)
    assert cost[0] == 0.0
    assert success.tolist() == (cost < 1).tolist()
    assert cost[1:].min() > 0.0
    np.testing.assert_allclose(cost * MAIN, chamfer(places(ends), places(ends[0])), rtol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 4.0000001, -5.0])
def test_bad_pushes_are_refused_and_change_nothing(bad):
    world = GranularWorld(n)
    before = world.snapshot().tobytes()
    with pytest.raises(DjepaError, match=r"must lie in \[-4, 4\]"):
        world.step([0.0, 0.0, 0.0, bad])
    with pytest.raises(DjepaError, match=r"must lie in \[-4, 4\]"):
        world.execute(world.snapshot(), [[[0.0, bad, 0.0, 0.0]]])
    assert world.snapshot().tobytes() == before


def test_bad_shapes_states_and_names_are_refused():
    world = GranularWorld(n)
    for controls in (np.zeros((3, 4)), np.zeros((1, 3, 2)), np.zeros(4)):
        with pytest.raises(DjepaError, match="must have shape"):
            world.execute(world.snapshot(), controls)
    for state in (np.zeros(143), np.zeros((1, 144))):
        with pytest.raises(DjepaError, match="144 numbers"):
            world.restore(state)
    for value in (np.nan, 101.0):
        with pytest.raises(DjepaError, match="finite and within"):
            world.restore(np.full(144, value))
    with pytest.raises(DjepaError, match="144 finite numbers each, got shape"):
        world.judge(np.zeros(10), world.snapshot())
    with pytest.raises(DjepaError, match="got NaN"):
        world.judge(np.full(144, np.nan), world.snapshot())
    with pytest.raises(DjepaError, match=r"Did you mean 'granular\.v1'"):
        GranularWorld(n, "granular.v2")
    for particles in (0, 1001, 10.0, True):
        with pytest.raises(DjepaError, match="particles must be"):
            GranularWorld(particles)


@pytest.mark.parametrize("name", [*BEHAVIOURS, "explorer"])
def test_a_seed_fixes_a_segment(name):
    world = GranularWorld(n)

    def segment(seed: int) -> np.ndarray:
        rng = generator("test", name, seed)
        hand = Explorer(world, rng) if name == "explorer" else get_behaviour(name, world, rng)
        world.restore(spread())
        states, taken = drive(world, hand, 6)
        assert np.array_equal(states, world.execute(spread(), taken[None])[0])
        assert np.abs(taken).max() <= PUSH_BOUND
        return taken

    assert segment(1).tobytes() == segment(1).tobytes()
    assert segment(1).tobytes() != segment(2).tobytes()


def test_an_unknown_behaviour_or_goal_is_refused():
    rng = generator("test")
    with pytest.raises(DjepaError, match="Did you mean 'gather'"):
        get_behaviour("gathr", GranularWorld(n), rng)
    with pytest.raises(DjepaError, match="Did you mean 'shaped'"):
        draw_start(GranularWorld(n), "sweep", rng, goal="shape")


@pytest.mark.parametrize("goal", ["reached", "shaped"])
def test_starts(goal):
    world = GranularWorld(n)
    start, centres = kept(world, 3, goal=goal, centres=3)
    assert centres.shape == (3, 5, 4)
    assert centres.dtype == np.float32
    assert start.context.shape == (3, 144)
    assert start.history.shape == (2, 4)
    again = world.execute(start.context[0], start.history[None])[0]
    assert again.tobytes() == start.context.tobytes()
    assert start.context[-1].tobytes() == start.state.tobytes()
    assert chamfer(places(start.state), places(start.goal)) >= MAIN
    assert np.abs(places(start.context)).max() <= VIEW
    assert len({segment.tobytes() for segment in centres}) == 3
    if goal == "reached":
        assert replays(world, start, centres[0])
        assert world.judge(start.goal, world.execute(start.state, centres[:1])[0, -1])[1] == 0.0
    else:
        assert not start.goal[72:].any()
    other, _ = kept(world, 3, goal=goal, centres=3)
    assert other.identity(world) == start.identity(world)
    assert start.identity(world) != kept(world, 4, goal=goal, centres=3)[0].identity(world)


def test_all_rules_share_their_starts():
    a, b = (kept(GranularWorld(n, rule), 5)[0] for rule in ("granular.v1", "granular-strict.v1"))
    assert a.state.tobytes() == b.state.tobytes()
    assert a.goal.tobytes() == b.goal.tobytes()


def test_attempts_make_a_pool_and_come_nearer_to_the_goal():
    world = GranularWorld(n)
    nearer = []
    for seed in range(4):
        start, _ = kept(world, seed)
        replay = attempts(world, start, generator("test-attempts", seed))
        assert replay.shape == (20, 4)
        pool = granular_pool(replay, "s", "g", 5)
        np.testing.assert_array_equal(pool.actions[0], replay[5:10])
        costs = world.judge(start.goal, world.execute(start.state, pool.actions[:1])[:, -1])[1]
        nearer.append(costs[0] < world.judge(start.goal, start.state)[1])
    assert sum(nearer) >= 3


def test_a_region_leaves_strays_out():
    points = np.vstack([np.random.default_rng(0).uniform(-1, 1, (98, 2)), [[9, 9], [-9, 9]]])
    region = region_of(points)
    np.testing.assert_allclose(region.centre, 0.0, atol=0.15)
    assert region.half.max() < 1.1


def test_the_reset_pile_is_a_little_out_of_line():
    world = GranularWorld(n)
    first, second = (initial_state(world, generator("test", seed)) for seed in (1, 2))
    assert 0 < np.abs(first - second).max() < world.radius
    assert gaps(first) > 2 * world.radius


def test_the_example_of_the_page_runs():
    page = Path(__file__).parents[2] / "docs/granular-world.md"
    code = re.search(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert code
    names = {}
    exec(code.group(1), names)
    assert names["states"].shape == (4, 6, 400)
    assert names["frames"].shape == (4, 6, 112, 112, 3)
    assert (names["cost"] > 0).all()


def test_who_executes_does_not_wait_for_torch():
    code = "import sys, djepa.worlds.granular_starts; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_world_of_two_kinds_of_goals_draws_both() -> None:
    """And one kind alone draws nothing for it: starts of old are what they were."""
    kinds = set()
    for seed in range(8):
        both = GranularWorld(9, goals=("reached", "shaped"))
        drawn = draw_start(both, "sweep", generator("test-kinds", seed))
        rng = generator("test-kinds", seed)
        kind = ("reached", "shaped")[int(rng.integers(2))]
        alone = draw_start(GranularWorld(9), "sweep", rng, goal=kind)
        if isinstance(drawn, str) or isinstance(alone, str):
            assert drawn == alone
            continue
        kinds.add(kind)
        assert np.array_equal(drawn[0].goal, alone[0].goal)
    assert kinds == {"reached", "shaped"}
    with pytest.raises(DjepaError, match="Unknown goal"):
        draw_start(GranularWorld(9, goals=("made",)), "sweep", generator("test-kinds", 0))
