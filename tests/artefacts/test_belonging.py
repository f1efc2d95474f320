"""Parts that do not belong together are refused, and what is not ours is left alone."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from artefact import Artefact
from every_kind import PAIR, Sums, population
from test_attacks import flipped

from commands import djepa
from djepa.align.plastic import load_patch, save_patch
from djepa.align.store import load_alignment, save_alignment
from djepa.artefacts.folder import read_shard, seal_shard
from djepa.artefacts.write import Writer
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.lift.file import write_planner
from djepa.lift.planner import load_planner
from djepa.models.lewm import LeWM
from djepa.models.predictions import EVIDENCE, predict_bank, read_predictions
from djepa.models.tdjepa import TDJEPA
from djepa.models.weights import load_geometry, save_geometry, weights_hash
from tiny import TINY


@pytest.fixture
def other_weights(tmp_path: Path) -> Path:
    torch.manual_seed(7)
    save_geometry(TDJEPA(TINY).eval(), tmp_path / "other", {})
    return tmp_path / "other"


def test_an_alignment_decides_on_evidence_of_its_own_weights(
    artefacts: dict[str, Artefact], other_weights: Path
) -> None:
    alignment = load_alignment(artefacts["alignment"].path)
    assert set(alignment.weights) == set(PAIR)
    alignment.decide(population("new", {}).evidence)  # arrays say nothing of weights
    alignment.decide(population("new", alignment.weights).evidence)
    strange = {**alignment.weights, "tdjepa": weights_hash(other_weights)}
    with pytest.raises(DjepaError, match="'tdjepa' was predicted by weights"):
        alignment.decide(population("new", strange).evidence)


def test_a_planner_has_the_geometries_of_its_alignment(
    artefacts: dict[str, Artefact], other_weights: Path, tmp_path: Path
) -> None:
    alignment = load_alignment(artefacts["alignment"].path)
    mine, file = artefacts["weights"].path.parent / "lewm", tmp_path / "p.safetensors"
    with pytest.raises(DjepaError, match="'tdjepa' was predicted by weights"):
        write_planner(file, alignment, [str(mine), str(other_weights)], "tdjepa", {})
    with pytest.raises(DjepaError, match="needs the geometries tdjepa"):
        write_planner(file, alignment, [str(mine)], "lewm", {})
    assert not file.exists()  # the corrected command finds nothing in its way


EXCHANGED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a later version": (lambda r: r.update(version=99), "this version reads djepa-planner"),
    "another kind": (lambda r: r.update(format="djepa-bank"), "this version reads djepa-planner"),
    "a field nobody knows": (lambda r: r.update(trust="me"), "unknown field"),
    "other weights": (lambda r: r["geometries"].pop("lewm"), "needs the geometries lewm"),
    "a tensor that is elsewhere": (lambda r: r["same"].update(x="nowhere"), "lacks 'nowhere'"),
    "another shape": (lambda r: r["alignment"].update(inputs=7), "do not fit"),
    "no threshold": (lambda r: r["gate"].update(threshold="NaN"), "of another make"),
}


@pytest.mark.parametrize("edit", EXCHANGED)
def test_a_planner_sealed_with_wrong_contents_is_refused(
    edit: str, artefacts: dict[str, Artefact], tmp_path: Path
) -> None:
    arrays, record = read_shard(artefacts["planner"].path / "p.safetensors")
    change, complaint = EXCHANGED[edit]
    change(record)
    file = tmp_path / "p.safetensors"
    file.write_bytes(seal_shard(file, arrays, record))
    with pytest.raises(DjepaError, match=complaint):
        load_planner(file)


def test_evidence_stays_with_its_geometry_and_bank(
    artefacts: dict[str, Artefact], tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(artefacts["evidence"].path.parents[1], tmp_path / "copy"))
    (copy / "evidence/sums").rename(copy / "evidence/lewm")
    with pytest.raises(DjepaError, match="evidence of 'sums'"):
        read_predictions(Bank(copy), "lewm")
    (copy / "evidence/lewm").rename(copy / "evidence/sums@dark")
    with pytest.raises(DjepaError, match="evidence of 'sums'"):
        read_predictions(Bank(copy), "sums@dark")


def test_predicting_again_does_not_launder_damage(
    artefacts: dict[str, Artefact], tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(artefacts["evidence"].path.parents[1], tmp_path / "copy"))
    bank, shard = Bank(copy), copy / "evidence/sums/block-000001.safetensors"
    data = shard.read_bytes()
    shard.write_bytes(flipped(data, -1))
    with pytest.raises(DjepaError, match=r"block-000001.*damaged"):
        predict_bank(bank, Sums(), "abc")
    with pytest.raises(DjepaError, match="damaged"):
        read_predictions(bank, "sums")
    (copy / "evidence/sums/manifest.json").unlink()  # nor if it was never finished
    with pytest.raises(DjepaError, match="not empty and not a set of predictions"):
        predict_bank(bank, Sums(), "abc")


def test_check_reads_the_predictions_too(artefacts: dict[str, Artefact], tmp_path: Path) -> None:
    copy = Path(shutil.copytree(artefacts["evidence"].path.parents[1], tmp_path / "copy"))
    done = djepa("check", copy, "--sample", 1)
    assert (done.returncode, "predictions of sums: 3 shards" in done.stdout) == (0, True)
    shard = copy / "evidence/sums/block-000002.safetensors"
    shard.write_bytes(flipped(shard.read_bytes(), -1))
    done = djepa("check", copy, "--sample", 1)
    assert done.returncode == 1
    assert "block-000002.safetensors is damaged" in done.stderr


def test_fit_asks_for_its_folder_before_it_begins(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("mine")
    done = djepa("fit", "nowhere", "--calibration", "nowhere", "--out", tmp_path)
    assert done.returncode == 1
    assert "not empty and not an alignment (it holds config.json)" in done.stderr
    assert (tmp_path / "config.json").read_text() == "mine"


def test_weights_of_another_world_are_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    save_geometry(LeWM(TINY).eval(), tmp_path / "w", {"recipe": {"world": "reacher"}})
    with pytest.raises(DjepaError, match="trained in the world 'reacher', not in 'push'"):
        load_geometry(tmp_path / "w", world="push")


# -------------------------------------------------------------------------- what is not ours


@pytest.fixture
def strangers(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "theirs"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "card.json", "patch.safetensors"):
        (folder / name).write_text("somebody's")
    yield folder
    assert len(list(folder.iterdir())) == 4
    assert all(file.read_text() == "somebody's" for file in folder.iterdir())


def test_nothing_of_somebody_elses_is_overwritten(
    strangers: Path, artefacts: dict[str, Artefact]
) -> None:
    alignment = load_alignment(artefacts["alignment"].path)
    model = load_geometry(artefacts["weights"].path)
    patch = load_patch(artefacts["patch"].path)
    attempts: tuple[Callable[[], Any], ...] = (
        lambda: save_alignment(alignment, strangers, {}),
        lambda: save_geometry(model, strangers, {}),
        lambda: save_patch(patch, strangers),
    )
    for attempt in attempts:
        with pytest.raises(DjepaError, match="is not empty and not a"):
            attempt()


def test_a_finished_folder_is_not_overwritten(artefacts: dict[str, Artefact]) -> None:
    alignment = load_alignment(artefacts["alignment"].path)
    with pytest.raises(DjepaError, match="holds a finished alignment"):
        save_alignment(alignment, artefacts["alignment"].path, {"note": "y"})
    save_alignment(alignment, artefacts["alignment"].path, {"note": "x"})  # the same: nothing to do
    with pytest.raises(DjepaError, match="is djepa-alignment"):
        save_geometry(load_geometry(artefacts["weights"].path), artefacts["alignment"].path, {})


def test_two_writers_do_not_share_a_folder(tmp_path: Path) -> None:
    about = {"geometry": "x", "world": "push", "look": "plain", "futures": "false"}
    with Writer(tmp_path, EVIDENCE, about).opened() as writer:
        writer.write({"block-000000.safetensors": b"x"})
        second = Writer(tmp_path, EVIDENCE, about)
        with pytest.raises(DjepaError, match="Another process"), second.opened():
            pass
    assert not (tmp_path / ".lock").exists()


def test_a_flipped_bit_in_the_journal_is_noticed(tmp_path: Path) -> None:
    about = {"geometry": "x", "world": "push", "look": "plain", "futures": "false"}
    with Writer(tmp_path, EVIDENCE, about).opened() as writer:
        writer.write({"block-000000.safetensors": b"x"}, {"drops": 3})
    journal = tmp_path / "journal.jsonl"
    journal.write_text(journal.read_text().replace('"drops": 3', '"drops": 2'))
    again = Writer(tmp_path, EVIDENCE, about)
    with pytest.raises(DjepaError, match="damaged in line 1"), again.opened():
        pass
