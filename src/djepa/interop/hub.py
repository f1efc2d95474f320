"""Folders as the Hugging Face hub expects them: a card, a resolved configuration, safetensors.

    save_pretrained("runs/planner.safetensors", "for-hub")   # or a folder: weights, an alignment
    planner = from_pretrained("for-hub")                     # or "user/name", from the local cache
    push_to_hub("for-hub", "user/name")

Nothing is downloaded without `download=True`, and only `push_to_hub` uploads.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec

from djepa import __version__
from djepa.align.store import ALIGNMENT, load_alignment
from djepa.artefacts.folder import Folder
from djepa.artefacts.records import MANIFEST, Kind, decode, read_bytes, sha256
from djepa.errors import DjepaError, MissingExtraError
from djepa.files import to_json, write_atomically
from djepa.lift.file import read_record
from djepa.lift.planner import load_planner
from djepa.models.weights import GEOMETRY, copy_weights, find_weights, load_geometry

KINDS: dict[str, tuple[Kind, Any, str]] = {
    ALIGNMENT.format: (ALIGNMENT, load_alignment, "alignment"),
    GEOMETRY.format: (GEOMETRY, load_geometry, "world model"),
}
CARD, CONFIG, PLANNER = "README.md", "config.json", "planner.safetensors"
SENT = ["*.json", "*.safetensors", CARD]
LOAD = "from djepa.interop.hub import from_pretrained"


def save_pretrained(
    source: str | Path,
    folder: str | Path,
    license: str = "apache-2.0",
    base_model: tuple[str, ...] = (),
    datasets: tuple[str, ...] = (),
    about: str = "",
) -> Path:
    """Copy a planner or a finished folder and write its card, which begins with `about`."""
    source, folder = Path(source), Path(folder)
    if folder.exists() and any(folder.iterdir()):
        raise DjepaError(f"{folder} is not empty. Choose another folder.")
    if source.is_file():
        load_planner(source)  # raises if it is not a planner
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / PLANNER)
        settings = msgspec.to_builtins(read_record(source))
        write_atomically(folder / CONFIG, to_json({"djepa": __version__, **settings}).encode())
    else:
        source = _place(source)
        kind, _, _ = _kind(source)
        Folder(source, kind).verify()
        if kind is GEOMETRY:
            copy_weights(source, folder)
        else:
            shutil.copytree(source, folder, dirs_exist_ok=True)
    head = {
        "library_name": "djepa",
        "pipeline_tag": "robotics",
        "license": license,
        "tags": ["djepa", "world-model", "planning"],
        **({"base_model": list(base_model)} if base_model else {}),
        **({"datasets": list(datasets)} if datasets else {}),
    }
    write_atomically(folder / CARD, _card(folder, head, about).encode())
    return folder


def from_pretrained(
    where: str | Path, revision: str | None = None, download: bool = False, device: str = "cpu"
) -> Any:
    """A planner, an alignment or a geometry, from a folder or a repository, every file verified.

    A repository is read only from the local cache unless `download` is true.
    """
    folder = Path(where)
    if not folder.is_dir():
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", str(where)):
            raise DjepaError(f"{where} is neither a folder nor a repository, user/name.")
        folder = _snapshot(str(where), revision, download)
    if (folder / PLANNER).is_file():
        return load_planner(folder / PLANNER, device)
    kind, load, _ = _kind(folder)
    return load(folder) if kind is ALIGNMENT else load(folder, device)


def push_to_hub(folder: str | Path, repo_id: str, private: bool = True) -> str:
    """Upload a folder that `save_pretrained` wrote; returns the URL of the commit."""
    folder = Path(folder)
    _verified(folder)
    if not (folder / CARD).is_file():
        raise DjepaError(f"{folder} has no {CARD}. Make one: save_pretrained({folder}, ...).")
    api = _hub().HfApi()
    api.create_repo(repo_id, private=private, exist_ok=True)
    sent = api.upload_folder(repo_id=repo_id, folder_path=str(folder), allow_patterns=SENT)
    return str(sent)


def _snapshot(name: str, revision: str | None, download: bool) -> Path:
    try:
        return Path(
            _hub().snapshot_download(
                name, revision=revision, allow_patterns=SENT, local_files_only=not download
            )
        )
    except MissingExtraError:
        raise
    except Exception as error:  # any error of the network or the library
        hint = "" if download else " Nothing is fetched unless you say download=True."
        raise DjepaError(f"There is no {name} here: {error}{hint}") from None


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise MissingExtraError("The Hugging Face hub", "hub") from None
    return huggingface_hub


def _place(source: str | Path) -> Path:
    """The path of a folder, or of named weights."""
    return Path(source) if (Path(source) / MANIFEST).exists() else find_weights(source)


def _kind(folder: Path) -> tuple[Kind, Any, str]:
    path = folder / MANIFEST
    if not path.is_file():
        raise DjepaError(f"{folder} holds no finished folder of ours: it has no {MANIFEST}.")
    format = decode(path, read_bytes(path), dict[str, Any]).get("format")
    if format not in KINDS:
        raise DjepaError(f"{folder} is {format}; published are {', '.join(KINDS)}.")
    return KINDS[str(format)]


def _verified(folder: Path) -> tuple[str, str]:
    """Verify a folder; returns its kind in a word, and the hash of its content."""
    if (folder / PLANNER).is_file():
        load_planner(folder / PLANNER)
        return "planner", sha256(read_bytes(folder / PLANNER, None))
    kind, _, word = _kind(folder)
    stored = Folder(folder, kind)
    stored.verify()
    return word, stored.hash


def _card(folder: Path, head: dict[str, Any], about: str) -> str:
    """YAML whose lines are JSON values, then a short description."""
    lines = [f"{key}: {json.dumps(value)}" for key, value in head.items()]
    word, hash = _verified(folder)
    return "\n".join(
        [
            *("---", *lines, "---", "", f"# A D-JEPA {word}", ""),
            *((about, "") if about else ()),
            f"Made with djepa {__version__}. Loading checks every file; SHA-256: `{hash}`.",
            *("", "```python", LOAD, f'{word.split()[-1]} = from_pretrained("user/name")', "```"),
            *("", "Settings are in the JSON files beside; there is no pickle.", ""),
        ]
    )
