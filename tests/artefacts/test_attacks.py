"""Every kind of folder against damage and malice: one line that names it, never a wrong answer."""

import json
import pickle
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from commands import djepa
from djepa.align.fit import AlignConfig, Alignment
from djepa.align.methods import Population
from djepa.align.operator import OperatorConfig
from djepa.align.outcomes import Outcomes
from djepa.align.plastic import PATCH, Patch, base_hash, load_patch, plastic_names, save_patch
from djepa.align.store import ALIGNMENT, load_alignment, save_alignment
from djepa.align.suite import SUITE_KIND, Recipe, fit_suite, load_suite, unseen
from djepa.artefacts.folder import open_shard, read_shard, seal_shard
from djepa.artefacts.records import sha256
from djepa.artefacts.write import Writer
from djepa.bank.read import Bank
from djepa.bank.schema import BANK
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence
from djepa.lift.file import PLANNER, write_planner
from djepa.lift.planner import load_planner
from djepa.models.episodes import FORMAT, VERSION
from djepa.models.lewm import LeWM
from djepa.models.predictions import EVIDENCE, predict_bank, read_predictions
from djepa.models.tdjepa import TDJEPA
from djepa.models.weights import GEOMETRY, load_geometry, read_card, save_geometry, weights_hash
from djepa.studies.stages import STUDY, check_sealed, claim, seal
from tiny import TINY

PAIR = ("lewm", "tdjepa")
QUICK = AlignConfig(
    updates=2,
    every=1,
    batch=4,
    operator=OperatorConfig(inputs=1, width=8, layers=1, heads=2, hidden=8),
)


class Sums:
    """Sums of controls as latents: a geometry that costs nothing."""

    name, image, latent = "sums", 16, 3

    def encode(self, frames: Tensor, proprio: Tensor) -> Tensor:
        return proprio[..., :3] / 512

    def rollout(self, context: Tensor, history: Tensor, candidates: Tensor) -> Tensor:
        sums = candidates.unflatten(2, (-1, 5)).mean(3).cumsum(2)
        return context[:, -1][:, None, None] + torch.nn.functional.pad(sums, (0, 1))

    def native_cost(self, futures: Tensor, goal: Tensor) -> Tensor:
        return (futures[:, :, -1] - goal[:, None]).square().mean(-1)


def population(split: str, weights: dict[str, str]) -> Population:
    rng = np.random.default_rng([ord(c) for c in split])
    N, K, D = 8, 6, 4
    success = rng.random((N, K)) < 0.4
    success[:, :2] = True, False
    found = Evidence.from_arrays(
        start_ids=[sha256(f"{split}-{n}".encode()) for n in range(N)],
        candidate_ids=rng.random((N, K)).argsort(1),
        costs={name: rng.random((N, K)) for name in PAIR},
        latents={name: rng.normal(size=(N, K, D)).astype(np.float32) for name in PAIR},
        goals={name: rng.normal(size=(N, D)).astype(np.float32) for name in PAIR},
    )
    evidence = Evidence(**{**vars(found), "weights": weights})
    y = torch.from_numpy(success)
    return Population(evidence, Outcomes(evidence.identities, y, torch.ones_like(y)))


@dataclass
class Artefact:
    """A folder of one kind and all that is read from it."""

    path: Path
    read: Callable[[], Any]
    hashed: bool = True  # its manifest stands at the top of its folder

    @property
    def files(self) -> list[Path]:
        return sorted(file for file in self.path.rglob("*") if file.is_file())


RECORD = {"format": "djepa-episodes", "version": 2, "world": "push", "seed": 0}


