"""Recorded traffic: four formats, one content; what is damaged or hostile is refused by name."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from traffic_files import (
    npz_arrays,
    scenario,
    states,
    write_av2,
    write_npz,
    write_pickle,
    write_xml,
)

from djepa.errors import DjepaError
from djepa.worlds.traffic.judge import Judge
from djepa.worlds.traffic.read import read_recording, recorded_scenes
from djepa.worlds.traffic.recording import Recording, cut, egos
from djepa.worlds.traffic.scene import Kind

WRITERS = {
    "tiny.npz": write_npz,
    "tiny.xml": write_xml,
    "tiny.pkl": write_pickle,
    "tiny": write_av2,
}


def tiny(name: str, folder: Path) -> Recording:
    if name == "tiny":
        pytest.importorskip("pyarrow")
    return read_recording(WRITERS[name](folder / name))


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_recording(name: str, tmp_path: Path) -> None:
    got = tiny(name, tmp_path)
    np.testing.assert_allclose(got.state[:3], states(), atol=1e-5)
    assert got.kind[:3].tolist() == [Kind.VEHICLE, Kind.VEHICLE, Kind.PEDESTRIAN]
    assert got.ids[:3] == ("1", "2", "3")
    assert got.log == "tiny"
    assert [lane.beside for lane in got.lanes] == [(1,), (0,)]
    np.testing.assert_allclose(got.lanes[1].centre[[0, -1]], [[-50, 1.75], [100, 1.75]])


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_scenes_that_can_be_judged(name: str, tmp_path: Path) -> None:
    got = tiny(name, tmp_path)
    assert egos(got)[:2] == [0, 1]
    scene = cut(got, 0)
    assert scene.route == (1, 0)
    assert scene.driven is not None
    np.testing.assert_allclose(scene.driven[-1], [20, 0, 0], atol=1e-4)
    judged = Judge(scene)(scene.driven[None])
    assert judged.progress[0] == pytest.approx(20, abs=0.01)
    assert (judged.nc[0], judged.dac[0], judged.comfort[0]) == (1, 1, 1)


def test_a_short_track_is_no_ego(tmp_path: Path) -> None:
    rows = states()
    offset = np.array([0, 50, 110, 170], np.int32)
    values = np.concatenate([rows[0, :50], rows[1], rows[2]]).astype(np.float32)
    path = write_npz(tmp_path / "a.npz", track_state=values, track_offset=offset)
    assert [scene.name for scene in recorded_scenes(path)] == ["tiny/2@0"]
    with pytest.raises(DjepaError, match=r"5\.1 s"):
        cut(read_recording(path), 0)


def test_a_car_near_one_of_unknown_path_is_no_ego(tmp_path: Path) -> None:
    near = np.array([12.0, 1.75, 0.0, 5.0], np.float32)
    path = write_npz(tmp_path / "a.npz", removed_state=near)
    assert egos(read_recording(path)) == []
    far = np.array([90.0, 1.75, 0.0, 5.0], np.float32)
    assert egos(read_recording(write_npz(tmp_path / "b.npz", removed_state=far))) == [0, 1]


@pytest.mark.parametrize(
    "changes",
    [
        {"lane_left": None},
        {"lane_offset": np.array([0, 3, 2], np.int32)},
        {"track_offset": np.array([0, 60, 120, 999], np.int32)},
        {"track_first": np.array([0, -1, 0])},
        {"track_first": np.array([0, 2**31 - 1, 0])},
        {"lane_beside_right": np.array([9, -1])},
        {"lane_left": np.full((4, 2), np.nan)},
        {"track_length": np.array([4.0, -1.0, 1.0])},
        {"track_state": np.full((180, 4), np.inf)},
        {"dt": np.float64(0.04)},
        {"track_class": np.array([{"a": 1}] * 3, object)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_damaged_arrays_are_refused_by_name(changes: dict[str, object], tmp_path: Path) -> None:
    path = write_npz(tmp_path / "bad.npz", **changes)
    with pytest.raises(DjepaError, match=r"bad\.npz"):
        read_recording(path)


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("part", [0.0, 0.5])
def test_truncated_files_are_refused_by_name(name: str, part: float, tmp_path: Path) -> None:
    tiny(name, tmp_path)
    path = tmp_path / name
    file = path / "annotations.feather" if path.is_dir() else path
    data = file.read_bytes()
    file.write_bytes(data[: int(part * len(data))])
    with pytest.raises(DjepaError, match="tiny"):
        read_recording(path)


def test_a_pickle_that_would_run_a_command_runs_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "ran"

    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {mark}",)

    path = tmp_path / "bomb.pkl"
    path.write_bytes(pickle.dumps(scenario() | {"metadata": Bomb()}))
    with pytest.raises(DjepaError, match=r"bomb\.pkl.*system"):
        read_recording(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "code",
    [
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cnumpy\nload\n(S'x'\ntR.",
        b"cnumpy._core.multiarray\nscalar\n(cnumpy\ndtype\n(S'O'\ntRS'x'\ntR.",
        b"cnumpy._core.multiarray\n_reconstruct\n(cnumpy\ndtype\n(I0\ntS'b'\ntR.",
    ],
)
def test_pickles_that_ask_for_more_than_arrays_are_refused(code: bytes, tmp_path: Path) -> None:
    path = tmp_path / "odd.pkl"
    path.write_bytes(code)
    with pytest.raises(DjepaError, match=r"odd\.pkl"):
        read_recording(path)


@pytest.mark.parametrize(
    "text",
    [
        '<!DOCTYPE a [<!ENTITY b "c">]><commonRoad timeStepSize="0.1">&b;</commonRoad>',
        "<other/>",
        '<commonRoad timeStepSize="0.1"/>',
        '<commonRoad timeStepSize="0.2"/>',
        '<commonRoad timeStepSize="0.1"><lanelet id="1"/></commonRoad>',
        "not xml",
    ],
)
def test_odd_xml_is_refused_by_name(text: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.xml"
    path.write_text(text)
    with pytest.raises(DjepaError, match=r"odd\.xml"):
        read_recording(path)


def test_unknown_formats_and_missing_files_are_refused(tmp_path: Path) -> None:
    for name in ("a.csv", "missing.npz"):
        with pytest.raises(DjepaError, match=name):
            read_recording(tmp_path / name)
    assert "lane_left" in npz_arrays()
