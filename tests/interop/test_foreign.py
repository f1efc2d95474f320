"""Foreign and damaged recordings: an error names the file, and nothing senseless is accepted."""

import copy
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_kit import as_filmed, as_hdf5, as_lance, as_lerobot, coded, some

from commands import djepa
from djepa.errors import DjepaError
from djepa.interop.foreign import inside, reading, to_controls, to_frames
from djepa.interop.recorded import Columns, RecordedEpisode, get_reader

h5py = pytest.importorskip("h5py")
pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
CAMERA, CHUNK = "observation.images.top", "chunk-000/file-000"
EPISODES, STEPS = f"meta/episodes/{CHUNK}.parquet", f"data/{CHUNK}.parquet"
Damage = Callable[[Path], Any]


# ------------------------------------------------------------------------------ known cases


def info(text: str) -> Damage:
    return lambda folder: (folder / "meta/info.json").write_text(text)


def info_with(**changes: Any) -> Damage:
    def damage(folder: Path) -> None:
        file = folder / "meta/info.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))

    return damage


def column(file: str, name: str, values: Any = None) -> Damage:
    """Replace a column, or drop it."""

    def damage(folder: Path) -> None:
        table = pq.read_table(folder / file)
        rest = {other: table.column(other) for other in table.column_names if other != name}
        pq.write_table(pa.table(rest if values is None else {**rest, name: values}), folder / file)

    return damage


def cut(file: str) -> Damage:
    return lambda folder: (folder / file).write_bytes((folder / file).read_bytes()[:-40])


LEROBOT: dict[str, tuple[Damage, str]] = {
    "no features": (info('{"codebase_version": "v3.0"}'), "required field `features`"),
    "a list": (info("[1]"), "Expected `object`, got `array`"),
    "no JSON": (info("{"), "info.json is damaged: it is not JSON"),
    "a version in numbers": (info_with(codebase_version=3.0), "Expected `str`, got `float`"),
    "features in words": (info_with(features="all"), "Expected `object`, got `str`"),
    "another controls": (info_with(features={CAMERA: {"dtype": "image"}}), "info.json has no act"),
    "a path outside": (info_with(data_path="../data.parquet"), "'../data.parquet', which lies els"),
    "an unknown pattern": (info_with(data_path="{episode}.parquet"), "KeyError: 'episode'"),
    "no tables of episodes": (
        lambda f: (f / EPISODES).unlink(),
        "controls: action) holds",
    ),
    "no place of an episode": (column(EPISODES, "data/file_index"), "has no data/file_index; it "),
    "a place in words": (
        column(EPISODES, "data/file_index", ["a"] * 3),
        "Expected `int`, got `str`",
    ),
    "a wrong length": (column(EPISODES, "length", [7, 6, 9]), "has 5 rows of episode 1"),
    "an episode twice": (column(EPISODES, "episode_index", [0, 1, 1]), "episode 1 is repeated"),
    "a broken table": (cut(EPISODES), "Parquet"),
    "broken steps": (cut(STEPS), "Parquet"),
    "no frames": (column(STEPS, CAMERA), f"has no {CAMERA}; it has action, episode_index"),
    "frames in words": (column(STEPS, CAMERA, ["x"] * 21), "Expected `object`, got `str`"),
    "frames elsewhere": (
        column(STEPS, CAMERA, [{"bytes": None, "path": "/etc/hostname"}] * 21),
        "'/etc/hostname', which lies elsewhere",
    ),
    "no picture": (column(STEPS, CAMERA, [{"bytes": b"no", "path": None}] * 21), "UnidentifiedIm"),
    "ragged controls": (
        column(STEPS, "action", [[0.0] * (1 + t % 2) for t in range(21)]),
        "controls must be equally many numbers at every step",
    ),
    "controls beyond float32": (column(STEPS, "action", [[1e300]] * 21), "infinite, or too large"),
}


