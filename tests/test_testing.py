"""Each broken world is a push world with one method bent: f(world, original, *arguments)."""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from djepa.errors import DjepaError
from djepa.testing import PROMISES, BrokenPromiseError, check_world
from djepa.worlds.push import PushWorld
from djepa.worlds.starts import initial_state


def bend(**bent: Callable[..., Any]) -> PushWorld:
    """A push world whose methods go through the given functions."""

    def method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        original = getattr(PushWorld, name)
        return lambda self, *args: function(self, partial(original, self), *args)

    return type("Bent", (PushWorld,), {n: method(n, f) for n, f in bent.items()})()


def put(array: np.ndarray, index: Any, value: Any) -> np.ndarray:
    array = array.copy()
    array[index] = value
    return array


def count(world: Any) -> int:
    world.calls = getattr(world, "calls", 0) + 1
    return world.calls


def restore_and_run(world, restore, state):
    restore(state)
    world.step([0.0, 0.0])


def restore_without_a_copy(world, restore, state):
    restore(state)
    world._state = np.asarray(state, dtype=np.float64)


def execute_into_one_array(world, execute, state, controls):
    states = execute(state, controls)
    out = vars(world).setdefault("out", {}).setdefault(states.shape, states)
    out[...] = states
    return out


def execute_and_move(world, execute, state, controls):
    states = execute(state, controls)
    world.restore(states[-1, -1])
    return states


def execute_and_forget_contacts(world, execute, state, controls):
    """The ten numbers are put back; the engine's memory of contacts is not."""
    states = execute(state, controls)
    world.restore(world.snapshot())
    return states


def execute_blows_up(world, execute, state, controls):
    """Only short rollouts do, so that states to start from can be drawn."""
    states = execute(state, controls)
    return put(states, (-1, -1, 0), np.inf) if len(controls[0]) < 8 else states


def weaker(execute, state, controls):
    """Computes in the type it is given, and so in other digits for float32."""
    return execute(state, controls * controls.dtype.type(0.7))


def judge_and_wrap_the_angle(world, judge, goal, states):
    answer = judge(goal, states)
    states[..., 4] += 2 * np.pi
    return answer


EXACT, SHARED, REPEATS = "restore is exact", "arrays are not shared", "execute repeats itself"
STEPS, FINITE = "execute equals step by step", "states are finite float64"
LIVE, NAN = "execute leaves the live state alone", "controls that are not finite are refused"
JUDGE, SOLVES = "judge sees the final state alone", "a state solves itself but not every goal"
FRAMES, LOOKS = "frames are uint8 and one per state", "different states look different"

BROKEN = [
    (EXACT, {"restore": restore_and_run}),
    (EXACT, {"snapshot": lambda w, snapshot: put(snapshot(), slice(5, 10), 0.0)}),
    (EXACT, {"snapshot": lambda w, snapshot: snapshot().astype("f4").astype("f8")}),
    (SHARED, {"snapshot": lambda w, snapshot: w._state}),
    (SHARED, {"restore": restore_without_a_copy}),
    (SHARED, {"step": lambda w, step, a: [step(a), w._state][1]}),
    (SHARED, {"execute": execute_into_one_array}),
    (FINITE, {"execute": lambda w, execute, s, a: execute(s, a).astype(np.float32)}),
    (FINITE, {"snapshot": lambda w, snapshot: snapshot().tolist()}),
    (FINITE, {"execute": execute_blows_up}),
    (FINITE, {"execute": lambda w, execute, s, a: execute(s, a)[:, 1:]}),
    (REPEATS, {"execute": lambda w, execute, s, a: execute(s, np.tanh(a) / (1 + count(w)))}),
    (REPEATS, {"execute": lambda w, execute, s, a: weaker(execute, s, np.asarray(a))}),
    (
        "candidates do not meet",
        {"execute": lambda w, go, s, a: go(s, np.divide(a, len(a), dtype=float))},
    ),
    (STEPS, {"execute": lambda w, execute, s, a: execute(s, 0.99 * np.array(a, np.float64))}),
    (STEPS, {"execute": lambda w, go, s, a: put(p := go(s, a), np.s_[:, 0], p[:, 1])}),
    (LIVE, {"execute": execute_and_move}),
    (LIVE, {"execute": execute_and_forget_contacts}),
    (NAN, {"step": lambda w, step, a: step(np.nan_to_num(a))}),
    (NAN, {"execute": lambda w, execute, s, a: execute(s, np.nan_to_num(a))}),
    (JUDGE, {"judge": lambda w, judge, g, s: (judge(g, s)[0], judge(g, s)[1] + count(w))}),
    (JUDGE, {"judge": lambda w, judge, g, s: (judge(g, s)[0], judge(g, s)[1] + w.snapshot()[0])}),
    (JUDGE, {"judge": lambda w, judge, g, s: [part.mean() for part in judge(g, s)]}),
    (JUDGE, {"judge": lambda w, judge, g, s: (judge(g, s)[0], judge(g, s)[1] + np.nan)}),
    (JUDGE, {"judge": judge_and_wrap_the_angle}),
    (SOLVES, {"judge": lambda w, judge, g, s: (judge(g, s)[1] >= 0, judge(g, s)[1])}),
    (SOLVES, {"judge": lambda w, judge, g, s: (judge(g, s)[1] < 0, judge(g, s)[1])}),
    (SOLVES, {"judge": lambda w, judge, g, s: (judge(g, s)[0], -judge(g, s)[1])}),
    (FRAMES, {"render": lambda w, render, s, size: render(s, size) / 255}),
    (FRAMES, {"render": lambda w, render, s, size: render(s, 40)}),
    (FRAMES, {"render": lambda w, render, s, size: render(s, size) + np.uint8(np.ndim(s))}),
    (LOOKS, {"render": lambda w, render, s, size: np.zeros_like(render(s, size))}),
]


