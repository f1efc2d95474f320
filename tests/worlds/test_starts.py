from dataclasses import fields, replace

import numpy as np
import pytest

from djepa.seeds import generator
from djepa.worlds import starts
from djepa.worlds.push import PUSHER_RADIUS, PushWorld
from djepa.worlds.rules import ANGLE_TOLERANCE, POSITION_TOLERANCE, angle_error
from djepa.worlds.shapes import SHAPES
from djepa.worlds.starts import (
    CONTEXT_FRAMES,
    DROPS,
    HISTORY,
    MAX_PENETRATION,
    Start,
    draw_start,
    initial_state,
    replays,
)

HORIZON, CENTRES = 12, 3


def draws(shape: str, behaviour: str, count: int, centres: int = CENTRES):
    """The first kept starts with their centres, and why the others were dropped."""
    world, kept, dropped = PushWorld(shape), [], []
    for attempt in range(20 * count):
        rng = generator("test-starts", shape, behaviour, attempt)
        found = draw_start(world, behaviour, rng, HORIZON, centres)
        dropped.append(found) if isinstance(found, str) else kept.append(found)
        if len(kept) == count:
            break
    return world, kept, dropped


@pytest.fixture(scope="module")
def drawn():
    return {name: draws(*name.split("/"), 12) for name in ("T/push", "Z/weak", "square/push")}


@pytest.fixture(scope="module", params=["T/push", "Z/weak", "square/push"])
def some(request, drawn):
    return drawn[request.param]


def path_from(world: PushWorld, state, controls) -> np.ndarray:
    return world.execute(state, controls[None])[0]


def test_kept_starts_have_their_shapes(some):
    _, kept, dropped = some
    assert len(kept) == 12
    assert set(dropped) <= set(DROPS)
    for start, centres in kept:
        assert start.state.shape == start.goal.shape == (10,)
        assert start.context.shape == (CONTEXT_FRAMES, 10)
        assert start.history.shape == (HISTORY, 2)
        assert centres.shape == (CENTRES, HORIZON, 2)
        assert start.history.dtype == centres.dtype == np.float32
        assert all(getattr(start, name.name).dtype == np.float64 for name in fields(Start)[:3])
        assert (np.abs(centres) <= 1).all()


def test_the_last_context_state_is_the_start(some):
    for start, _ in some[1]:
        assert start.context[-1].tobytes() == start.state.tobytes()


def test_history_leads_along_the_pushers_way_through_the_context(some):
    """The pusher feels no contact, so its part of the context follows from the history."""
    world = some[0]
    for start, _ in some[1]:
        path = path_from(world, start.context[0], start.history)
        columns = [0, 1, 5, 6]
        assert path[[0, 5, 10]][:, columns].tobytes() == start.context[:, columns].tobytes()


def test_kept_starts_pass_every_filter(some):
    world = some[0]
    for start, centres in some[1]:
        assert not world.judge(start.goal, start.state)[0]
        for centre in centres:
            path = path_from(world, start.state, centre)
            moved = np.linalg.norm(path[-1, 2:4] - path[0, 2:4]) > POSITION_TOLERANCE
            assert moved or angle_error(path[-1, 4], path[0, 4]) > ANGLE_TOLERANCE
            assert (world.wall_penetration(path) < MAX_PENETRATION).all()


def test_the_reference_ends_at_the_goal_to_the_last_bit(some):
    world = some[0]
    for start, centres in some[1]:
        assert replays(world, start, centres[0])
        assert path_from(world, start.state, centres[0])[-1].tobytes() == start.goal.tobytes()
        assert not replays(world, start, np.zeros_like(centres[0]))


def test_a_generator_fixes_a_start(drawn):
    _, kept, dropped = draws("T", "push", 4)
    assert dropped == drawn["T/push"][2][: len(dropped)]
    for (start, centres), (other, others) in zip(kept, drawn["T/push"][1], strict=False):
        assert start.identity(PushWorld()) == other.identity(PushWorld())
        assert (centres == others).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_initial_states_are_inside_and_apart(shape):
    world, rng = PushWorld(shape), generator("initial")
    for _ in range(50):
        state = initial_state(world, rng)
        assert not state[5:].any()
        assert world.wall_penetration(state) == 0.0
        gap = np.linalg.norm(state[:2] - world.block_centre(state))
        assert gap > world.shape.girth + PUSHER_RADIUS


def still(x: float, y: float, angle: float = 0.0) -> list[float]:
    return [256, 256, x, y, angle, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("ends", "fault"),
    [
        ((still(200, 200), still(220, 200)), "unmoved"),  # just the tolerance is not enough
        ((still(200, 200), still(220.01, 200)), None),
        ((still(200, 200), still(200, 200, ANGLE_TOLERANCE - 1e-9)), "unmoved"),
        ((still(200, 200), still(200, 200, ANGLE_TOLERANCE + 1e-9)), None),
        ((still(200, 200), still(200, 200, 2 * np.pi + 0.1)), "unmoved"),  # a whole turn
        ((still(200, 200), still(45.01, 200)), None),  # the square's corner is 1.99 in the wall
        ((still(200, 200), still(45, 200)), "wall"),  # and here 2
        ((still(45, 200), still(200, 200)), "wall"),
    ],
)
def test_faults_of_hand_made_paths(ends, fault):
    assert starts._fault(PushWorld("square"), np.array(ends, dtype=np.float64)) == fault


def test_every_reason_of_a_draw_can_happen(monkeypatch):
    world = PushWorld()

    def reason(centres: int = 1, attempt: int | None = None):
        rng = generator("reason", good if attempt is None else attempt)
        return draw_start(world, "push", rng, HORIZON, centres)

    good = next(i for i in range(50) if not isinstance(reason(attempt=i), str))
    with monkeypatch.context() as patch:
        patch.setattr(PushWorld, "judge", lambda *_: (np.True_, np.float64(0)))
        assert reason() == "solved"
    for fault in ("unmoved", "wall"):
        with monkeypatch.context() as patch:
            patch.setattr(starts, "_fault", lambda *_, fault=fault: fault)
            assert reason() == fault
    with monkeypatch.context() as patch:  # the reference is good, no other segment is
        faults = iter([None])
        patch.setattr(starts, "_fault", lambda *_: next(faults, "unmoved"))
        assert reason(centres=2) == "decoy"
    world, [(start, centres)], _ = draws("T", "push", 1)
    assert not replays(world, replace(start, goal=start.goal + 50.0), centres[0])  # "replay"


def test_nature_itself_drops_starts(drawn):
    assert {"unmoved", "wall"} & {reason for _, _, dropped in drawn.values() for reason in dropped}


def test_identity_is_equal_for_equal_starts_only(drawn):
    world, kept, _ = drawn["T/push"]
    start = kept[0][0]
    name = start.identity(world)
    assert len(name) == 32
    assert Start(*(getattr(start, f.name).copy() for f in fields(Start))).identity(world) == name
    names = {name, start.identity(PushWorld("L"))}
    for field in fields(Start):
        array = getattr(start, field.name)
        for i in range(array.size):
            changed = array.copy()
            changed.flat[i] = np.nextafter(changed.flat[i], array.dtype.type(2000))
            names.add(replace(start, **{field.name: changed}).identity(world))
    assert len(names) == 2 + 10 + 10 + 30 + 20
    assert len({s.identity(world) for s, _ in kept}) == len(kept)
