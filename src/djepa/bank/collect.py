"""Collect a bank: send blocks to an engine, write each result, resume where it stopped."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from djepa.artefacts.store import locate
from djepa.bank.read import Bank
from djepa.bank.write import BankWriter
from djepa.errors import DjepaError, check_name
from djepa.rollout.engine import Engine, LocalEngine
from djepa.rollout.execute import (
    BlockWork,
    CollectConfig,
    Proposer,
    draw_block,
    propose,
    run_block,
    versions,
)

Report = Callable[[int, int], None]


def collect(
    path: Path | str,
    config: CollectConfig,
    engine: Engine,
    proposer: Proposer | None = None,
    report: Report = lambda done, total: None,
) -> Bank:
    """Execute all candidates of all starts into the bank at `path`; resumes a partial bank.

    `report(done, total)` is called with numbers of starts. A `proposer` chooses the candidates
    that are executed. A portable one runs in the workers; any other runs here, where a model may
    be loaded, block by block as the engine requests work.
    """
    config.make_world()  # a missing engine is named before anything is written
    known = [*config.task.profiles] + ([proposer.name] if proposer else [])
    check_name("profile", config.profile, known)
    if proposer and proposer.name != config.profile:
        raise DjepaError(
            f"This proposer is for the profile '{proposer.name}', not for '{config.profile}'."
        )
    source = dict(proposer.settings) if proposer else None
    with BankWriter(locate(path), config, versions(config.world), source).opened() as writer:
        missing = writer.missing()
        done = config.starts - sum(len(config.members(number)) for number in missing)
        report(done, config.starts)
        for number, block in engine.map(run_block, _work(config, missing, proposer, engine)):
            writer.write(number, block)
            done += len(config.members(number))
            report(done, config.starts)
        writer.finish()
    return Bank(path)


def _work(
    config: CollectConfig, blocks: list[int], proposer: Proposer | None, engine: Engine
) -> Iterator[tuple[int, BlockWork]]:
    here = versions(config.world)
    plain = ((number, BlockWork(config, number, here)) for number in blocks)
    if proposer is None:
        yield from plain
    elif getattr(proposer, "portable", False):
        yield from ((number, replace(work, proposer=proposer)) for number, work in plain)
    else:  # starts are drawn by local workers, candidates proposed here
        draws = engine if isinstance(engine, LocalEngine) else LocalEngine(1)
        for number, drawn in draws.map(draw_block, plain):
            work = BlockWork(config, number, here)
            yield number, replace(work, pools=propose(work, proposer, drawn))
