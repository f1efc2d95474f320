"""A file that a command writes never replaces somebody's, and always one of its own."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tools.docs.fill import ROOT

from commands import djepa
from djepa.artefacts.claim import DECISIONS, JSON_OF, PICTURES, claim_figure, claim_file, marked
from djepa.artefacts.store import Remote
from djepa.errors import DjepaError
from djepa.interop.onnx import export_onnx
from djepa.interop.record import write_decisions

MINE = "what I measured: djepa, 12 rows\n"
OPTIONS = [
    ("decide", "nowhere", "nowhere", "--out", "FILE"),
    ("decide", "nowhere", "nowhere", "--out", "FILE.json"),
    ("audit", "nowhere.npz", "--json", "FILE.json"),
    ("audit", "nowhere", "--json", "FILE.json"),
    ("audit", "nowhere.npz", "--figure", "FILE.png"),
    ("audit", "nowhere.npz", "--figure", "FILE.svg"),
    ("audit", "nowhere", "--decisions", "none.json", "--page", "FILE.html"),
    ("bench", "world", "--json", "FILE.json"),
    ("bench", "world", "--out", "FILE.json"),
    ("control", "push", "--json", "FILE.json", "--out", "FOLDER"),
    ("control", "push", "--decisions", "FILE.json", "--out", "FOLDER"),
    ("pools", "nowhere", "--json", "FILE.json"),
    ("pools", "nowhere", "--figure", "FILE.png"),
    ("pools", "nowhere", "--figure", "FILE.svg"),
    ("export", "nowhere", "--onnx", "FILE.onnx", "--out", "FOLDER/p.safetensors"),
]


@pytest.mark.parametrize("words", OPTIONS, ids=" ".join)
@pytest.mark.parametrize("text", [MINE, '{"notes": [1, 2]}\n', "[[1, 2]]\n", '"a"'])
def test_somebodys_file_survives_every_option(
    words: Sequence[str], text: str, tmp_path: Path
) -> None:
    given = [word.replace("FILE", f"{tmp_path}/mine") for word in words]
    file = Path(next(word for word in given if "/mine" in word))
    file.write_text(text)
    done = djepa(*(word.replace("FOLDER", f"{tmp_path}/new") for word in given))
    assert done.returncode == 1
    assert file.read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    assert f"{file} is there already" in done.stderr
    assert "move that file away or name another one" in done.stderr


def test_functions_of_the_package_refuse_it_too(tmp_path: Path) -> None:
    file = tmp_path / "mine"
    file.write_text(MINE)
    with pytest.raises(DjepaError, match="is there already"):
        write_decisions(file, [])

    class Planner:
        composition = None

    with pytest.raises(DjepaError, match="is there already"):
        export_onnx(Planner(), file)  # type: ignore[arg-type]
    assert file.read_text() == MINE


def test_what_is_ours_or_empty_is_made_anew(tmp_path: Path) -> None:
    file = tmp_path / "new" / "d.json"
    for many in (0, 1):
        write_decisions(file, ["{}"] * many)
    assert DECISIONS(file)
    with pytest.raises(DjepaError, match="is there already"):
        claim_file(file, JSON_OF["bench"])
    file.write_text("")
    claim_file(file, JSON_OF["bench"])
    with pytest.raises(DjepaError, match="it is a folder"):
        claim_file(tmp_path, DECISIONS)


def test_a_long_file_is_known_by_its_end(tmp_path: Path) -> None:
    file = tmp_path / "long"
    file.write_bytes(bytes(200_000) + b"mark" + bytes(1000))
    assert marked(b"mark")(file)
    file.write_bytes(bytes(100_000) + b"mark" + bytes(100_000))
    assert not marked(b"mark")(file)


def test_stored_numbers_of_ours_are_known() -> None:
    results = ROOT / "docs" / "results"
    assert JSON_OF["pools"](results / "pool-stats.json")
    for file in ("bench-plan.json", "bench-engine.json"):
        assert JSON_OF["bench"](results / file)
    assert not JSON_OF["pools"](results / "bench-plan.json")


def test_an_audit_and_its_picture_are_written_twice(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    random, shape = np.random.default_rng(0), (6, 5)
    won, costs = random.random(shape) < 0.5, random.random(shape)
    mine = tmp_path / "mine.npz"
    np.savez(mine, ids=np.tile(np.arange(5), (6, 1)), success=won, costs=costs)
    for suffix, ours in PICTURES.items():
        picture, numbers = tmp_path / f"a{suffix}", tmp_path / f"a{suffix}.json"
        for _ in range(2):
            done = djepa("audit", mine, "--json", numbers, "--figure", picture)
            assert done.returncode == 0, done.stderr
        assert ours(picture)
        claim_figure(picture)
        assert JSON_OF["audit"](numbers)


def test_in_a_store_a_file_is_left_alone_too() -> None:
    pytest.importorskip("fsspec")
    there = Remote("memory://claims/mine.json")
    there.write(MINE.encode())
    with pytest.raises(DjepaError, match=r"mine\.json is there already"):
        write_decisions("memory://claims/mine.json", [])
    there.unlink()
    for _ in range(2):
        write_decisions("memory://claims/mine.json", [])
    there.unlink()
