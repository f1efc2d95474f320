"""Does a world keep its promises? `check_world` tries each one and names the first that is broken.

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
    "execute runs from a snapshot",
    "states are finite float64",
    "execute begins at the start",
    "restore is exact",
    "arrays are not shared",
    "execute repeats itself",
    "execute equals step by step",
    "candidates do not meet",
    "execute leaves the live state alone",
    "the type of controls does not matter",
    "controls that are not finite are refused",
    "a state solves itself",
    "judge answers once per state",
    "judge reads the final state and nothing else",
    "judge can say no",
    "frames are uint8, one per state",
    "different states look different",
    "a fresh world agrees",  # with a factory
    "another process agrees",  # with a factory that can be pickled
)
K, H = 6, 5  # enough for contacts, few enough for a unit test


class BrokenPromiseError(DjepaError, AssertionError):
    """A world does not keep `promise`; the message says with which numbers."""

    def __init__(self, promise: str, detail: str) -> None:
        super().__init__(f"The world breaks the promise '{promise}': {detail}.")
        self.promise = promise


def check_world(
    world: World,
    states: npt.ArrayLike | None = None,
    seed: int = 0,
    action_bound: float = 1.0,
    factory: Callable[[], World] | None = None,
) -> tuple[str, ...]:
    """Try the promises of the `World` protocol and return those kept; the first broken one raises.

    `states` (n, S) are where the checks start; give clearly different ones, or a rule and pictures
    cannot be told from constant ones. Without them, seeded controls in [-action_bound,
    action_bound] are executed from the live state, which is lost either way. `factory` makes a
    fresh world; one that can be pickled is also called in a new process, so a script that gives it
    needs its `if __name__ == "__main__":`.
    """
    trial = _Trial(world, states, generator("check-world", seed), action_bound, factory)
    tried = PROMISES if _can_be_pickled(factory) else PROMISES[: -2 if factory is None else -1]
    for promise in tried:
        try:
            getattr(trial, promise.replace(",", "").replace(" ", "_"))()
        except AssertionError as broken:
            raise BrokenPromiseError(promise, str(broken)) from None
        except Exception as error:
            raise BrokenPromiseError(promise, f"{type(error).__name__}: {error}") from error
    return tried


class _Trial:
    """One world under trial, the states (n, S) to start from and the controls (K, H, A)."""

    def __init__(self, world: World, states: Any, rng: Any, bound: float, factory: Any) -> None:
        self.world, self.states, self.factory = world, states, factory
        self.draw = lambda *size: rng.uniform(-bound, bound, size).astype("f4").astype("f8")

    def run(self, i: int = 0) -> Any:
        """Execute all controls from state i."""
        return self.world.execute(self.states[i].copy(), self.controls.copy())

    def stir(self, i: int = 0) -> None:
        """Bring the live state elsewhere."""
        self.world.restore(self.states[i])
        self.world.step(self.controls[-1, 0])

    def it_has_every_attribute(self) -> None:
        for name, kind in World.__annotations__.items():
            value = getattr(self.world, name, None)
            _require(isinstance(value, kind), f"`{name}` is {value!r}, not of type {kind.__name__}")
        for name in ("restore", "snapshot", "step", "execute", "judge", "render"):
            _require(callable(getattr(self.world, name, None)), f"the method `{name}` is missing")

    def execute_runs_from_a_snapshot(self) -> None:
        A, S = self.world.action_size, self.world.state_size
        self.controls = self.draw(K, H, A)
        if self.states is None:  # a control that is held goes far, so the ends lie apart
            held = np.repeat(self.draw(5, 1, A), 12, axis=1)
            self.states = np.asarray(self.world.execute(self.world.snapshot(), held))[:, -1]
        self.states = np.array(self.states, dtype=np.float64)
        shape = self.states.shape
        _require(shape[1:] == (S,) and shape[0] > 1, f"states are {shape}, not (n > 1, {S})")

    def states_are_finite_float64(self) -> None:
        self.world.restore(self.states[0])
        S, one = self.world.state_size, self.controls[:1, :1]
        _require_array("snapshot()", self.world.snapshot(), np.float64, (S,))
        _require_array("step()", self.world.step(one[0, 0]), np.float64, (S,))
        _require_array("execute()", self.run(), np.float64, (K, H + 1, S))
        single = self.world.execute(self.states[0], one)
        _require_array("execute() of one control", single, np.float64, (1, 2, S))

    def execute_begins_at_the_start(self) -> None:
        for i, state in enumerate(self.states):
            _same(self.run(i)[:, 0], np.tile(state, (K, 1)), f"the first states from state {i}")

    def restore_is_exact(self) -> None:
        for i, state in enumerate(np.concatenate([self.states, self.run()[:, -1]])):
            for between in (lambda: None, self.stir, self.run):
                between()
                self.world.restore(state.copy())
                _same(self.world.snapshot(), state, f"snapshot() after restore() of state {i}")

    def arrays_are_not_shared(self) -> None:
        given, controls = self.states[0].copy(), self.controls.copy()
        self.world.restore(given)
        _scribble(given, self.world.snapshot())
        _same(self.world.snapshot(), self.states[0], "live state, others' arrays overwritten")
        array = self.world.step(controls[0, 0])
        given, copy = self.world.snapshot(), np.array(array)
        _scribble(array)
        _same(self.world.snapshot(), copy, "live state, the array from step() overwritten")
        self.world.step(controls[1, 0])
        _same(given, copy, "an earlier snapshot, looked at after a step")
        given = self.states[0].copy()
        array = self.world.execute(given, controls)
        copy = np.array(array)
        self.run(1)
        _same(array, copy, "earlier states, looked at after another execute()")
        _same(given, self.states[0], "the state given to execute()")
        _same(controls, self.controls, "the controls given to execute()")
        _scribble(array, given, controls)
        _same(self.run(), copy, "execute(), the arrays of an earlier one overwritten")

    def execute_repeats_itself(self) -> None:
        before = [self.run(i) for i in range(len(self.states))]
        for i in reversed(range(len(self.states))):
            self.stir(i - 1)
            _same(self.run(i), before[i], f"execute() from state {i}, after other rollouts")

    def execute_equals_step_by_step(self) -> None:
        for i, state in enumerate(self.states):
            for k, path in enumerate(self.run(i)):
                self.world.restore(state)
                for h, control in enumerate(self.controls[k]):
                    where = f"after control {h} of candidate {k} from state {i}"
                    _same(self.world.step(control), path[h + 1], f"step() {where}")
                    _same(self.world.snapshot(), path[h + 1], f"snapshot() {where}")

    def candidates_do_not_meet(self) -> None:
        for i, state in enumerate(self.states):
            together, turned = self.run(i), self.world.execute(state, self.controls[::-1])
            _same(turned[::-1], together, f"execute() from state {i} in the opposite order")
            for k in range(K):
                alone = self.world.execute(state, self.controls[k : k + 1])
                _same(alone[0], together[k], f"candidate {k} from state {i}, executed alone")

    def execute_leaves_the_live_state_alone(self) -> None:
        for i, state in enumerate(self.states):
            self.world.restore(state)
            quiet = [self.world.step(control) for control in self.controls[0]]
            self.world.restore(state)
            for h, control in enumerate(self.controls[0]):
                _same(self.world.step(control), quiet[h], f"step {h} with execute() in between")
                self.run(i - 1)
                _same(self.world.snapshot(), quiet[h], f"snapshot() after step {h} and execute()")

    def the_type_of_controls_does_not_matter(self) -> None:
        for same in (self.controls.astype(np.float32), self.controls.tolist()):
            states = self.world.execute(self.states[0].tolist(), same)
            _same(states, self.run(), f"execute() with float32 or list, a {type(same).__name__}")

    def controls_that_are_not_finite_are_refused(self) -> None:
        for bad in (np.full_like(self.controls, value) for value in (np.nan, np.inf)):
            self.world.restore(self.states[0])
            _require_error("step()", self.world.step, bad[0, 0])
            _require_error("execute()", self.world.execute, self.states[0], bad)

    def a_state_solves_itself(self) -> None:
        for i, goal in enumerate(self.states):
            success, cost = self.world.judge(goal, goal)
            _require(bool(success), f"state {i} does not, at cost {cost}")
            lowest = np.min(self.world.judge(goal, self.states)[1])
            _require(bool(cost <= lowest), f"state {i} costs itself {cost}, another one {lowest}")

    def judge_answers_once_per_state(self) -> None:
        goal, states = self.states[0], self.run()
        answer = self.world.judge(goal, states)
        _require_array("success", answer[0], np.bool_, (K, H + 1))
        _require_array("cost", answer[1], np.float64, (K, H + 1))
        for k, h in np.ndindex(K, H + 1):
            for alone, together in zip(self.world.judge(goal, states[k, h]), answer, strict=True):
                _same(alone, together[k, h], f"success or cost of state [{k}, {h}], judged alone")

    def judge_reads_the_final_state_and_nothing_else(self) -> None:
        goal, states = self.states[0].copy(), self.states.copy()
        before = self.world.judge(goal, states)
        _same(goal, self.states[0], "the goal given to judge()")
        _same(states, self.states, "the states given to judge()")
        for i in range(len(states)):
            self.stir(i)
            for again, answer in zip(self.world.judge(goal, states), before, strict=True):
                _same(again, answer, "success or cost, judged again")

    def judge_can_say_no(self) -> None:
        said = [self.world.judge(goal, self.states)[0] for goal in self.states]
        _require(not np.all(said), "every state solves every goal; give `states` that lie apart")

    def frames_are_uint8_one_per_state(self) -> None:
        frames = self.world.render(self.states[None], 48)
        _require_array("render()", frames, np.uint8, (1, len(self.states), 48, 48, 3))
        for i, state in enumerate(self.states):
            _same(self.world.render(state, 48), frames[0, i], f"frame of state {i}, drawn alone")

    def different_states_look_different(self) -> None:
        costs = np.array([self.world.judge(goal, self.states)[1] for goal in self.states])
        i, j = np.unravel_index(costs.argmax(), costs.shape)
        a, b = self.world.render(self.states[[i, j]], 64)
        _require(bool((a != b).any()), f"{i} and {j}, {costs[i, j]} in cost apart, do not")

    def a_fresh_world_agrees(self) -> None:
        here = np.stack([self.run(i) for i in range(len(self.states))])
        _same(_execute(self.factory, self.states, self.controls), here, "execute()")

    def another_process_agrees(self) -> None:
        here = _execute(self.factory, self.states, self.controls)
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            there = pool.submit(_execute, self.factory, self.states, self.controls).result()
        _same(there, here, "execute()")


def _execute(factory: Callable[[], World], states: Floats, controls: Floats) -> Floats:
    world = factory()
    return np.stack([world.execute(state, controls) for state in states])


def _can_be_pickled(factory: Callable[[], World] | None) -> bool:
    try:
        return factory is not None and bool(pickle.dumps(factory))
    except Exception:  # pickle has no one error for this
        return False


def _require(kept: bool, detail: str) -> None:
    if not kept:
        raise AssertionError(detail)


def _require_array(name: str, array: Any, dtype: Any, shape: tuple[int, ...]) -> None:
    found = (str(getattr(array, "dtype", type(array).__name__)), np.shape(array))
    _require(found == (np.dtype(dtype).name, shape), f"{name} is {found}, not {dtype.__name__}")
    _require(bool(np.isfinite(array).all()), f"{name} holds values that are not finite")