@pytest.fixture(scope="module")
def artefacts(small_bank: Bank, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artefact]:
    """One small folder of every kind there is."""
    root = tmp_path_factory.mktemp("artefacts")
    for seed, kind in enumerate((LeWM, TDJEPA)):
        torch.manual_seed(seed)
        save_geometry(kind(TINY).eval(), root / "w" / kind.name, {"recipe": {"world": "push"}})
    weights = {name: weights_hash(root / "w" / name) for name in PAIR}
    parts = population("fit", weights), population("cal", weights)
    alignment = Alignment(QUICK).fit(parts[0].evidence, parts[0].outcomes)
    alignment.calibrate(parts[1].evidence, parts[1].outcomes)
    save_alignment(alignment, root / "alignment", {"note": "x"})
    planner = root / "planner" / "p.safetensors"
    write_planner(planner, alignment, [str(root / "w" / n) for n in PAIR], "tdjepa", {})
    recipe = Recipe({"fusion": (PAIR, None)}, {"log costs": QUICK})
    fit_suite(root / "suite", *parts, {"bank": "abc"}, recipe=recipe)
    shutil.copytree(small_bank.path, root / "bank")
    shutil.copytree(small_bank.path, root / "predicted")
    predicted = Bank(root / "predicted")
    predict_bank(predicted, Sums(), "abc")
    model = load_geometry(root / "w" / "lewm")
    ends = {name: model.get_parameter(name).detach() for name in plastic_names(model)}
    save_patch(Patch("lewm", base_hash(model), ends, {}), root / "patch")
    (root / "study" / "rows").mkdir(parents=True)
    claim(root / "study", {"study": "x", "seed": 0})
    (root / "study" / "rows" / "a.csv").write_text("start,success\n1,1\n")
    (root / "study" / "audit.json").write_text("[1]")
    seal(root / "study")
    (root / "episodes").mkdir()
    shard = root / "episodes" / "episodes-00000.safetensors"
    states = {"states": np.ones((4, 3), np.float32), "controls": np.ones((4, 2), np.float32)}
    shard.write_bytes(seal_shard(shard, states, RECORD))

    def read_bank() -> None:
        bank = Bank(root / "bank")
        assert len(bank.decisions.state) + len(bank.outcomes.cost) == 20
        _ = bank.provenance

    def read_suite() -> None:
        load_suite(root / "suite", recipe)
        unseen(root / "suite", population("new", weights).evidence)

    def read_weights() -> None:
        load_geometry(root / "w" / "tdjepa")
        read_card(root / "w" / "tdjepa")

    return {
        "bank": Artefact(root / "bank", read_bank),
        "evidence": Artefact(
            predicted.path / "evidence/sums", lambda: read_predictions(predicted, "sums")
        ),
        "weights": Artefact(root / "w" / "tdjepa", read_weights),
        "alignment": Artefact(root / "alignment", lambda: load_alignment(root / "alignment")),
        "patch": Artefact(root / "patch", lambda: load_patch(root / "patch")),
        "suite": Artefact(root / "suite", read_suite),
        "planner": Artefact(root / "planner", lambda: load_planner(planner), hashed=False),
        "study": Artefact(root / "study", lambda: check_sealed(root / "study")),
        "episodes": Artefact(root / "episodes", lambda: open_shard(shard, RECORD), hashed=False),
    }


KINDS = ("bank", "evidence", "weights", "alignment", "patch", "suite", "study")
ALL = (*KINDS, "planner", "episodes")
Damage = Callable[[bytes], bytes]
DEEP = b"[" * 100_000
HOSTILE: dict[str, bytes] = {
    "a pickle": pickle.dumps({"states": [1.0]}),
    "a huge header": (2**63 - 1).to_bytes(8, "little") + b"{}",
    "a header past the end": (500).to_bytes(8, "little") + b"{}",
    "deep JSON": DEEP,
    "deep JSON in a header": len(DEEP).to_bytes(8, "little") + DEEP,
    "NaN": b'{"threshold": NaN, "mode": "refined_gap", "decimals": null}',
    "null": b"null",
    "a list": b"[1, 2]",
    "nothing": b"",
    "no UTF-8": b'{"a": "\xff"}',
}


def flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


