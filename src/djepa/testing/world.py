"""Conformance of a world: `check_world` tests each promise and names the first broken one.

Legend: n states, K candidates, H controls, A action width, S numbers in a state.
"""

import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.errors import DjepaError
from djepa.seeds import generator
from djepa.worlds.protocol import Floats, World

PROMISES = (  # each is a method of _Trial
    "it has every attribute",
    "states are finite float64",
    "restore is exact",
    "execute repeats itself",
    "arrays are not shared",
    "candidates do not meet",
    "execute equals step by step",
    "execute leaves the live state alone",
    "controls that are not finite are refused",
    "judge sees the final state alone",
    "a state solves itself but not every goal",
    "frames are uint8 and one per state",
    "different states look different",
    "a fresh world agrees",  # with a factory
    "another process agrees",  # with a factory that can be pickled
)
K, H = 6, 5  # enough for contacts, few enough for a unit test


class BrokenPromiseError(DjepaError, AssertionError):
    """A broken `promise`; the message gives the numbers."""

    def __init__(self, promise: str, detail: str) -> None:
        super().__init__(f"It breaks the promise '{promise}': {detail}.")
        self.promise = promise


def check_world(
    world: World,
    states: npt.ArrayLike | None = None,
    seed: int = 0,
    action_bound: float = 1.0,
    factory: Callable[[], World] | None = None,
) -> tuple[str, ...]:
    """Try the promises of the `World` protocol and return those kept; the first broken one raises.

    The checks start from distinct `states` (n, S); without them, random controls up to
    ±`action_bound` run from the live state, which is lost in any case. `factory` makes a new world;
    if it can be pickled, in a new process too: a script then needs `if __name__ == "__main__":`.
    """
    trial = _Trial(world, states, generator("check-world", seed), action_bound, factory)
    tried = PROMISES if _can_be_pickled(factory) else PROMISES[: -2 if factory is None else -1]
    return try_each(trial, tried)


def try_each(trial: object, promises: tuple[str, ...]) -> tuple[str, ...]:
    """Call the trial's method of each promise; the first that raises is the broken one."""
    for promise in promises:
        try:
            getattr(trial, promise.replace(" ", "_"))()
        except Exception as error:
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            raise BrokenPromiseError(promise, f"{kind}{error}") from error
    return promises


