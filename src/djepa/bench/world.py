"""How fast worlds execute, against a plain loop over their `step`, in one run.

Legend: N starts, K candidates, H horizon, A action width, S numbers in a state.
"""

import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np

from djepa.bench.measure import Row, Say, in_child, peak_memory, rate
from djepa.errors import DjepaError, MissingExtraError
from djepa.rollout.engine import LocalEngine, usable_cores
from djepa.rollout.execute import BlockWork, CollectConfig, Drawn, draw_block, run_block
from djepa.tasks.task import TASKS, Task, get_task
from djepa.worlds.protocol import Floats, World

WORLDS = tuple(TASKS)
PUSH = "push"  # the world with the most rows; its names go without saying
STARTS = 8  # drawn; fewer of a world that is slow
GROWN = (32, 160)  # starts, between which memory grows
COLLECTED = 10  # times the time of another measurement: workers take a while to start


@dataclass(frozen=True)
class WorldBench:
    """What to measure."""

    worlds: tuple[str, ...] = WORLDS
    seconds: float = 2.0  # given to each measurement
    candidates: int = 63  # of a start; a pool may have fewer

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise DjepaError(f"seconds must be above 0, got {self.seconds}.")
        if self.candidates < 1:
            raise DjepaError(f"candidates must be at least 1, got {self.candidates}.")


@dataclass(frozen=True)
class Ground:
    """A world under measurement, and some of its starts."""

    task: Task
    config: CollectConfig
    world: World
    drawn: list[Drawn]
    each: float  # s, about: to draw, propose and execute one start

    def named(self, what: str) -> str:
        """The name of a row."""
        return what if self.task.name == PUSH else f"{self.task.name} {what}"


def here(worlds: Iterable[str], tell: Say) -> tuple[str, ...]:
    """Those that can be measured here; `tell` is given the reason for the others."""
    found = []
    for name in worlds:
        try:
            CollectConfig(world=name).make_world()
            found.append(name)
        except MissingExtraError as error:
            tell(f"{name} is left out. {error}")
    return tuple(found)


def bench_world(config: WorldBench, say: Say) -> list[Row]:
    """All measurements of these worlds; the push world has some of its own."""
    rows: list[Row] = []
    for name in config.worlds:
        ground = prepare(get_task(name), name, config.seconds)
        rows += _of_world(ground, config, say)
    return rows


def prepare(task: Task, name: str, seconds: float) -> Ground:
    """Draw as many starts of a world as can be executed in that time, eight at most."""
    hand = next(iter(task.behaviours))
    one = CollectConfig(world=name, starts=1, block=1, behaviour=hand)
    draw_block(BlockWork(one, 0))  # libraries set themselves up
    began = time.perf_counter()
    run_block(BlockWork(one, 0))
    each = time.perf_counter() - began
    starts = _halved(STARTS, seconds / each)
    config = CollectConfig(world=name, starts=starts, block=starts, behaviour=hand)
    return Ground(task, config, config.make_world(), draw_block(BlockWork(config, 0)), each)


def loop(world: World, state: Floats, controls: Floats) -> Floats:
    """The plain loop: restore, step, step, ... for one candidate after the other."""
    finals = []
    for sequence in controls:
        world.restore(state)
        for control in sequence:
            final = world.step(control)
        finals.append(final)
    return np.array(finals)


def _of_world(ground: Ground, config: WorldBench, say: Say) -> list[Row]:
    seconds, push = config.seconds, ground.task.name == PUSH
    steps: dict[str, Callable[[], Row]] = {}
    if push:
        steps["controls, one core"] = lambda: _controls(ground, seconds)
        steps["restores, one core"] = lambda: _restores(ground, seconds)
    steps["starts, one core"] = lambda: _starts(ground, seconds, config.candidates)
    for size in (112, 224) if push else (112,):
        steps[f"frames at {size} px, one core"] = partial(_frames, ground, size, seconds)
    steps["scaling over cores"] = lambda: _collection(ground, seconds)
    if push:
        steps["memory"] = _memory
    rows = []
    for what, step in steps.items():
        say(ground.named(what))
        rows.append(step())
    return rows


def _halved(most: int, fits: float) -> int:
    """`most`, halved until it fits, but at least 1."""
    while most > max(1.0, fits):
        most //= 2
    return most


def _pool(drawn: Drawn, candidates: int | None = None) -> Floats:
    assert drawn.pool is not None
    return np.asarray(drawn.pool.without().actions[:candidates], np.float64)


def _near(drawn: Drawn) -> Floats:
    """Candidates close to the reference, which touch something; without such, the first eight."""
    assert drawn.pool is not None
    near = [i for i, family in enumerate(drawn.pool.families) if family == "noisy_0.05"]
    return np.asarray(drawn.pool.actions[near or slice(8)], np.float64)