DAMAGES: dict[str, Damage] = {
    "first byte": lambda d: flipped(d, 0),
    "middle byte": lambda d: flipped(d, len(d) // 2),
    "last byte": lambda d: flipped(d, -1 if len(d) > 1 and d[-1:] != b"\n" else -2),
    "cut": lambda d: d[: len(d) // 2],
    "grown": lambda d: d + b"x",
    **{name: (lambda d, data=data: data) for name, data in HOSTILE.items()},
}


def refused(artefact: Artefact) -> bool:
    try:
        artefact.read()
    except DjepaError:
        return True
    return False


@pytest.mark.parametrize("kind", ALL)
def test_sound_folders_are_read(kind: str, artefacts: dict[str, Artefact]) -> None:
    artefacts[kind].read()


@pytest.mark.parametrize("kind", ALL)
def test_no_damage_passes(kind: str, artefacts: dict[str, Artefact]) -> None:
    """Any file altered in any way, lost, or replaced by a folder or a link that leads nowhere."""
    artefact, passed = artefacts[kind], []
    for file in artefact.files:
        data = file.read_bytes()
        for name, damage in DAMAGES.items():
            file.write_bytes(damage(data))
            passed += [] if refused(artefact) else [(file.name, name)]
        file.unlink()
        lost = refused(artefact)  # a study without its manifest has not been sealed
        passed += [] if lost or (kind, file.name) == ("study", "manifest.json") else [file.name]
        file.symlink_to(file.with_name("nowhere"))
        passed += [] if refused(artefact) or kind == "study" else [(file.name, "link")]
        file.unlink()
        file.mkdir()
        passed += [] if refused(artefact) else [(file.name, "folder")]
        file.rmdir()
        file.write_bytes(data)
    artefact.read()
    assert not passed


@pytest.mark.parametrize("kind", ALL)
def test_two_files_cannot_change_places(kind: str, artefacts: dict[str, Artefact]) -> None:
    artefact, passed = artefacts[kind], []
    files = artefact.files
    for one, other in pairwise(files):
        first, second = one.read_bytes(), other.read_bytes()
        if first != second and one.suffix == other.suffix:
            one.write_bytes(second)
            other.write_bytes(first)
            passed += [] if refused(artefact) else [(one.name, other.name)]
            one.write_bytes(first)
            other.write_bytes(second)
    artefact.read()
    assert not passed


def rehash(manifest: Path, name: str, data: bytes) -> bytes:
    """What a careless tool might do: record the hash of what it finds."""
    stated = json.loads(manifest.read_text())
    stated["files"][name] = sha256(data)
    stated.get("sizes", {}).update({name: len(data)})
    return json.dumps(stated).encode()


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "study"])
def test_hostile_files_are_refused_though_their_hashes_agree(
    kind: str, artefacts: dict[str, Artefact]
) -> None:
    artefact, passed = artefacts[kind], []
    top = artefact.path / "manifest.json"
    before = top.read_bytes()
    for name in json.loads(before)["files"]:
        file = artefact.path / name
        data = file.read_bytes()
        for what, hostile in HOSTILE.items():
            if name == "card.json" and kind == "alignment":
                continue  # says nothing that a decision reads
            file.write_bytes(hostile)
            top.write_bytes(rehash(top, name, hostile))
            passed += [] if refused(artefact) else [(name, what)]
            top.write_bytes(before)
        file.write_bytes(data)
    artefact.read()
    assert not passed


Edit = Callable[[dict[str, Any]], Any]
EDITS: dict[str, Edit] = {
    "an older version": lambda m: m.update(version=0),
    "a later version": lambda m: m.update(version=99),
    "a version in words": lambda m: m.update(version="2"),
    "another kind": lambda m: m.update(format="djepa-somethingelse"),
    "no format": lambda m: m.pop("format"),
    "no files": lambda m: m.pop("files"),
    "a file elsewhere": lambda m: m["files"].update({"../x": "0" * 64}),
    "an absolute file": lambda m: m["files"].update({"/etc/passwd": "0" * 64}),
    "a file that is not there": lambda m: m["files"].update(more="0" * 64),
    "a hash that is none": lambda m: m["files"].update({next(iter(m["files"])): 7}),
    "a field nobody knows": lambda m: m.update(trust="me"),
    "another description": lambda m: m.update(about=[1]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_edit_of_a_manifest_passes(kind: str, artefacts: dict[str, Artefact]) -> None:
    artefact, passed = artefacts[kind], []
    top = artefact.path / "manifest.json"
    before = top.read_bytes()
    for name, edit in EDITS.items():
        edit(stated := json.loads(before))
        top.write_text(json.dumps(stated))
        passed += [] if refused(artefact) else [name]
    for other in KINDS:  # whole folders of one kind under the name of another
        if other != kind:
            top.write_bytes((artefacts[other].path / "manifest.json").read_bytes())
            passed += [] if refused(artefact) else [other]
    top.write_bytes(before)
    artefact.read()
    assert not passed


# ------------------------------------------------------------------ parts that belong together


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


def test_the_docs_name_every_format_and_its_version() -> None:
    text = (Path(__file__).parents[2] / "docs/folders.md").read_text()
    kinds = (BANK, EVIDENCE, GEOMETRY, ALIGNMENT, PATCH, SUITE_KIND, PLANNER, STUDY)
    for format, version in [*((k.format, k.version) for k in kinds), (FORMAT, VERSION)]:
        assert f"| {format} | {version} |" in text


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
