"""What grows is measured against the smallest; sizes are tiny here."""

import pytest

from djepa.bench import growth
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
