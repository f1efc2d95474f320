"""What a marker can call of trials in other people's software, and of the exported graph."""

from functools import cache
from pathlib import Path

from tools.docs.values import RESULTS, bench
from tools.trials import Trial


@cache
def _trial(file: str) -> Trial:
    return Trial.open(Path(RESULTS / file))


def trial(file: str, against: str) -> str:
    """Every method of a trial on the episodes that all of them ran."""
    return _trial(file).table(against)


def trial_episodes(file: str) -> str:
    """How many episodes every method ran."""
    return f"{len(_trial(file).episodes):,}"


def trial_gain(file: str, ours: str, theirs: str) -> str:
    """Such as +2.4 points (+1.2 to +3.7), adjusted p = 0.3, 7 gained, 3 lost: its word."""
    known = {(v.ours, v.theirs): v for v in _trial(file).verdicts()}
    v = known[ours, theirs]
    return f"{v.points}, {v.pair.gains} gained, {v.pair.losses} lost: {v.word}"


def onnx_bench() -> str:
    """The exported graph beside torch, once docs/results holds it."""
    measured = (RESULTS / "bench-onnx.json").exists()
    return bench("onnx", "torch") if measured else "Not measured yet."