def _against_loop(ground: Ground, work: list[tuple[Floats, Floats]], seconds: float) -> list[float]:
    """Times a second that all of the work is done: by `execute`, by the plain loop."""
    ways = (ground.world.execute, partial(loop, ground.world))

    def done(way: Callable[[Floats, Floats], Floats]) -> int:
        for state, controls in work:
            way(state, controls)
        return 1

    return [rate(partial(done, way), seconds) for way in ways]


def _controls(ground: Ground, seconds: float) -> Row:
    work = [(d.start.state, _near(d)) for d in ground.drawn]
    states = np.concatenate([ground.world.execute(s, c) for s, c in work])
    touching = (np.abs(np.diff(states[..., 2:5], axis=1)) > 0).any(-1).mean()
    controls = sum(c.shape[0] * c.shape[1] for _, c in work)
    fast, slow = (controls * times for times in _against_loop(ground, work, seconds))
    note = f"block moves in {touching:.0%} of them; restores included"
    return Row(ground.named("controls"), "controls/s", fast, slow, note)


def _restores(ground: Ground, seconds: float) -> Row:
    states = [d.start.state for d in ground.drawn]

    def ours() -> int:
        for state in states:
            ground.world.restore(state)
        return len(states)

    # No ratio: the plain loop restores in just this way.
    note = "a fresh space each time, as in the plain loop"
    return Row(ground.named("restores"), "restores/s", rate(ours, seconds), note=note)


def _starts(ground: Ground, seconds: float, candidates: int) -> Row:
    work = [(d.start.state, _pool(d, candidates)) for d in ground.drawn]
    fast, slow = (len(work) * times for times in _against_loop(ground, work, seconds))
    K, H, _ = work[0][1].shape
    note = f"{K} x {H} controls, {1 / fast:.3f} s a start"
    return Row(ground.named("starts"), "starts/s", fast, slow, note)


def _frames(ground: Ground, size: int, seconds: float) -> Row:
    import torch

    world, drawn = ground.world, ground.drawn
    states = np.concatenate([world.execute(d.start.state, _near(d)) for d in drawn])
    states, goal = states.reshape(-1, world.state_size), drawn[0].start.goal
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        batched = rate(lambda: len(world.render(states, size, goal)), seconds)
        single = rate(lambda: len(world.render(states[:1], size, goal)), seconds)
    finally:
        torch.set_num_threads(threads)
    what = ground.named(f"frames at {size} px")
    return Row(what, "frames/s", batched, single, "batched against one by one")


def _collection(ground: Ground, seconds: float) -> Row:
    """Whole blocks through the local engine; the workers' start-up is inside the time."""
    cores = min(2, usable_cores())
    starts = max(2, _halved(1024, COLLECTED * seconds / ground.each))
    block = min(8, max(1, starts // 16))
    config = CollectConfig(world=ground.config.world, starts=starts, block=block)
    work = [(number, BlockWork(config, number)) for number in range(config.blocks)]

    def run(workers: int) -> float:
        began = time.perf_counter()
        for _ in LocalEngine(workers).map(run_block, work):
            pass
        return starts / (time.perf_counter() - began)

    one, both = run(1), run(cores)
    note = f"{cores} workers against 1, {starts} starts drawn, proposed and executed"
    return Row(ground.named("collection, second core"), "starts/s", both, one, note)


def _memory() -> Row:
    """Growth of the peak between few and more starts, each measured in a process of its own.

    The plain way keeps what `execute` returns: every state of every candidate.
    """
    small, large = GROWN

    def growth(work: Callable[[int], float]) -> float:
        few, more = (in_child(partial(work, starts)) for starts in (small, large))
        return max(0.0, more - few) / (large - small) * 1000

    note = "growth of the peak: whole bank in memory, against every state of every candidate"
    return Row("memory per 1,000 starts", "MB", growth(_peak), growth(_peak_plain), note)


def _peak(starts: int) -> float:
    from djepa.bank.collect import collect

    with tempfile.TemporaryDirectory() as folder:
        bank = collect(folder, CollectConfig(starts=starts), LocalEngine(1))
        kept = (bank.decisions, bank.outcomes, bank.provenance)
        peak = peak_memory()
        del kept
    return peak


def _peak_plain(starts: int) -> float:
    config = CollectConfig(starts=starts, block=starts)
    world, drawn = config.make_world(), draw_block(BlockWork(config, 0))
    kept = [world.execute(entry.start.state, _pool(entry)) for entry in drawn]
    peak = peak_memory()
    del kept
    return peak
