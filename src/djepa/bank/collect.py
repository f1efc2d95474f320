"""Collect a bank: hand blocks to an engine, write each as it comes back, go on where it stopped."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pymunk

import djepa
from djepa.bank.read import Bank
from djepa.bank.write import BankWriter
from djepa.errors import unknown_name
from djepa.pools import PROFILES
from djepa.rollout.engine import Engine
from djepa.rollout.execute import (
    DECOY,
    BlockWork,
    CollectConfig,
    Proposer,
    draw_block,
    pool_seeds,
    run_block,
)
from djepa.worlds.push import PushWorld

Report = Callable[[int, int], None]


def collect(
    path: Path | str,
    config: CollectConfig,
    engine: Engine,
    proposer: Proposer | None = None,
    report: Report = lambda done, total: None,
) -> Bank:
    """Execute all candidates of all starts into the bank at `path`, or finish what is there.

    `report(done, total)` is called with numbers of blocks. With a `proposer` its name stands in for
    the profile, and its pools are made here, where a model may live, not in the workers.
    """
    known = [*PROFILES, DECOY] + ([proposer.name] if proposer else [])
    if config.profile not in known:
        raise unknown_name("profile", config.profile, known)
    with BankWriter(Path(path), config, versions()).opened() as writer:
        missing = writer.missing()
        report(config.blocks - len(missing), config.blocks)
        work = {number: _work(config, number, proposer) for number in missing}
        for number, block in engine.map(run_block, work):
            writer.write(number, block)
            report(len(writer.done), config.blocks)
        writer.finish()
    return Bank(path)


def _work(config: CollectConfig, number: int, proposer: Proposer | None) -> BlockWork:
    if proposer is None or config.profile != proposer.name:
        return BlockWork(config, number)
    starts = [drawn.start for drawn in draw_block(BlockWork(config, number))]
    world = PushWorld(config.shape, config.rule)
    pools = proposer.propose(world, starts, pool_seeds(config, number))
    return BlockWork(config, number, tuple(pools))


def versions() -> dict[str, str]:
    """What the recorded numbers depend on."""
    return {"djepa": djepa.__version__, "numpy": np.__version__, "pymunk": pymunk.version}
