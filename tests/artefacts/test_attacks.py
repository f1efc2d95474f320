"""Every kind of folder against damage and malice: one line that names it, never a wrong answer."""

import json
import pickle
import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from artefact import Artefact, rehashed
from edits import content
from every_kind import KINDS_OF, Sums
from harmless import HARMLESS
from trials import trials

from djepa.errors import DjepaError
from djepa.models.episodes import FORMAT, VERSION

__all__ = ["Sums"]  # other tests look for it here
ROOT = Path(__file__).parents[2]
SEALED = ("planner", "episodes")
KINDS = (
    *("bank", "evidence", "weights", "alignment", "temporal", "patch", "suite", "study"),
    *("control", "visited", "driving bank", "bimanual bank", "recorded"),
    *("fused readout", "corrected readout", "anchored readout", "gates", "certified gate"),
    *("driving model", "policy", "patch JEPA", "head"),
)
ALL = (*KINDS, *SEALED)
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


def refused(artefact: Artefact, whole: str = "") -> bool:
    """By an error that names it; or, where that will do, what is read is what was there."""
    try:
        found = content(artefact.read())
    except DjepaError as error:
        return artefact.named(error)
    return found == whole


def test_every_kind_there_is_is_attacked(artefacts: dict[str, Artefact]) -> None:
    """No call of `Kind(name, format, ...)` in the sources is forgotten here."""
    call = re.compile(r'\bKind\(\s*"[^"]*",\s*"(djepa-[^"]*)"')
    found = {of for file in (ROOT / "src").rglob("*.py") for of in call.findall(file.read_text())}
    assert {kind.format for kind in KINDS_OF} == found
    assert {of.kind.format for of in artefacts.values() if of.kind} == found
    assert set(artefacts) == set(ALL)


@pytest.mark.parametrize("kind", ALL)
def test_sound_folders_are_read(kind: str, artefacts: dict[str, Artefact]) -> None:
    assert content(artefacts[kind].read()) == content(artefacts[kind].read())


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


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "study"])
def test_hostile_files_are_refused_though_their_hashes_agree(
    kind: str, artefacts: dict[str, Artefact]
) -> None:
    """Or nobody reads them, as the cards of alignments."""
    artefact, passed = artefacts[kind], []
    whole, top = content(artefact.read()), artefact.path / "manifest.json"
    before = top.read_bytes()
    for name in json.loads(before)["files"]:
        file = artefact.path / name
        data = file.read_bytes()
        for what, hostile in HOSTILE.items():
            file.write_bytes(hostile)
            top.write_bytes(rehashed(top, name, hostile))
            passed += [] if refused(artefact, whole) else [(name, what)]
            top.write_bytes(before)
        file.write_bytes(data)
    artefact.read()
    assert not passed


Edit = Callable[[dict[str, Any]], Any]
EDITS: dict[str, Edit] = {
    "an older version": lambda m: m.update(version=0),
    "a later version": lambda m: m.update(version=99),
    "another kind": lambda m: m.update(format="djepa-somethingelse"),
    "a file elsewhere": lambda m: m["files"].update({"../x": "0" * 64}),
    "an absolute file": lambda m: m["files"].update({"/etc/passwd": "0" * 64}),
    "a file that is not there": lambda m: m["files"].update(more="0" * 64),
    "a hash that is none": lambda m: m["files"].update({next(iter(m["files"])): 7}),
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


# ------------------------------------------------- every field and array, with hashes that agree


@pytest.fixture(scope="session")
def tried(artefacts: dict[str, Artefact]) -> Callable[[str], dict[str, str]]:
    """Kind -> edit -> what is wrong with how it was met. Each kind is tried once."""
    return cache(lambda kind: trials(artefacts[kind]))


def passed(found: dict[str, str], patterns: Iterable[str]) -> dict[str, str]:
    """Edits that went wrong, but for those that these patterns name."""
    return {
        label: why
        for label, why in found.items()
        if why and not any(fnmatchcase(label, pattern) for pattern in patterns)
    }


@pytest.mark.parametrize("kind", ALL)
def test_an_edited_field_or_array_is_refused_or_changes_nothing(
    kind: str, tried: Callable[[str], dict[str, str]]
) -> None:
    assert len(found := tried(kind)) >= 20
    assert not passed(found, HARMLESS)


@pytest.mark.parametrize(
    ("format", "version"), sorted({*((a.format, a.version) for a in KINDS_OF), (FORMAT, VERSION)})
)
def test_the_docs_name_every_format_and_its_version(format: str, version: int) -> None:
    assert f"| {format} | {version} |" in (ROOT / "docs/folders.md").read_text()
