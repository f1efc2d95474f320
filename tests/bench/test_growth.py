"""What grows is measured against the smallest; sizes are tiny here."""

import pytest

from djepa.bench import banks, growth
from djepa.bench.measure import Options


def test_rows_compare_with_the_smallest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "STARTS", (2, 4))
    monkeypatch.setattr(growth, "CANDIDATES", (5, 10))
    monkeypatch.setattr(growth, "COLLECTED", (1, 2))
    monkeypatch.setattr(growth, "usable_cores", lambda: 2)
    said: list[str] = []
    rows = list(growth.bench_growth(Options(), said.append))
    names = [row.what for row in rows]
    assert names[:2] == ["decide, starts: 2", "decide, starts: 4"]
    assert names[-1] == "collect, 2 workers"
    for row in rows:
        assert row.ours > 0
        assert row.plain is not None
    for first in (0, 2, 4):
        assert rows[first].ratio == 1
        assert rows[first].plain == rows[first + 1].plain
    assert said == ["measuring growth ..."]


def test_banks_are_taken_through_every_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers count: their CPU time and their memory stand beside those of the driver."""
    monkeypatch.setattr(banks, "in_child", lambda work: work())
    monkeypatch.setattr(banks, "BLOCK", 2)
    monkeypatch.setattr(banks, "UPDATES", 1)
    options = Options(banks=(4, 8), candidates=16, workers=2, world=("reacher",))
    rows = list(growth.bench_growth(options, lambda line: None))
    stages = ["collect", "collect again", "predict", "fit", "decide", "audit"]
    assert [row.what for row in rows] == [
        f"{stage}, bank of {starts}" for starts in (4, 8) for stage in stages
    ]
    assert {row.details["horizon"] for row in rows} == {5}
    for row in rows:
        assert row.ours > 0
        assert row.details["peak_mb"] > 20
        assert (row.details["worker_mb"] > 20) == row.what.startswith("collect, ")
    gathered = {row.what: row.details["stored_mb"] for row in rows}
    assert gathered["collect, bank of 8"] > gathered["collect, bank of 4"] > 0
