"""Speed of execution in worlds, against a plain loop over their `step`, in one run."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from djepa.bank.collect import collect
from djepa.bench.measure import Options, Row, Say, seconds_of
from djepa.bench.traffic import TRAFFIC, bench_traffic
from djepa.errors import MissingExtraError
from djepa.rollout.engine import LocalEngine, usable_cores
from djepa.rollout.execute import BlockWork, CollectConfig, Drawn, draw_block, run_block
from djepa.tasks.task import TASKS, get_task
from djepa.worlds.protocol import Floats, World

PUSH = "push"  # the world with the most rows, whose names omit the world
STARTS = 8  # starts drawn; fewer in a slow world
COLLECTED = 10  # times as long as other measurements, since workers start slowly


@dataclass(frozen=True)
class Ground:
    """A world under measurement, and some of its starts."""

    name: str
    world: World
    drawn: list[Drawn]
    each: float  # s, about: to draw, propose and execute one start

    def named(self, what: str) -> str:
        """The name of a row."""
        return what if self.name == PUSH else f"{self.name} {what}"


def here(worlds: Iterable[str], say: Say) -> Iterator[str]:
    """The worlds that can be measured here; `say` reports why others cannot."""
    for name in worlds:
        try:
            CollectConfig(world=name).make_world()
            yield name
        except MissingExtraError as error:
            say(f"{name} is left out. {error}")


def bench_world(options: Options, say: Say) -> Iterator[Row]:
    """All measurements of these worlds; the push world has some of its own."""
    seconds = options.seconds
    for name in options.world or (*here(TASKS, say), TRAFFIC):
        say(f"measuring {name} ...")
        if name == TRAFFIC:  # executes whole trajectories, not single controls
            yield from bench_traffic(options)
            continue
        ground = prepare(name, seconds)
        if name == PUSH:
            yield _controls(ground, seconds)
        yield _starts(ground, seconds, options.candidates)
        for size in (112, 224) if name == PUSH else (112,):
            yield _frames(ground, size, seconds)
        yield _collection(ground, seconds)


def prepare(name: str, seconds: float) -> Ground:
    """Draw as many starts of a world as can be executed in that time, eight at most."""
    hand = next(iter(get_task(name).behaviours))
    one = CollectConfig(world=name, starts=1, block=1, behaviour=hand)
    draw_block(BlockWork(one, 0))  # initialises libraries
    began = time.perf_counter()
    run_block(BlockWork(one, 0))
    each = time.perf_counter() - began
    starts = _halved(STARTS, seconds / each)
    config = CollectConfig(world=name, starts=starts, block=starts, behaviour=hand)
    return Ground(name, config.make_world(), draw_block(BlockWork(config, 0)), each)


def loop(world: World, state: Floats, controls: Floats) -> Floats:
    """The plain loop: restore, step, step, ... for one candidate after the other."""
    finals = []
    for sequence in controls:
        world.restore(state)
        for control in sequence:
            final = world.step(control)
        finals.append(final)
    return np.array(finals)


def collecting(config: CollectConfig, workers: int) -> float:
    """Seconds to draw, propose, execute and write a bank; including the start of workers."""
    with TemporaryDirectory() as folder:
        began = time.perf_counter()
        collect(Path(folder) / "bank", config, LocalEngine(workers))
        return time.perf_counter() - began


def _halved(most: int, fits: float) -> int:
    """`most`, halved until it fits, but at least 1."""
    while most > max(1.0, fits):
        most //= 2
    return most


def _near(drawn: Drawn) -> Floats:
    """Candidates near the reference, which make contact; else the first eight."""
    assert drawn.pool is not None
    near = [i for i, family in enumerate(drawn.pool.families) if family == "noisy_0.05"]
    return np.asarray(drawn.pool.actions[near or slice(8)], np.float64)


def _against_loop(ground: Ground, work: list[tuple[Floats, Floats]], seconds: float) -> list[float]:
    """Seconds for all of `work`: by `execute`, by the plain loop."""

    def done(way: Callable[[Floats, Floats], Floats]) -> None:
        for state, controls in work:
            way(state, controls)

    ways = (ground.world.execute, partial(loop, ground.world))
    return [seconds_of(partial(done, way), seconds=seconds) for way in ways]


def _controls(ground: Ground, seconds: float) -> Row:
    work = [(d.start.state, _near(d)) for d in ground.drawn]
    states = np.concatenate([ground.world.execute(s, c) for s, c in work])
    touching = (np.abs(np.diff(states[..., 2:5], axis=1)) > 0).any(-1).mean()
    controls = sum(c.shape[0] * c.shape[1] for _, c in work)
    fast, slow = (controls / spent for spent in _against_loop(ground, work, seconds))
    note = f"block moves in {touching:.0%} of them; restores included"
    return Row(ground.named("controls"), "controls/s", fast, slow, note)


def _starts(ground: Ground, seconds: float, candidates: int) -> Row:
    pools = [np.asarray(d.pool.without().actions, np.float64) for d in ground.drawn if d.pool]
    work = [(d.start.state, p[:candidates]) for d, p in zip(ground.drawn, pools, strict=True)]
    fast, slow = (len(work) / spent for spent in _against_loop(ground, work, seconds))
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
        batched, single = (
            len(some) / seconds_of(partial(world.render, some, size, goal), seconds=seconds)
            for some in (states, states[:1])
        )
    finally:
        torch.set_num_threads(threads)
    what = ground.named(f"frames at {size} px")
    return Row(what, "frames/s", batched, single, "batched against one by one")


def _collection(ground: Ground, seconds: float) -> Row:
    cores = min(2, usable_cores())
    starts = max(2, _halved(1024, COLLECTED * seconds / ground.each))
    config = CollectConfig(world=ground.name, starts=starts, block=min(8, max(1, starts // 16)))
    one, both = (starts / collecting(config, workers) for workers in (1, cores))
    note = f"{cores} workers against 1, {starts} starts drawn, proposed, executed and written"
    return Row(ground.named("collection, second core"), "starts/s", both, one, note)
