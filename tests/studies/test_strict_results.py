"""Results of a finished study are read as they were written, or refused by the name of the file."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from tools import grains
from tools.docs.fill import ROOT

from djepa.artefacts.records import encode_json
from djepa.errors import DjepaError
from djepa.evaluate.rows import Row, write_rows
from djepa.studies.results import Results, load_results
from djepa.studies.stages import seal
from djepa.studies.table import find_results

MEASURE = "measures/budget/decoy.json"
ROWS = "rows/decoy.csv.gz"
HOSTILE = {
    "no JSON": b"{",
    "nothing": b"",
    "deep": b"[" * 100_000,
    "NaN": b'{"a": NaN}',
    "a pickle": b"\x80\x04K\x01.",
    "no text": b"\xff\xfe",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a small study leaves, sealed as after its last stage."""
    row = Row("pusht", "decoy", "native lewm", 0, "0" * 16, True, 1, True, 0.5, False, "r", "b", "")
    for name in (ROWS, MEASURE):
        (tmp_path / name).parent.mkdir(parents=True)
    write_rows(tmp_path / ROWS, [row])
    (tmp_path / MEASURE).write_bytes(encode_json(tmp_path, {"a": 0.5}))
    about = {"study": "pusht", "preset": "quick", "seed": 0}
    (tmp_path / "study.json").write_bytes(encode_json(tmp_path, about))
    seal(tmp_path)
    return tmp_path


READERS: tuple[Callable[[Path], object], ...] = (load_results, lambda path: find_results([path]))


def test_a_whole_folder_is_read(folder: Path) -> None:
    found = load_results(folder)
    assert found.measured("budget") == {"decoy": {"a": 0.5}}
    assert [row.success for row in found.rows["decoy"]] == [True]
    assert len(find_results([folder])) == 1


@pytest.mark.parametrize("read", READERS, ids=("results", "table"))
@pytest.mark.parametrize("name", [ROWS, MEASURE, "study.json"])
def test_an_altered_result_is_refused(
    name: str, read: Callable[[Path], object], folder: Path
) -> None:
    path = folder / name
    data = path.read_bytes()
    if name == ROWS:  # a loser becomes a winner, in a file that is otherwise sound
        data = gzip.compress(gzip.decompress(data).replace(b",0.5,", b",0.4,"), mtime=0)
    else:
        data = data.replace(b"0", b"1")
    path.write_bytes(data)
    with pytest.raises(DjepaError, match="is damaged: its SHA-256") as error:
        read(folder)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("name", [ROWS, MEASURE])
def test_a_lost_result_is_refused(name: str, folder: Path) -> None:
    (folder / name).unlink()
    with pytest.raises(DjepaError, match="is missing, though it was made") as error:
        load_results(folder)
    assert str(folder / name) in str(error.value)


def test_a_manifest_of_something_else_is_refused(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"format": "djepa-bank", "version": 2, "files": {}}')
    with pytest.raises(DjepaError, match="is djepa-bank 2"):
        load_results(folder)


@pytest.mark.parametrize("how", HOSTILE)
def test_hostile_json_is_refused_where_there_is_no_manifest(how: str, folder: Path) -> None:
    (folder / "manifest.json").unlink()
    (folder / MEASURE).write_bytes(HOSTILE[how])
    found = load_results(folder)
    with pytest.raises(DjepaError, match="is damaged") as error:
        found.measured("budget")
    assert str(folder / MEASURE) in str(error.value)
    (folder / "study.json").write_bytes(HOSTILE[how])
    with pytest.raises(DjepaError, match=r"study\.json is damaged"):
        load_results(folder)


def test_arrays_are_read_strictly_too(folder: Path) -> None:
    (folder / MEASURE).with_suffix(".safetensors").write_bytes(b"x" * 20)
    with pytest.raises(DjepaError, match=r"decoy\.safetensors is not a complete"):
        load_results(folder).arrays("budget")


@pytest.mark.parametrize("text", ["{", "[1]", '{"100 reached": [{"draw": "1"}]}'])
def test_measured_grains_are_read_strictly(text: str, tmp_path: Path) -> None:
    (file := tmp_path / "grains.json").write_text(text)
    with pytest.raises(DjepaError, match=r"grains\.json is damaged"):
        grains.main(file)


@pytest.mark.parametrize(
    "file", sorted((ROOT / "docs/results").glob("*/study.json")), ids=lambda f: f.parent.name
)
def test_stored_results_are_read(file: Path) -> None:
    found: Results = load_results(file.parent)
    assert set(found.rows) == {path.name.split(".")[0] for path in (file.parent / "rows").iterdir()}
    for measure in found.design.measures:
        assert set(found.measured(measure.name)) <= set(found.rows), measure.name
