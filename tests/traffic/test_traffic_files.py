"""Recorded traffic: four formats, one content; what is damaged or hostile is refused by name."""

import os
import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from traffic_files import (
    HOSTILE,
    NUMBERS,
    RECTANGLE,
    forged,
    npz_arrays,
    obstacle,
    older,
    polygon,
    scenario,
    states,
    write_av2,
    write_npz,
    write_pickle,
    write_xml,
)

from djepa.errors import DjepaError
from djepa.rollout.driving import RECORDED, TrafficConfig, recorded_files, scenes_in
from djepa.worlds.traffic.av2 import BOXES
from djepa.worlds.traffic.judge import Judge
from djepa.worlds.traffic.read import read_recording, recorded_scenes
from djepa.worlds.traffic.recording import Recording, cut, egos
from djepa.worlds.traffic.scenarionet import Steps
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


def test_every_protocol_and_both_numpy_versions_give_the_same(tmp_path: Path) -> None:
    extra = {
        "rate": np.float64(10),
        "text": np.str_("kä"),
        "words": np.array(["a", "bc"]),
        "swapped": np.arange(3, dtype=">f4"),
        "turned": np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2),
        "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "none": np.zeros((0, 3)),
        "bytes": b"\xff",
        "numbers": [-5, 10**20, 1.5, True, None, (1, 2, 3, 4)],
        "counts": defaultdict(int, a=1),
    }
    for protocol in (2, 3, 4, 5):
        data = pickle.dumps(scenario() | extra, protocol)
        for one in (data, older(data)):
            path = tmp_path / "a.pkl"
            path.write_bytes(one)
            np.testing.assert_allclose(read_recording(path).state, states())
            found = Steps().follow(one)
            for name, value in extra.items():
                if isinstance(value, np.ndarray):
                    np.testing.assert_array_equal(found[name].values, value)
                else:
                    assert found[name] == value


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_pickles_are_refused_by_name(what: str, tmp_path: Path) -> None:
    assert Steps().follow(forged(b"f8", NUMBERS)).values.tolist() == [0.0]
    path = tmp_path / "odd.pkl"
    path.write_bytes(HOSTILE[what])
    with pytest.raises(DjepaError, match=r"odd\.pkl"):
        read_recording(path)


def test_a_pickle_that_repeats_a_long_text_is_refused() -> None:
    text = b"X\0\0\x10\0" + (1 << 20) * b"a" + b"q\0"
    encoded = b"c_codecs\nencode\nq\1" + b"h\1(h\0X\6\0\0\0latin1tR" * 300
    with pytest.raises(DjepaError, match="256 MiB"):
        Steps().follow(b"\x80\3" + text + encoded + b".")


@pytest.mark.parametrize(
    ("about", "wrong"),
    [
        ({"sample_rate": 10}, ""),
        ({"sample_rate": np.float64(0.1)}, ""),
        ({"ts": [0.0, 0.1, 0.2001]}, ""),
        ({"sample_rate": 20.0}, r"0\.05 s"),
        ({"ts": 0.5 * np.arange(5)}, r"0\.5 s"),
        ({"ts": np.array([0.0, np.nan, 0.2])}, "nan s"),
        ({"ts": np.zeros(1)}, "neither"),
        ({}, "neither"),
    ],
)
def test_scenarionet_must_be_at_10_hz(about: dict[str, Any], wrong: str, tmp_path: Path) -> None:
    path = write_pickle(tmp_path / "a.pkl", metadata=about)
    if not wrong:
        assert read_recording(path).ids == ("1", "2", "3")
        return
    with pytest.raises(DjepaError, match=rf"a\.pkl.*{wrong}"):
        read_recording(path)


