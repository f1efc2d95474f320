"""What a marker can call of trials in other people's software, and of the exported graph."""

from functools import cache
from pathlib import Path

from tools.docs.values import RESULTS, bench

from djepa.studies.trials import Trial


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
    """Such as +2.4 points (+1.2 to +3.7), 7 gained, 3 lost, p = 0.34: no significant difference."""
    p = _trial(file).pair(ours, theirs)
    low, high = (100 * end for end in p.difference_interval)
    found = f"{100 * p.difference:+.1f} points ({low:+.1f} to {high:+.1f})"
    word = "" if p.p < 0.05 and not low <= 0 <= high else ": no significant difference"
    return f"{found}, {p.gains} gained, {p.losses} lost, p = {p.p:.2g}{word}"


def onnx_bench() -> str:
    """The exported graph beside torch, once docs/results holds it."""
    measured = (RESULTS / "bench-onnx.json").exists()
    return bench("onnx", "torch") if measured else "Not measured yet."