@pytest.mark.parametrize(("promise", "bent"), BROKEN)
def test_each_broken_promise_is_named(promise, bent):
    with pytest.raises(BrokenPromiseError, match=f"breaks the promise '{promise}': .") as caught:
        check_world(bend(**bent))
    assert caught.value.promise == promise
    assert isinstance(caught.value, DjepaError)
    assert isinstance(caught.value, AssertionError)


def test_the_message_has_the_numbers():
    with pytest.raises(
        BrokenPromiseError, match=r"execute\(\) is float32 \(6, 6, 10\), not float64"
    ):
        check_world(bend(**BROKEN[7][1]))
    with pytest.raises(
        BrokenPromiseError, match=r"\d+ of 10 differ, \[5\] is 0\.0 and not \d+\.\d+"
    ):
        check_world(bend(**BROKEN[1][1]))


@pytest.mark.parametrize(("name", "value"), [("version", "one"), ("rule", None), ("judge", None)])
def test_a_missing_part_is_named(name, value):
    world = type("Less", (PushWorld,), {})()
    setattr(world, name, value)
    with pytest.raises(BrokenPromiseError, match=f"it has every attribute.*`{name}` is {value!r}"):
        check_world(world)


def test_an_error_of_the_world_names_the_promise_too():
    def fail(*_):
        raise KeyError("no brush")

    with pytest.raises(BrokenPromiseError, match=f"{FRAMES}.*KeyError: 'no brush'") as caught:
        check_world(bend(render=fail))
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("shape", ["T", "square"])
def test_the_push_world_keeps_every_promise(shape):
    make = partial(PushWorld, shape)
    assert check_world(make(), factory=make) == PROMISES


def test_given_states_seeds_and_rules():
    world, rng = PushWorld("Z", "push-symmetric.v1"), np.random.default_rng(0)
    states = np.array([initial_state(world, rng) for _ in range(3)])
    for seed in range(3):
        assert check_world(world, states, seed=seed, action_bound=0.5) == PROMISES[:-2]
    with pytest.raises(
        BrokenPromiseError, match=r"`states` is float64 \(1, 10\), not .* \(2, 10\)"
    ):
        check_world(world, states[:1])


class ProcessWorld(PushWorld):
    """Its physics depends on the process it runs in."""

    def step(self, control):
        return super().step(np.asarray(control, np.float64) * (1 - os.getpid() * 1e-9))

    def execute(self, state, controls):
        return super().execute(state, np.asarray(controls, np.float64) * (1 - os.getpid() * 1e-9))


def test_fresh_worlds_and_other_processes_are_compared():
    with pytest.raises(BrokenPromiseError, match="a fresh world agrees"):
        check_world(PushWorld("T"), factory=lambda: PushWorld("L"))
    assert check_world(PushWorld(), factory=lambda: PushWorld()) == PROMISES[:-1]  # not picklable
    with pytest.raises(BrokenPromiseError, match="another process agrees"):
        check_world(ProcessWorld(), factory=ProcessWorld)
