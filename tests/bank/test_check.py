"""`check_bank` catches what hashes alone do not: contents that were wrong when they were hashed."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from djepa.artefacts.folder import encode
from djepa.artefacts.records import sha256
from djepa.bank.check import check_bank, check_disjoint
from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.bank.schema import decode
from djepa.errors import DjepaError
from djepa.rollout.engine import LocalEngine

Arrays = dict[str, Any]


def rewrite(bank: Path, kind: str, change: Callable[[Arrays], None]) -> None:
    """Change arrays of the first block and record the new hash, as a careless tool might."""
    shard = bank / kind / "block-000000.safetensors"
    arrays = {name: array.copy() for name, array in decode(shard, kind, None).items()}
    change(arrays)
    data = encode(arrays)
    shard.write_bytes(data)
    manifest = json.loads((bank / "manifest.json").read_text())
    name = f"{kind}/block-000000.safetensors"
    manifest["files"][name], manifest["sizes"][name] = sha256(data), len(data)
    (bank / "manifest.json").write_text(json.dumps(manifest))


def flip(name: str, *at: int) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        old = arrays[name][at]
        arrays[name][at] = not old if arrays[name].dtype == bool else old + 1

    return change


def test_a_sound_bank_passes(small_bank: Bank) -> None:
    lines = list(check_bank(small_bank.path, sample=20))
    assert len(lines) == 7
    assert "20 candidates executed again" in lines[-1]


@pytest.mark.parametrize(
    ("kind", "change", "complaint"),
    [
        ("decision", flip("start_ids", 0), "holds other starts than its block"),
        ("decision", flip("state", 1, 0), "identity of start 1"),
        ("decision", flip("goal", 2, 3), "identity of start 2"),
        ("decision", flip("history", 0, 9, 1), "identity of start 0"),
        ("decision", flip("candidate_ids", 0, 0), "IDs of a start repeat"),
        ("decision", flip("action_hashes", 3, 5, 7), "sequence of start 3"),
        ("outcome", flip("success", 2, 4), "start 2, position 4"),
        ("outcome", flip("cost", 0, 1), "start 0, position 1"),
        ("outcome", flip("states", 0, 3, 1, 2), "ends elsewhere when executed"),
    ],
)
def test_each_inconsistency_is_named(
    kind: str, change: Callable[[Arrays], None], complaint: str, bank_copy: Path
) -> None:
    rewrite(bank_copy, kind, change)
    with pytest.raises(DjepaError, match=complaint):
        list(check_bank(bank_copy, sample=10**6))


def test_a_changed_sequence_is_named(bank_copy: Path) -> None:
    def change(arrays: Arrays) -> None:
        arrays["actions"][1, 2, 3, 0] *= 0.5

    rewrite(bank_copy, "decision", change)
    with pytest.raises(DjepaError, match="sequence of start 1"):
        list(check_bank(bank_copy))


def test_other_physics_is_suspected_when_versions_differ(bank_copy: Path) -> None:
    rewrite(bank_copy, "outcome", flip("states", 0, 3, 1, 2))
    manifest = json.loads((bank_copy / "manifest.json").read_text())
    manifest["about"]["versions"]["pymunk"] = "6.0.0"
    (bank_copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DjepaError, match=r"recorded with .*6\.0\.0"):
        list(check_bank(bank_copy, sample=10**6))


def test_splits_that_share_a_start_are_named(small_bank: Bank, tmp_path: Path) -> None:
    other = replace(small_bank.config, split="confirmation", starts=4)
    calibration = collect(tmp_path / "other", other, LocalEngine(1))
    assert len(list(check_disjoint([small_bank, calibration]))) == 1
    (same,) = check_disjoint([small_bank, Bank(small_bank.path)])
    assert "one split, 10 shared" in same
    twin = Bank(small_bank.path)
    twin.config = replace(twin.config, split="confirmation")
    with pytest.raises(DjepaError, match="share 10 starts"):
        list(check_disjoint([small_bank, twin]))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [({"seed": 7}, "does not follow"), ({"split": "x"}, "does not follow")],
)
def test_a_configuration_that_did_not_make_the_bank_is_named(
    change: dict[str, object], complaint: str, bank_copy: Path
) -> None:
    manifest = json.loads((bank_copy / "manifest.json").read_text())
    manifest["about"]["config"] |= change
    (bank_copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DjepaError, match=complaint):
        list(check_bank(bank_copy))


def test_drops_that_do_not_add_up_are_named(bank_copy: Path) -> None:
    manifest = json.loads((bank_copy / "manifest.json").read_text())
    manifest["about"]["drops"]["wall"] += 1
    (bank_copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DjepaError, match="drops in the manifest"):
        list(check_bank(bank_copy))


def test_a_manifest_that_points_elsewhere_is_refused(bank_copy: Path) -> None:
    manifest = json.loads((bank_copy / "manifest.json").read_text())
    for there in ("../elsewhere", "/etc/passwd", "outcome/../../elsewhere"):
        files = {**manifest["files"], there: manifest["files"]["outcome/block-000000.safetensors"]}
        (bank_copy / "manifest.json").write_text(json.dumps({**manifest, "files": files}))
        with pytest.raises(DjepaError, match="lies elsewhere"):
            Bank(bank_copy)
    del manifest["files"]["outcome/block-000002.safetensors"]
    del manifest["sizes"]["outcome/block-000002.safetensors"]
    (bank_copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DjepaError, match="does not list the shards"):
        Bank(bank_copy)


@pytest.mark.parametrize("change", [{"config": None}, {"config": {"speed": 1}}, {"blocks": [1]}])
def test_a_manifest_of_another_make_is_refused(change: dict[str, Any], bank_copy: Path) -> None:
    manifest = json.loads((bank_copy / "manifest.json").read_text())
    about = {**manifest["about"], **change}
    (bank_copy / "manifest.json").write_text(json.dumps({**manifest, "about": about}))
    with pytest.raises(DjepaError, match=r"manifest\.json is damaged or of another make"):
        Bank(bank_copy)


@pytest.mark.parametrize(
    "edit",
    [
        lambda m: m["blocks"][0].update(candidates=99),
        lambda m: m["blocks"][0].update(starts=7),
        lambda m: m["config"].update(profile="cem"),
        lambda m: m.update(source={"a": 1}),
        lambda m: (m["blocks"][2]["drops"].update(wall=99), m["drops"].update(wall=0)),
        lambda m: m["config"].update(starts=10**9),
        lambda m: m["config"].update(starts=10.0),
        lambda m: m.pop("drops"),
        lambda m: m.pop("versions"),
        lambda m: m["blocks"][1].pop("candidates"),
        lambda m: m["blocks"][1].update(more=1),
    ],
)
def test_no_edit_of_the_manifest_passes(edit: Callable[[Any], Any], bank_copy: Path) -> None:
    manifest = json.loads((bank_copy / "manifest.json").read_text())
    edit(manifest["about"])
    (bank_copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DjepaError):
        list(check_bank(bank_copy, sample=1))


def test_other_versions_are_told_even_where_the_bits_agree(bank_copy: Path) -> None:
    manifest = json.loads((bank_copy / "manifest.json").read_text())
    manifest["about"]["versions"]["numpy"] = "1.0"
    (bank_copy / "manifest.json").write_text(json.dumps(manifest))
    assert any("recorded with" in line for line in check_bank(bank_copy, sample=1))


@pytest.mark.parametrize("kind", ["decision", "outcome", "provenance"])
def test_missing_extra_short_and_altered_shards_are_named(kind: str, bank_copy: Path) -> None:
    shard = bank_copy / kind / "block-000001.safetensors"
    data = shard.read_bytes()
    shard.write_bytes(data[:-8])
    with pytest.raises(DjepaError, match=rf"{kind}/block-000001.*cut short"):
        Bank(bank_copy)
    shard.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(DjepaError, match=rf"{kind}/block-000001.*damaged"):
        list(check_bank(bank_copy))
    shard.unlink()
    with pytest.raises(DjepaError, match=rf"{kind}/block-000001.*missing"):
        Bank(bank_copy)
    shard.write_bytes(data)
    shard.with_name("block-000009.safetensors").write_bytes(data)
    with pytest.raises(DjepaError, match=r"block-000009.*does not belong"):
        Bank(bank_copy)


def test_a_shard_of_another_kind_is_refused(bank_copy: Path) -> None:
    shard = bank_copy / "outcome" / "block-000000.safetensors"
    with pytest.raises(DjepaError, match="missing or foreign arrays"):
        decode(shard, "decision", None)
    shard.write_bytes(b"not a safetensors file at all")
    with pytest.raises(DjepaError, match="not a complete safetensors file"):
        decode(shard, "outcome", None)


def test_wrong_dtypes_and_shapes_are_named(bank_copy: Path) -> None:
    def narrow(arrays: Arrays) -> None:
        arrays["cost"] = arrays["cost"].astype(np.float32)

    rewrite(bank_copy, "outcome", narrow)
    with pytest.raises(DjepaError, match="'cost' is float32"):
        _ = Bank(bank_copy).outcomes


def turn(arrays: Arrays) -> None:
    arrays["start_ids"] = arrays["start_ids"][::-1]


def take_those_of_the_next_block(arrays: Arrays) -> None:
    arrays["start_ids"] += len(arrays["start_ids"])


@pytest.mark.parametrize(
    "change", [turn, take_those_of_the_next_block, flip("start_ids", 2), flip("start_ids", 3)]
)
def test_starts_of_another_block_are_named(
    change: Callable[[Arrays], None], bank_copy: Path
) -> None:
    """Whoever reads decisions is told, not `djepa check` alone."""
    rewrite(bank_copy, "decision", change)
    shard = bank_copy / "decision" / "block-000000.safetensors"
    with pytest.raises(DjepaError, match=f"{shard} holds other starts than its block"):
        _ = Bank(bank_copy).decisions


def test_foreign_folders_and_versions_are_refused(bank_copy: Path, tmp_path: Path) -> None:
    with pytest.raises(DjepaError, match="no such folder"):
        Bank(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DjepaError, match=r"no manifest\.json"):
        Bank(tmp_path / "empty")
    manifest = json.loads((bank_copy / "manifest.json").read_text())
    (bank_copy / "manifest.json").write_text(json.dumps({**manifest, "version": 99}))
    with pytest.raises(DjepaError, match="djepa-bank 99"):
        Bank(bank_copy)
    (bank_copy / "manifest.json").write_text("{")
    with pytest.raises(DjepaError, match="damaged"):
        Bank(bank_copy)


def test_a_bank_of_the_first_version_is_refused_by_name(bank_copy: Path) -> None:
    manifest = {"format": "djepa-bank", "schema": 1, "config": {}, "blocks": [], "drops": {}}
    (bank_copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DjepaError, match=r"djepa-bank 1; .* djepa-bank 2.* collect"):
        Bank(bank_copy)


def test_reading_decisions_opens_no_outcome_and_no_provenance(small_bank: Bank) -> None:
    opened: list[str] = []

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and str(small_bank.path) in str(arguments[0]):
            opened.append(str(arguments[0]))

    sys.addaudithook(hook)
    assert len(Bank(small_bank.path).decisions.state) == 10
    assert [name for name in opened if "/decision/" in name]
    assert not [name for name in opened if "/outcome/" in name or "/provenance/" in name]


def test_a_start_that_is_not_there(small_bank: Bank) -> None:
    assert small_bank.row(9) == 9
    with pytest.raises(DjepaError, match="has no start 10; it has 0 to 9"):
        small_bank.row(10)
