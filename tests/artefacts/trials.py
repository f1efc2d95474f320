"""Edits of every record and of arrays, hashed again: each is refused, or changes nothing."""

import io
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from artefact import Artefact, rehashed
from edits import array_edits, content, record_edits

from djepa.artefacts.folder import encode, load_arrays, read_shard, seal_shard
from djepa.artefacts.records import MANIFEST, Manifest
from djepa.errors import DjepaError


@dataclass
class Case:
    """One edit: what it is, the files after it, and whether the field may hold anything."""

    label: str
    files: dict[Path, bytes]
    free: bool = False


def trials(artefact: Artefact) -> dict[str, str]:
    """Edit -> why that was wrong; nothing if it was refused by name, or read as what was there."""
    whole, found = content(artefact.read()), {}
    for case in _sealed(artefact) if artefact.sealed else _listed(artefact):
        if case.label.startswith(artefact.known):
            continue
        before = {file: file.read_bytes() for file in case.files}
        for file, data in case.files.items():
            file.write_bytes(data)
        found[case.label] = _complaint(artefact, None if case.free else whole)
        for file, data in before.items():
            file.write_bytes(data)
    assert content(artefact.read()) == whole
    return found


def _complaint(artefact: Artefact, whole: str | None) -> str:
    try:
        with warnings.catch_warnings(action="error"):
            found = content(artefact.read())
    except DjepaError as error:
        return "" if artefact.named(error) else f"refused without a name: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}".split("\n")[0]
    return "" if whole in (None, found) else "read as something else"


def _sealed(artefact: Artefact) -> Iterator[Case]:
    """A file that stands alone, sealed anew."""
    file = artefact.path / artefact.sealed
    arrays, record = read_shard(file)
    for label, edited, free in record_edits(record, artefact.kind.about if artefact.kind else dict):
        if isinstance(edited, dict):  # nothing else can be sealed
            yield Case(f"record/{label}", {file: seal_shard(file, arrays, edited)}, free)
    for label, others in array_edits(arrays):
        yield Case(f"arrays/{label}", {file: seal_shard(file, others, record)})


def _listed(artefact: Artefact) -> Iterator[Case]:
    """A folder with a manifest: the manifest itself, records that it lists, then arrays."""
    assert artefact.kind
    top, known = artefact.path / MANIFEST, artefact.kind.records
    manifest = json.loads(top.read_bytes())
    for label, edited, free in record_edits(manifest, Manifest):
        yield Case(f"{MANIFEST}/{label}", {top: json.dumps(edited).encode()}, free)
    about = manifest.get("about", {})
    for label, edited, free in record_edits(
        about, artefact.types.get("about", artefact.kind.about)
    ):
        data = json.dumps({**manifest, "about": edited}).encode()
        yield Case(f"about/{label}", {top: data}, free)

    def again(name: str, data: bytes) -> dict[Path, bytes]:
        return {artefact.path / name: data, top: rehashed(top, name, data)}

    for name in known.keys() & manifest["files"].keys():
        record = json.loads((artefact.path / name).read_bytes())
        for label, edited, free in record_edits(record, artefact.types.get(name, known[name])):
            yield Case(f"{name}/{label}", again(name, json.dumps(edited).encode()), free)
    last = {Path(name).parent / Path(name).name[:4]: name for name in manifest["files"]}
    for name in last.values():  # of many blocks the last one
        if name.endswith((".safetensors", ".npz")):
            for label, others in array_edits(_arrays(artefact.path / name)):
                data = encode(others) if name.endswith("s") else _packed(others)
                yield Case(f"{name}/{label}", again(name, data))


def _arrays(path: Path) -> dict[str, np.ndarray]:
    if path.suffix == ".npz":
        with np.load(path) as file:
            return {name: file[name] for name in file.files}
    return load_arrays(path, path.read_bytes())


def _packed(arrays: dict[str, np.ndarray]) -> bytes:
    np.savez(data := io.BytesIO(), **arrays)
    return data.getvalue()