def test_categories_and_sizes_of_argoverse(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    steps = 60
    words = np.repeat(["DOG", "OFFICIAL_SIGNALER", "TRAFFIC_LIGHT_TRAILER"], steps)
    stamps = np.tile(10**8 * np.arange(steps)[::-1] + 5, 3)  # the last frame comes first
    length = np.tile(np.linspace(2.0, 1.0, steps), 3)
    folder = write_av2(
        tmp_path / "log", BOXES[1], category=words, timestamp_ns=stamps, length_m=length
    )
    got = read_recording(folder)
    assert got.kind.tolist() == [Kind.PEDESTRIAN, Kind.PEDESTRIAN, Kind.STATIC, Kind.VEHICLE]
    np.testing.assert_allclose(got.size[:3, 0], 1.0)


def test_logs_of_argoverse_are_found_and_known_by_what_is_read(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    write_av2(tmp_path / "one")
    write_av2(tmp_path / "two", BOXES[1])
    write_npz(tmp_path / "a.npz")
    (tmp_path / "other").mkdir()
    files = recorded_files(tmp_path)
    assert [name for name, _ in files] == ["a.npz", "one", "two"]
    (tmp_path / "one/notes.txt").write_text("not read")
    assert recorded_files(tmp_path) == files
    config = TrafficConfig(RECORDED, 3, files=files)
    assert {scene.log for scene in scenes_in(config, 2, tmp_path)} == {"two"}
    archive = tmp_path / "one/map/log_map_archive_tiny.json"
    archive.write_text(archive.read_text() + " ")
    assert [a == b for a, b in zip(files, recorded_files(tmp_path), strict=True)] == [1, 0, 1]
    archive.unlink()
    with pytest.raises(DjepaError, match=r"one.*exactly one map"):
        recorded_files(tmp_path)


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_feather_that_unpacks_to_too_much_is_refused(compression: str, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    folder = write_av2(tmp_path / "log")
    file = folder / "annotations.feather"
    pa.feather.write_feather(
        pa.table({"a": np.zeros(1 << 19)}), file, compression, chunksize=1 << 19
    )
    with pytest.raises(DjepaError, match="timestamp_ns"):
        read_recording(folder)
    data, said = file.read_bytes(), (4 << 20).to_bytes(8, "little")
    assert data.count(said) >= 1
    file.write_bytes(data.replace(said, (1 << 40).to_bytes(8, "little")))
    with pytest.raises(DjepaError, match=r"annotations\.feather.*256 MiB"):
        read_recording(folder)


def test_recordings_of_a_take_show_a_car_once_at_a_time(tmp_path: Path) -> None:
    starts = {"a": 30, "b": 0, "c": 60, "d": 120}  # c begins within 5 s of a, not of b
    for name, start in starts.items():
        write_npz(tmp_path / f"{name}.npz", take_start=np.int64(start))
    write_npz(tmp_path / "e.npz", take=np.array("other"), take_start=np.int64(10))
    write_npz(tmp_path / "f.npz")  # of the same take, but it does not say when
    files = recorded_files(tmp_path)
    config = TrafficConfig(RECORDED, len(files), files=files)
    found = [len(scenes_in(config, log, tmp_path)) for log in range(len(files))]
    assert found == [0, 2, 0, 2, 2, 2]


@pytest.mark.parametrize(
    ("name", "log"),
    [
        ("USA_US101-5_1_T-1", "USA_US101"),
        ("USA_US101-15_1_T-2", "USA_US101"),
        ("C-DEU_A9-2_1_T-1", "DEU_A9"),
        ("USA_Lanker-2", "USA_Lanker"),
        ("tiny", "tiny"),
        ("USA_US101", "USA_US101"),
    ],
)
def test_commonroad_scenarios_of_one_place_are_one_log(name: str, log: str, tmp_path: Path) -> None:
    scene = next(recorded_scenes(write_xml(tmp_path / "a.xml", name)))
    assert (scene.log, scene.name) == (log, f"{name}/1@0")


@pytest.mark.parametrize(
    ("shape", "heading", "state", "size"),
    [
        (polygon((-2, -1), (2, -1), (2, 1), (-2, 1)), 0.3, [10, 20, 0.3], [4, 2]),
        (polygon((0, 0), (6, 0), (0, 3)), 0.0, [13, 21.5, 0], [6, 3]),
        # About its centroid (2, 1), from where the middle of its box is (1, 0.5) away.
        (polygon((0, 0), (6, 0), (0, 3)), np.pi / 2, [11.5, 22, np.pi / 2], [6, 3]),
        (RECTANGLE, 0.3, [11, 20, 0.8], [4, 2]),
        ("<circle><radius>1</radius></circle>", 0.0, [10, 20, 0], [2, 2]),
        (
            "<circle><radius>1</radius></circle>" + polygon((0, 0), (6, 0), (0, 3)),
            0,
            [12.5, 21, 0],
            [7, 4],
        ),
    ],
)
def test_shapes_of_commonroad_become_boxes(
    shape: str, heading: float, state: list[float], size: list[float], tmp_path: Path
) -> None:
    path = write_xml(tmp_path / "a.xml", extra=obstacle(shape, "building", heading))
    got = read_recording(path)
    np.testing.assert_allclose(got.state[3, [0, -1]], [[*state, 0]] * 2, atol=1e-9)
    np.testing.assert_allclose(got.size[3], size)


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("building", Kind.STATIC),
        ("pillar", Kind.STATIC),
        ("medianStrip", Kind.STATIC),
        ("unknown", Kind.STATIC),
        ("constructionZone", Kind.STATIC),
        ("parkedVehicle", Kind.VEHICLE),
        ("pedestrian", Kind.PEDESTRIAN),
    ],
)
def test_what_stands_and_is_no_road_user_is_static(word: str, kind: Kind, tmp_path: Path) -> None:
    path = write_xml(tmp_path / "a.xml", extra=obstacle(RECTANGLE, word))
    assert read_recording(path).kind[3] == kind


@pytest.mark.parametrize("shape", ["", "<line/>", polygon((0, 0), (1, 1))])
def test_odd_shapes_are_refused_by_name(shape: str, tmp_path: Path) -> None:
    path = write_xml(tmp_path / "odd.xml", extra=obstacle(shape, "building"))
    with pytest.raises(DjepaError, match=r"odd\.xml"):
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
