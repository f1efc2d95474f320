"""Recorded episodes of other libraries: read as they were written, and trained on."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from recorded_kit import LENGTHS, Write, as_filmed, as_hdf5, as_lance, as_lerobot, some

from commands import djepa
from djepa.audit.recorded import hindsight
from djepa.errors import DjepaError
from djepa.interop.recorded import Columns, RecordedEpisode, get_reader, resized, write_recorded
from djepa.models import episodes as simulated
from djepa.models.lewm import SIZES
from djepa.models.recipes import TrainConfig
from djepa.models.train import Trainer
from djepa.models.weights import card, save_geometry
from djepa.tasks.recorded import Recording
from djepa.tasks.task import Scene, get_task
from tiny import TINY, simulate

FORMATS: dict[str, tuple[str, Write, int]] = {  # reader, writer, levels that compression may cost
    "hdf5": ("hdf5", as_hdf5, 0),
    "lance": ("lance", as_lance, 12),
    "lerobot": ("lerobot", as_lerobot, 0),
    "lerobot, video": ("lerobot", as_filmed, 24),
}


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_read_is_what_was_written(name: str, tmp_path: Path) -> None:
    reader, write, levels = FORMATS[name]
    written = some(size=32)
    path = write(tmp_path, written)
    found = list(get_reader(reader)(path, Columns()))
    assert len(found) == len(written)
    for got, want in zip(found, written, strict=True):
        apart = np.abs(got.frames.astype(int) - want.frames)
        assert got.frames.shape == want.frames.shape
        assert apart.mean() <= levels / 2
        assert apart.max() <= levels or name == "lerobot, video"
        told = np.isfinite(got.controls)
        assert np.array_equal(got.controls[told], want.controls[told])
        assert told[:-1].all()


def test_the_command_writes_a_folder_and_goes_on(tmp_path: Path) -> None:
    path, out = as_hdf5(tmp_path, some()), tmp_path / "out"
    given = ("import", "hdf5", path, "--out", out, "--size", 8, "--stride", 1)
    done = djepa(*given)
    assert done.returncode == 0, done.stderr
    assert "3 episodes, 21 frames, controls of 3 numbers" in done.stdout
    stored, written = Recording(out), some()
    assert stored.lengths.tolist() == list(LENGTHS)
    assert np.array_equal(stored.frames, np.concatenate([resized(e.frames, 8) for e in written]))
    before = (out / "manifest.json").read_bytes()
    assert djepa(*given).returncode == 0
    assert (out / "manifest.json").read_bytes() == before
    few = djepa(*given[:3], "--out", tmp_path / "few", "--episodes", 2)
    assert "2 episodes, 12 frames" in few.stdout


def test_a_geometry_is_trained_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both phases; validation episodes are other ones; checkpoints are chosen without execution."""
    monkeypatch.setattr(simulated, "SHARD", 8)
    monkeypatch.setitem(SIZES, "small", TINY)
    out = write_recorded(tmp_path / "data", some((40, 30, 50), 28), "by hand", 28, 2)
    task = get_task(str(out))
    assert (task.stride, task.actions, task.horizon) == (2, 3, 10)
    config = TrainConfig("lewm", world=str(out), steps=8, episodes=24, shrink=64, development=1)
    shards = simulated.plan_shards(tmp_path / "e", 24, 0, config.shapes, config.world)
    simulate(shards)
    seen = [set(shard.read()["states"].ravel().astype(int).tolist()) for shard in shards]
    assert max(seen[0]) < 40  # of the first episode alone
    assert not seen[0] & (seen[1] | seen[2])
    arrays, stored = shards[1].read(), Recording(out)
    rows = arrays["states"][0, :-1, 0].astype(int)
    assert np.array_equal(arrays["controls"][0], stored.controls[rows])
    frames, felt = Scene(config.world, "recorded").observe(torch.tensor([[3.0], [41.0]]), 28)
    assert np.array_equal(frames.numpy(), stored.frames[[3, 41]])
    assert not felt.any()
    assert Scene(config.world, "recorded").observe(torch.tensor([[3.0]]), 14)[0].shape[1] == 14
    trainer = Trainer(config, tmp_path / "weights", tmp_path / "e")
    trained = trainer.run()
    assert (trained.config.actions, trained.stride) == (3, 2)
    log = [json.loads(line) for line in (tmp_path / "weights/log.jsonl").read_text().splitlines()]
    assert any("validation" in entry for entry in log)
    assert not any("selection" in entry for entry in log)
    save_geometry(trained, tmp_path / "own", card({"world": config.world}, trained, "", {}))
    done = djepa("audit", out, "--geometry", tmp_path / "own")
    assert done.returncode == 0, done.stderr
    assert "recorded controls come first" in done.stdout
    done = djepa("audit", out, "--geometry", "lewm")
    assert (done.returncode, "takes controls of 2 numbers" in done.stderr) == (1, True)


def test_hindsight_is_what_was_recorded(tmp_path: Path) -> None:
    out = write_recorded(tmp_path / "data", some((40, 30, 50), 28), "by hand", 28, 2)
    stored = Recording(out)
    known, own = hindsight(stored, 5)
    assert known.actions.shape == (5, 16, 10, 3)
    for i, at in enumerate(known.state[:, 0].astype(int)):
        assert np.array_equal(known.actions[i, own[i]], stored.controls[at : at + 10])
        assert known.goal[i, 0] == at + 10
        assert known.context[i, :, 0].tolist() == [at - 4, at - 2, at]
        assert np.array_equal(known.history[i], stored.controls[at - 4 : at])
        assert 4 <= at < 30  # within the first episode, which was set aside


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"frames": np.zeros((4, 8, 8), np.uint8)}, "frames must be uint8"),
        ({"controls": np.zeros((3, 2), np.float32)}, "4 frames need as many controls"),
        ({"controls": np.array([[0.0], [np.nan], [0.0], [0.0]], np.float32)}, "not finite, later"),
    ],
)
def test_episodes_that_make_no_sense_are_refused(change, complaint: str, tmp_path: Path) -> None:
    frames, controls = np.zeros((4, 8, 8, 3), np.uint8), np.zeros((4, 2), np.float32)
    episode = replace(RecordedEpisode(frames, controls), **change)
    with pytest.raises(DjepaError, match=complaint):
        write_recorded(tmp_path / "out", [episode], "by hand", 8)


def test_bad_files_are_named(tmp_path: Path) -> None:
    path = as_hdf5(tmp_path, some())
    with pytest.raises(DjepaError, match="has no frames; it has"):
        list(get_reader("hdf5")(path, Columns("frames")))
    (tmp_path / "text.h5").write_text("no")
    with pytest.raises(DjepaError, match="no HDF5 file"):
        list(get_reader("hdf5")(tmp_path / "text.h5", Columns()))
    with pytest.raises(DjepaError, match=r"Unknown format 'lerobt'\. Did you mean 'lerobot'"):
        get_reader("lerobt")
    with pytest.raises(DjepaError, match="no LeRobot data set"):
        list(get_reader("lerobot")(tmp_path, Columns()))
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta/info.json").write_text('{"codebase_version": "v2.1"}')
    with pytest.raises(DjepaError, match=r"version v2\.1; version 3 is read"):
        list(get_reader("lerobot")(tmp_path, Columns()))
    assert "There is no" in djepa("import", "hdf5", tmp_path / "absent").stderr
    short = write_recorded(tmp_path / "short", some(), "by hand", 8)
    with pytest.raises(DjepaError, match="no episode to train on is longer than 80 controls"):
        Recording(short).starts(held_out=False)