class _Trial:
    """One world under test, the states (n, S) to start from and the controls (K, H, A)."""

    def __init__(self, world: World, states: Any, rng: Any, bound: float, factory: Any) -> None:
        self.world, self.states, self.factory = world, states, factory
        self.rng, self.bound = rng, bound

    def run(self, i: int = 0) -> Any:
        return self.world.execute(self.states[i].copy(), self.controls.copy())

    def stir(self, i: int = 0) -> None:
        self.world.restore(self.states[i])
        self.world.step(self.controls[-1, 0])

    def it_has_every_attribute(self) -> None:
        methods = ("restore", "snapshot", "step", "execute", "judge", "render")
        for name, kind in (World.__annotations__ | dict.fromkeys(methods, Callable)).items():
            value = getattr(self.world, name, None)
            _require(isinstance(value, kind), f"`{name}` is {value!r}, not of type {kind.__name__}")

    def states_are_finite_float64(self) -> None:
        A, S = self.world.action_size, self.world.state_size
        drawn = self.rng.uniform(-self.bound, self.bound, (K, H, A))
        self.controls = drawn.astype(np.float32).astype(np.float64)
        if self.states is None:  # a held control leads far, so that the ends are distinct
            held = np.repeat(self.controls[:, :1], 8, axis=1)
            self.states = self.world.execute(self.world.snapshot(), held)[:, -1]
        self.states = np.array(self.states, dtype=np.float64)
        _array("`states`", self.states, (max(len(self.states), 2), S))
        self.world.restore(self.states[0])
        _array("snapshot()", self.world.snapshot(), (S,))
        _array("step()", self.world.step(self.controls[0, 0]), (S,))
        _array("execute()", self.run(), (K, H + 1, S))

    def restore_is_exact(self) -> None:
        for i, state in enumerate(np.concatenate([self.states, self.run()[:, -1]])):
            for between in (lambda: None, self.stir, self.run):
                between()
                self.world.restore(state.copy())
                _same(self.world.snapshot(), state, f"snapshot() after restore() of state {i}")

    def execute_repeats_itself(self) -> None:
        before = [self.run(i) for i in range(len(self.states))]
        for i in reversed(range(len(self.states))):
            self.stir(i - 1)
            _same(self.run(i), before[i], f"execute() from state {i}, after other rollouts")
            single = self.world.execute(self.states[i].tolist(), self.controls.astype(np.float32))
            _same(single, before[i], f"execute() from state {i}, the same controls in float32")

    def arrays_are_not_shared(self) -> None:
        given, controls = self.states[0].copy(), self.controls.copy()
        self.world.restore(given)
        early = self.world.snapshot()
        _spoil(given, self.world.snapshot())
        _same(self.world.snapshot(), self.states[0], "live state, an array outside overwritten")
        live = _spoil(self.world.step(controls[0, 0]))
        _same(self.world.snapshot(), live, "live state, the array from step() overwritten")
        path = self.world.execute(early, controls)
        copy = path.copy()
        self.run(1)
        _same(path, copy, "states from execute(), looked at after another one")
        _same(early, self.states[0], "an earlier snapshot, after step() and execute()")
        _same(controls, self.controls, "the controls given to execute()")
        _spoil(path)
        _same(self.run(), copy, "execute(), an earlier result overwritten")

    def candidates_do_not_meet(self) -> None:
        for i, state in enumerate(self.states):
            together, turned = self.run(i), self.world.execute(state, self.controls[::-1])
            _same(turned[::-1], together, f"execute() from state {i} in the opposite order")
            for k in range(K):
                alone = self.world.execute(state, self.controls[k : k + 1])
                _same(alone[0], together[k], f"candidate {k} from state {i}, executed alone")

    def execute_equals_step_by_step(self) -> None:
        for i, state in enumerate(self.states):
            for k, path in enumerate(self.run(i)):
                self.world.restore(state)
                live = np.array([state, *map(self.world.step, self.controls[k])])
                _same(path, live, f"execute() of candidate {k} from state {i}")
                _same(path[-1], self.world.snapshot(), f"end of candidate {k} from state {i}")

    def execute_leaves_the_live_state_alone(self) -> None:
        for i, state in enumerate(self.states):
            self.world.restore(state)
            quiet = [self.world.step(control) for control in self.controls[0]]
            self.world.restore(state)
            for h, control in enumerate(self.controls[0]):
                _same(self.world.step(control), quiet[h], f"step {h} with execute() in between")
                self.run(i - 1)
                _same(self.world.snapshot(), quiet[h], f"snapshot() after step {h} and execute()")

    def controls_that_are_not_finite_are_refused(self) -> None:
        bad = np.full_like(self.controls, np.nan)
        for name, inputs in (("step", (bad[0, 0],)), ("execute", (self.states[0], bad))):
            try:
                getattr(self.world, name)(*inputs)
            except Exception:
                continue
            raise AssertionError(f"{name}() takes NaN for a control; it must raise")

    def judge_sees_the_final_state_alone(self) -> None:
        goal, states = self.states[0].copy(), self.run()
        copy, answer = states.copy(), self.world.judge(goal, states)
        _same(np.append(states, goal), np.append(copy, self.states[0]), "the inputs of judge()")
        _array("success", answer[0], (K, H + 1), np.bool_)
        _array("cost", answer[1], (K, H + 1))
        for k, h in np.ndindex(K, H + 1):
            self.stir(h % len(self.states))
            for one, many in zip(self.world.judge(goal, states[k, h]), answer, strict=True):
                _same(one, many[k, h], f"success or cost of state [{k}, {h}], judged alone")

    def a_state_solves_itself_but_not_every_goal(self) -> None:
        answers = [self.world.judge(goal, self.states) for goal in self.states]
        success, costs = (np.array(part) for part in zip(*answers, strict=True))
        own, lowest = costs.diagonal(), costs.min(axis=1)
        _require(success.diagonal().all(), f"own success {success.diagonal()}, own costs {own}")
        _require((own <= lowest).all(), f"own costs {own}, lowest costs {lowest}")
        _require(not success.all(), "every state solves every goal; give `states` that lie apart")

    def frames_are_uint8_and_one_per_state(self) -> None:
        frames = self.world.render(self.states[None], 48)
        _array("render()", frames, (1, len(self.states), 48, 48, 3), np.uint8)
        for i, state in enumerate(self.states):
            _same(self.world.render(state, 48), frames[0, i], f"frame of state {i}, drawn alone")

    def different_states_look_different(self) -> None:
        frames = self.world.render(self.states, 64)
        _require((frames != frames[0]).any(), f"all {len(frames)} states look the same")

    def a_fresh_world_agrees(self) -> None:
        here = np.stack([self.run(i) for i in range(len(self.states))])
        _same(_execute(self.factory, self.states, self.controls), here, "execute()")

    def another_process_agrees(self) -> None:
        here = _execute(self.factory, self.states, self.controls)
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            there = pool.submit(_execute, self.factory, self.states, self.controls)
            _same(there.result(), here, "execute()")


def _execute(factory: Callable[[], World], states: Floats, controls: Floats) -> Floats:
    world = factory()
    return np.stack([world.execute(state, controls) for state in states])


def _can_be_pickled(factory: Callable[[], World] | None) -> bool:
    try:
        return factory is not None and bool(pickle.dumps(factory))
    except Exception:  # pickle raises many types of errors
        return False


def _require(kept: Any, detail: str) -> None:
    if not kept:
        raise AssertionError(detail)


def _array(name: str, array: Any, shape: tuple[int, ...], dtype: Any = np.float64) -> None:
    kind = getattr(array, "dtype", type(array).__name__)
    found, wanted = (kind, np.shape(array)), (np.dtype(dtype), shape)
    _require(found == wanted, "{} is {} {}, not {} {}".format(name, *found, *wanted))
    _require(np.isfinite(array).all(), f"{name} holds values that are not finite")


def _same(got: Any, want: Any, what: str) -> None:
    a, b = np.ascontiguousarray(got), np.ascontiguousarray(want)
    _array(what, np.asarray(got), np.shape(want), b.dtype)
    differs = (a.view(np.uint8) != b.view(np.uint8)).reshape(a.size, -1).any(axis=1)
    i = int(differs.argmax())
    numbers = f"{differs.sum()} of {a.size} differ, [{i}] is {a.flat[i]} and not {b.flat[i]}"
    _require(not differs.any(), f"{what}: {numbers}")


def _spoil(*arrays: Any) -> Any:
    copy = np.array(arrays[0])
    for array in (array for array in arrays if array.flags.writeable):
        array += 1.0
    return copy
