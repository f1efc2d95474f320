"""How fast the world executes, against a plain loop over its `step`, in one run.

Legend: N starts, K candidates, H horizon.
"""

import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from djepa.rollout.engine import LocalEngine, usable_cores
from djepa.rollout.execute import BlockWork, CollectConfig, Drawn, draw_block, run_block
from djepa.worlds.push import PushWorld

Floats = npt.NDArray[np.float64]
Say = Callable[[str], None]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Row:
    """One measurement: `plain` is the loop a user would write first, `ours` what the room does."""

    what: str
    unit: str
    ours: float
    plain: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours over plain."""
        return None if self.plain is None else self.ours / self.plain

    def as_dict(self) -> dict[str, str | float | None]:
        """For JSON."""
        return {**asdict(self), "ratio": self.ratio}


def bench_world(seconds: float, say: Say) -> list[Row]:
    """All measurements of the push world."""
    drawn = draw_block(BlockWork(CollectConfig(starts=8, block=8, behaviour="push"), 0))
    say("controls, one core")
    rows = [_controls(drawn, seconds)]
    say("restores, one core")
    rows.append(_restores(drawn, seconds))
    say("starts, one core")
    rows.append(_starts(drawn, seconds))
    for size in (112, 224):
        say(f"frames at {size} px, one core")
        rows.append(_frames(drawn, size, seconds))
    say("scaling over cores")
    rows.append(_scaling(seconds))
    say("memory")
    rows.append(_memory())
    return rows


def rate(work: Callable[[], int], seconds: float) -> float:
    """Units per second: the best of three runs after one warm-up, each a third of the time."""
    work()
    best = 0.0
    for _ in range(3):
        began, units = time.perf_counter(), 0
        while (spent := time.perf_counter() - began) < seconds / 3 or units == 0:
            units += work()
        best = max(best, units / spent)
    return best


def _pool(drawn: Drawn) -> Floats:
    assert drawn.pool is not None
    return np.asarray(drawn.pool.without().actions, np.float64)


def _near(drawn: Drawn) -> Floats:
    """Candidates close to the reference: the ones that touch the block."""
    assert drawn.pool is not None
    near = [i for i, family in enumerate(drawn.pool.families) if family == "noisy_0.05"]
    return np.asarray(drawn.pool.actions[near], np.float64)


def loop(world: PushWorld, state: Floats, controls: Floats) -> Floats:
    """The plain loop: restore, step, step, ... for one candidate after the other."""
    finals = []
    for sequence in controls:
        world.restore(state)
        for control in sequence:
            final = world.step(control)
        finals.append(final)
    return np.array(finals)


def _controls(drawn: list[Drawn], seconds: float) -> Row:
    world = PushWorld()
    work = [(d.start.state, _near(d)) for d in drawn]
    states = np.concatenate([world.execute(s, c) for s, c in work])
    touching = (np.abs(np.diff(states[..., 2:5], axis=1)) > 0).any(-1).mean()
    controls = int(sum(c.shape[0] * c.shape[1] for _, c in work))

    def ours() -> int:
        for state, sequences in work:
            world.execute(state, sequences)
        return controls

    def plain() -> int:
        for state, sequences in work:
            loop(world, state, sequences)
        return controls

    note = f"block moves in {touching:.0%} of them; restores included"
    return Row("controls", "controls/s", rate(ours, seconds), rate(plain, seconds), note)


def _restores(drawn: list[Drawn], seconds: float) -> Row:
    world, states = PushWorld(), [d.start.state for d in drawn]

    def ours() -> int:
        for state in states:
            world.restore(state)
        return len(states)

    # No ratio: the plain loop restores in just this way.
    note = "a fresh space each time, as in the plain loop"
    return Row("restores", "restores/s", rate(ours, seconds), note=note)


def _starts(drawn: list[Drawn], seconds: float) -> Row:
    world = PushWorld()
    work = [(d.start.state, _pool(d)) for d in drawn]
    K, H, _ = work[0][1].shape

    def ours() -> int:
        for state, sequences in work:
            world.execute(state, sequences)
        return len(work)

    def plain() -> int:
        for state, sequences in work:
            loop(world, state, sequences)
        return len(work)

    fast, slow = rate(ours, seconds), rate(plain, seconds)
    return Row("starts", "starts/s", fast, slow, f"{K} x {H} controls, {1 / fast:.3f} s a start")


def _frames(drawn: list[Drawn], size: int, seconds: float) -> Row:
    import torch

    world = PushWorld()
    states = np.concatenate([world.execute(d.start.state, _near(d)) for d in drawn]).reshape(-1, 10)
    goal, threads = drawn[0].start.goal, torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        batched = rate(lambda: len(world.render(states, size, goal)), seconds)
        single = rate(lambda: len(world.render(states[:1], size, goal)), seconds)
    finally:
        torch.set_num_threads(threads)
    return Row(f"frames at {size} px", "frames/s", batched, single, "batched against one by one")


def _scaling(seconds: float) -> Row:
    """Whole blocks through the local engine; the workers' start-up is inside the time."""
    cores = min(2, usable_cores())
    config = CollectConfig(starts=max(64, int(seconds * 128)), block=8)
    work = [(number, BlockWork(config, number)) for number in range(config.blocks)]

    def run(workers: int) -> float:
        began = time.perf_counter()
        for _ in LocalEngine(workers).map(run_block, work):
            pass
        return config.starts / (time.perf_counter() - began)

    one, both = run(1), run(cores)
    note = f"{cores} workers against 1, {config.starts} starts drawn, proposed and executed"
    return Row("collection, second core", "starts/s", both, one, note)


def _memory() -> Row:
    """Growth of the peak between few and more starts, each measured in a process of its own.

    The plain way keeps what `execute` returns: every state of every candidate.
    """
    small, large = 32, 160

    def growth(work: Callable[[int], float]) -> float:
        few, more = (in_child(partial(work, starts)) for starts in (small, large))
        return max(0.0, more - few) / (large - small) * 1000

    note = "growth of the peak: whole bank held, against every state of every candidate"
    return Row("memory per 1,000 starts", "MB", growth(_peak), growth(_peak_plain), note)


def _peak(starts: int) -> float:
    from djepa.bank.collect import collect

    with tempfile.TemporaryDirectory() as folder:
        bank = collect(folder, CollectConfig(starts=starts), LocalEngine(1))
        held = (bank.decisions, bank.outcomes, bank.provenance)
        peak = peak_memory()
        del held
    return peak


def _peak_plain(starts: int) -> float:
    world, config = PushWorld(), CollectConfig(starts=starts, block=starts)
    drawn = draw_block(BlockWork(config, 0))
    held = [world.execute(entry.start.state, _pool(entry)) for entry in drawn]
    peak = peak_memory()
    del held
    return peak


def peak_memory() -> float:
    """Largest memory of this process so far, in MB."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count the parent of a spawned process too
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def in_child(work: Callable[[], Result]) -> Result:
    """Work done in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work)
