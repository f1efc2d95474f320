"""Folders as the Hugging Face hub expects them: a card, a resolved configuration, safetensors.

    save_pretrained("runs/planner", "runs/hub")           # weights, alignments and planners alike
    planner = from_pretrained("runs/hub")                 # or "user/name", from the local cache
    push_to_hub("runs/hub", "user/name")

Nothing is fetched unless `download=True` says so, and nothing is sent but by `push_to_hub`.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

from djepa import __version__
from djepa.align.store import ALIGNMENT, load_alignment
from djepa.artefacts.folder import Folder
from djepa.artefacts.records import MANIFEST, Kind, decode, read_bytes
from djepa.errors import DjepaError, MissingExtraError
from djepa.files import to_json, write_atomically
from djepa.lift.planner import PLANNER, load_planner
from djepa.models.weights import GEOMETRY, copy_weights, find_weights, load_geometry

KINDS: dict[str, tuple[Kind, Any, str]] = {
    PLANNER.format: (PLANNER, load_planner, "planner"),
    ALIGNMENT.format: (ALIGNMENT, load_alignment, "alignment"),
    GEOMETRY.format: (GEOMETRY, load_geometry, "world model"),
}
CARD, CONFIG = "README.md", "config.json"
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
    """Copy a finished folder and write its card; `about` is what a person should read first."""
    source, folder = _place(source), Path(folder)
    kind, _, _ = _kind(source)
    if folder.exists() and any(folder.iterdir()):
        raise DjepaError(f"{folder} is not empty. Choose another folder.")
    Folder(source, kind).verify()
    if kind is GEOMETRY:
        copy_weights(source, folder)  # with what it shares with others
    else:
        shutil.copytree(source, folder, dirs_exist_ok=True)
    if kind is PLANNER:
        write_atomically(folder / CONFIG, to_json(_resolved(folder)).encode())
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

    A repository is looked for in the local cache alone unless `download` is true.
    """
    folder = Path(where)
    if not folder.is_dir():
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", str(where)):
            raise DjepaError(f"{where} is neither a folder nor a repository, user/name.")
        folder = _snapshot(str(where), revision, download)
    kind, load, _ = _kind(folder)
    return load(folder) if kind is ALIGNMENT else load(folder, device)


def push_to_hub(folder: str | Path, repo_id: str, private: bool = True) -> str:
    """Send a folder that `save_pretrained` wrote; the address of the commit."""
    folder = Path(folder)
    kind, _, _ = _kind(folder)
    Folder(folder, kind).verify()
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
    except Exception as error:  # whatever the network and the library raise
        hint = "" if download else " Nothing is fetched unless you say download=True."
        raise DjepaError(f"There is no {name} here: {error}{hint}") from None


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise MissingExtraError("The Hugging Face hub", "hub") from None
    return huggingface_hub


def _place(source: str | Path) -> Path:
    """A folder, or weights that go by name."""
    return Path(source) if (Path(source) / MANIFEST).exists() else find_weights(source)


def _kind(folder: Path) -> tuple[Kind, Any, str]:
    path = folder / MANIFEST
    if not path.is_file():
        raise DjepaError(f"{folder} holds no finished folder of ours: it has no {MANIFEST}.")
    format = decode(path, read_bytes(path), dict[str, Any]).get("format")
    if format not in KINDS:
        raise DjepaError(f"{folder} is {format}; published are {', '.join(KINDS)}.")
    return KINDS[str(format)]


def _resolved(folder: Path) -> dict[str, Any]:
    """All settings of a planner in one place, for people; loading reads the parts."""
    planner = load_planner(folder)
    parts = {n: f"geometries/{n}/{CONFIG}" for n in planner.geometries}
    parts |= {"alignment": f"alignment/{CONFIG}", "gate": "alignment/calibration.json"}
    read = {name: json.loads((folder / part).read_text()) for name, part in parts.items()}
    return {"format": PLANNER.format, "djepa": __version__, "lifted": planner.lifted, **read}


def _card(folder: Path, head: dict[str, Any], about: str) -> str:
    """YAML that is JSON line by line, then a few words."""
    lines = [f"{key}: {json.dumps(value)}" for key, value in head.items()]
    kind, _, word = _kind(folder)
    hashes = Folder(folder, kind)
    return "\n".join(
        [
            *("---", *lines, "---", "", f"# A D-JEPA {word}", ""),
            *((about, "") if about else ()),
            f"Made with djepa {__version__}. Every file is listed with its SHA-256 in {MANIFEST}, "
            f"whose own is `{hashes.hash}`.",
            *("", "```python", LOAD, f'{word.split()[-1]} = from_pretrained("user/name")', "```"),
            *("", "Settings are in the JSON files beside; there is no pickle.", ""),
        ]
    )
