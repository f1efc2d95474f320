"""Decision records of closed loop: one for every decision of every episode.

A record of `djepa.interop.record` is named EPISODE:TURN. Its outcome is the task cost after the
controls that were executed before the next decision, and whether the world's rule held then or
after one of those controls. The records of a block of episodes are stored in its file, as JSON in
an array of bytes.
"""

from collections.abc import Callable, Iterator

import msgspec
import numpy as np
import numpy.typing as npt

from djepa.control.episodes import MODERATE, Episode
from djepa.interop.record import DecisionRecord, Outcome, Scorer
from djepa.pools.cem import Run

Bytes = npt.NDArray[np.uint8]


def cheapest(run: Run, scorer: Callable[[tuple[float, ...]], Scorer]) -> DecisionRecord:
    """The choice of a search, the cheapest of its last candidates and the best before.

    A sequence kept from population to population has the ID by which it was chosen.
    """
    (pool, costs), (choice, _) = run.scored(), run.best()
    order = np.lexsort((pool.ids, costs))
    ids = pool.ids.copy()
    if choice not in ids:
        ids[order[0]] = choice
    scores = scorer(tuple(float(x) for x in costs))
    ranked = tuple(ids[order].tolist())
    return DecisionRecord("", tuple(ids.tolist()), choice, ranked, (scores,))


def executed(episode: Episode, turn: int, said: DecisionRecord) -> DecisionRecord:
    """The record with its name and the outcome of executing the choice."""
    config = episode.config
    begin = turn * config.replan
    paid = episode.cost[begin + 1 : begin + config.replan + 1]
    won = min(paid) < config.thresholds[MODERATE]
    outcome = Outcome(bool(won), float(paid[-1]), config.rule)
    return msgspec.structs.replace(said, start=f"{episode.name}:{turn}", outcome=outcome)


def packed(records: list[DecisionRecord]) -> Bytes:
    """(bytes,) of JSON, one record a line."""
    lines = (msgspec.json.encode(one) + b"\n" for one in records)
    return np.frombuffer(b"".join(lines), np.uint8)


def unpacked(stored: Bytes) -> Iterator[DecisionRecord]:
    """The records of one block or of several."""
    for line in stored.tobytes().splitlines():
        yield msgspec.json.decode(line, type=DecisionRecord)
