import dataclasses
import gzip

import numpy as np
import pytest

from djepa.errors import DjepaError
from djepa.evaluate.rows import Row, read_rows, successes, write_rows


def row(method="oracle", start=0, success=True, **others):
    base = Row("pusht", "decoy", method, start, f"{start:016x}", True, 7, success, 0.25, False,
               "push.v1", "0123456789ab", "")  # fmt: skip
    return dataclasses.replace(base, **others)


ROWS = [
    row(),
    row("fusion, two", 3, False, cost=1 / 3 + 1, opened=True, checkpoint="fedcba987654"),
    row('a "quoted" one', 1, eligible=False, cost=float("inf")),
]


def test_rows_come_back_as_they_were(tmp_path):
    path = tmp_path / "rows.csv.gz"
    write_rows(path, ROWS)
    assert read_rows(path) == ROWS
    assert all(type(r.success) is bool and type(r.start) is int for r in read_rows(path))
    before = path.read_bytes()
    write_rows(path, read_rows(path))
    assert path.read_bytes() == before
    write_rows(path, [])
    assert read_rows(path) == []


@pytest.mark.parametrize("part", [0, 1, 10, 40, -9, -1])
def test_truncated_files_are_refused(tmp_path, part):
    path = tmp_path / "rows.csv.gz"
    write_rows(path, ROWS)
    path.write_bytes(path.read_bytes()[:part])
    with pytest.raises(DjepaError, match=r"rows\.csv\.gz"):
        read_rows(path)


@pytest.mark.parametrize(
    "data",
    [
        b"method,success\n",
        gzip.compress(b"method,success\noracle,1\n", mtime=0),
        gzip.compress(bytes(range(256))),
    ],
)
def test_foreign_files_are_refused(tmp_path, data):
    path = tmp_path / "other.gz"
    path.write_bytes(data)
    with pytest.raises(DjepaError, match="result rows"):
        read_rows(path)


@pytest.mark.parametrize(("old", "new"), [(b",7,", b",seven,"), (b",7,", b","), (b",7,", b",7,7,")])
def test_damaged_lines_are_refused(tmp_path, old, new):
    path = tmp_path / "rows.csv.gz"
    write_rows(path, ROWS)
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).replace(old, new, 1)))
    with pytest.raises(DjepaError, match="cannot be read as result rows"):
        read_rows(path)


def test_no_such_file(tmp_path):
    with pytest.raises(DjepaError, match=r"nowhere\.gz"):
        read_rows(tmp_path / "nowhere.gz")


def test_successes_are_in_order_of_start():
    rows = [row("a", 5, True), row("b", 2, False), row("a", 2, False), row("b", 5, False)]
    found = successes(rows)
    assert list(found) == ["a", "b"]
    np.testing.assert_array_equal(found["a"], [False, True])
    np.testing.assert_array_equal(found["b"], [False, False])
    assert successes([]) == {}


def test_gaps_are_refused():
    rows = [row("a", 0), row("a", 1), row("b", 0)]
    with pytest.raises(DjepaError, match="same starts"):
        successes(rows)
    with pytest.raises(DjepaError, match="same starts"):
        successes([row("a", 0), row("b", 1)])
    with pytest.raises(DjepaError, match="stands twice for a"):
        successes([row("a", 0, True), row("a", 0, False)])