@pytest.mark.parametrize("name", LEROBOT)
def test_lerobot(name: str, tmp_path: Path) -> None:
    damage, complaint = LEROBOT[name]
    damage(as_lerobot(tmp_path / "mine", some()))
    refused("lerobot", tmp_path / "mine", complaint)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (info_with(video_path=None), "names the file '', which lies elsewhere"),
        (info_with(fps=0), "videos need frames per second"),
        (column(EPISODES, f"videos/{CAMERA}/from_timestamp", [float("nan")] * 3), "and a start"),
        (column(EPISODES, f"videos/{CAMERA}/from_timestamp", [9.0] * 3), "has no frame 0 of"),
        (column(EPISODES, f"videos/{CAMERA}/file_index"), "has no videos/"),
        (lambda f: (f / f"videos/{CAMERA}/{CHUNK}.mp4").write_bytes(b"no"), "file-000.mp4 cannot"),
    ],
)
def test_lerobot_videos(damage: Damage, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    damage(as_filmed(tmp_path / "mine", some()))
    refused("lerobot", tmp_path / "mine", complaint)


HDF5: dict[str, tuple[dict[str, Any], str]] = {
    "controls in words": ({"action": np.array([b"left"] * 21)}, "equally many numbers at every"),
    "a group of controls": ({"action": None}, "action is no data set with a row per step"),
    "one control": ({"action": 3.0}, "action is no data set with a row per step"),
    "fewer controls": ({"action": np.zeros((20, 3))}, "has 21 frames and 20 controls"),
    "before the first row": ({"ep_offset": [-3, 7, 12]}, "rows -3 to 4; they must be among the 21"),
    "after the last row": ({"ep_len": [7, 5, 100]}, "rows 12 to 112; they must be among the 21"),
    "overlapping": ({"ep_offset": [0, 6, 12]}, "rows 6 to 11; they must"),
    "no step": ({"ep_len": [7, 0, 9]}, "rows 7 to 7; they must"),
    "lengths in parts": ({"ep_len": [7.0, 5.0, 9.0]}, "must be one integer per episode"),
    "a length too few": ({"ep_len": [7, 5]}, "must be one integer per episode"),
    "frames as numbers": ({"pixels": np.zeros((21, 8, 8, 3), np.float32)}, "must be uint8"),
    "flat frames": ({"pixels": np.zeros((21, 8), np.uint8)}, "must be uint8"),
    "frames of no size": ({"pixels": np.zeros((21, 0, 8, 3), np.uint8)}, "none of it 0"),
    "no episode": ({"ep_len": np.zeros(0, int), "ep_offset": np.zeros(0, int)}, "holds no episode"),
}


@pytest.mark.parametrize("name", HDF5)
def test_hdf5(name: str, tmp_path: Path) -> None:
    changes, complaint = HDF5[name]
    path = as_hdf5(tmp_path, some())
    changed(path, changes)
    refused("hdf5", path, complaint)


def changed(path: Path, columns: dict[str, Any]) -> None:
    """Replace columns of an HDF5 file; None makes a group."""
    with h5py.File(path, "r+") as file:
        for name, values in columns.items():
            del file[name]
            if values is None:
                file.create_group(name)
            else:
                file[name] = values


@pytest.mark.parametrize(
    ("name", "values", "complaint"),
    [
        ("pixels", [coded(np.zeros((8, 8, 3), np.uint8), "JPEG")[:-99]] * 21, "cannot be read"),
        ("pixels", [b""] * 21, "UnidentifiedImageError"),
        ("action", [[0.0] * (1 + t % 2) for t in range(21)], "equally many numbers"),
        ("episode_idx", ["a"] * 21, "episode_idx must be an integer"),
        ("episode_idx", [None] * 21, "episode_idx must be an integer"),
        ("step_idx", [3] * 21, "step 3 of episode 0 comes after 3"),
    ],
)
def test_lance(name: str, values: Any, complaint: str, tmp_path: Path) -> None:
    lance = pytest.importorskip("lance")
    path = as_lance(tmp_path, some()) / "push.lance"
    table = lance.dataset(str(path)).to_table()
    columns = {other: table.column(other) for other in table.column_names}
    lance.write_dataset(pa.table({**columns, name: values}), str(path), mode="overwrite")
    refused("lance", path, complaint)


def refused(format: str, path: Path, complaint: str) -> None:
    """The command ends with an error that names the data set and says what is wrong."""
    done = djepa("import", format, path, "--out", path.parent / "out", "--size", 8)
    said = " ".join(done.stderr.split())
    assert done.returncode == 1
    assert path.name in said
    assert complaint in said


# ------------------------------------------------------------------------------ shared checks


def test_errors_of_a_library_name_the_file_and_ours_stay() -> None:
    class Panic(BaseException):
        """As a library in Rust raises it."""

    for error in (KeyError("a"), MemoryError(), Panic("out of range")):
        complaint = rf"a\.bin cannot be read.*{type(error).__name__}"
        with pytest.raises(DjepaError, match=complaint), reading(Path("a.bin")):
            raise error
    for other in (DjepaError("known"), KeyboardInterrupt()):
        with pytest.raises(type(other)) as found, reading(Path("a.bin")):
            raise other
        assert found.value is other


def test_controls_and_frames() -> None:
    here = Path("a.bin")
    assert to_controls(here, [1, 2]).tolist() == [[1.0], [2.0]]
    assert np.isinf(to_controls(here, [[1e300]])).all()
    for wrong in ([[1.0], [1.0, 2.0]], [["a"]], [None, None], [], [[]], [1 + 2j]):
        with pytest.raises(DjepaError, match=r"a\.bin: controls must be equally many"):
            to_controls(here, wrong)
    small, large = (coded(np.zeros((n, n, 3), np.uint8)) for n in (4, 5))
    assert to_frames(here, [small, small]).shape == (2, 4, 4, 3)
    with pytest.raises(DjepaError, match="must have one size"):
        to_frames(here, [small, large])
    with pytest.raises(DjepaError, match=r"a\.bin cannot be read"):
        to_frames(here, [small[:40]])
    for name in ("../a", "/a", "", "a/../../b", "a\0b"):
        with pytest.raises(DjepaError, match="which lies elsewhere"):
            inside(here, name)


# ------------------------------------------------------------------------------ anything at all

NUMBERS = st.integers(-(2**40), 2**40) | st.floats()
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def edited(draw: st.DrawFn, value: Any) -> Any:
    """The JSON value, one part of it anywhere replaced by another or lost."""
    found = at = copy.deepcopy(value)
    while True:
        key = draw(st.sampled_from(sorted(at)))
        if isinstance(at[key], dict) and at[key] and draw(st.booleans()):
            at = at[key]
        elif draw(st.booleans()):
            del at[key]
            return found
        else:
            at[key] = draw(JSON)
            return found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("written")
    return {"lerobot": as_lerobot(home / "lerobot", some()), "hdf5": as_hdf5(home, some())}


def read(format: str, path: Path) -> list[RecordedEpisode] | None:
    """All episodes; None if they were refused, by name. Any other error fails the test."""
    try:
        return list(get_reader(format)(path, Columns()))
    except DjepaError as error:
        said = str(error)
    assert str(path) in said
    return None


def same(found: list[RecordedEpisode], expected: list[RecordedEpisode]) -> bool:
    pairs = zip(found, expected, strict=True)
    return all(np.array_equal(a.frames, b.frames) for a, b in pairs)


@contextmanager
def changing(file: Path, data: bytes) -> Iterator[None]:
    """The file with other content for a while."""
    good = file.read_bytes()
    file.write_bytes(data)
    try:
        yield
    finally:
        file.write_bytes(good)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_metadata_are_read_rightly_or_refused(written: dict[str, Path], data: Any) -> None:
    path = written["lerobot"]
    file = path / "meta/info.json"
    value = data.draw(JSON | edited(json.loads(file.read_text())))
    with changing(file, json.dumps(value).encode()):
        found = read("lerobot", path)
    assert found is None or same(found, some())


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_table_of_episodes_is_read_rightly_or_refused(
    written: dict[str, Path], data: Any
) -> None:
    path = written["lerobot"]
    table = pq.read_table(path / EPISODES)
    name = data.draw(st.sampled_from(table.column_names))
    kinds = st.integers(-2, 9), st.floats(), st.text(max_size=3), st.none(), st.booleans()
    values = data.draw(st.one_of(*(st.lists(of, min_size=3, max_size=3) for of in kinds)))
    good = (path / EPISODES).read_bytes()
    with changing(path / EPISODES, good):
        column(EPISODES, name, values)(path)
        found = read("lerobot", path)
    assert found is None or same(found, some())


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_places_of_episodes_are_whole_ones_or_refused(data: Any) -> None:
    numbers = st.lists(st.integers(-3, 25), min_size=3, max_size=3)
    odd = st.lists(st.floats(allow_nan=False), max_size=3) | st.just([b"a", b"b", b"c"])
    places = {name: data.draw(numbers | odd) for name in ("ep_len", "ep_offset")}
    with tempfile.TemporaryDirectory() as home:
        path = as_hdf5(Path(home), some())
        changed(path, places)
        found = read("hdf5", path)
    if found is not None:
        frames = np.concatenate([one.frames for one in some()])
        assert [len(one.frames) for one in found] == places["ep_len"]
        for one, begin in zip(found, places["ep_offset"], strict=True):
            assert np.array_equal(one.frames, frames[begin : begin + len(one.frames)])
        assert sum(len(one.frames) for one in found) <= len(frames)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(data=st.data())
def test_damaged_files_are_refused_or_read_in_whole_episodes(
    written: dict[str, Path], data: Any
) -> None:
    """A flipped byte of a frame that is stored plainly cannot be noticed; nothing else may pass."""
    format = data.draw(st.sampled_from(["lerobot", "hdf5"]))
    path = written[format]
    files = sorted(f for f in path.rglob("*") if f.is_file()) if path.is_dir() else [path]
    file = data.draw(st.sampled_from(files))
    good = file.read_bytes()
    at = data.draw(st.integers(0, len(good) - 1))
    other = data.draw(st.just(None) | st.binary(min_size=1, max_size=8))  # None: cut there
    bad = good[:at] if other is None else good[:at] + other + good[at + len(other) :]
    with changing(file, bad):
        found = read(format, path)
    for one in found or ():
        assert one.frames.dtype == np.uint8
        assert len(one.frames) == len(one.controls) > 0
