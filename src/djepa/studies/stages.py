"""A study is a list of stages over one folder; each runs only if its output is missing or older
than its inputs.

Outputs are written atomically, so a stopped study resumes. After every stage the manifest of the
folder lists the hashes of all results (rows, measures and other inputs of the pages); before every
stage they are compared.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from djepa.artefacts.folder import read_checked
from djepa.artefacts.lock import locked
from djepa.artefacts.records import (
    MANIFEST,
    Kind,
    decode,
    encode_json,
    read_bytes,
    read_manifest,
    sha256,
)
from djepa.errors import DjepaError
from djepa.files import TEMPORARY, naming, write_atomically

CLAIM = "study.json"
ELSEWHERE = (
    "banks",
    "fits",
    "planners",
    "tables",
    "figures",
    "films",
    "episodes",
)  # have manifests, or are regenerated
STUDY = Kind("study", "djepa-study", 1, again="Remove it, and it is made again.", bare=True)
Say = Callable[[str], None]


@dataclass(frozen=True)
class Stage:
    """One step of a study."""

    name: str
    makes: Path  # its last file: once it exists, the stage is done
    run: Callable[[Say], None]
    of: tuple[Path, ...] = ()  # inputs: if one of these is newer, the stage runs again

    def done(self) -> bool:
        """Whether there is nothing to do."""
        if not self.makes.exists():
            return False
        when = self.makes.stat().st_mtime_ns
        return all(path.stat().st_mtime_ns <= when for path in self.of if path.exists())

    def owns(self, path: Path) -> bool:
        """Whether it writes that file: its output, or frames of the same name beside it."""
        own = (self.makes.parent, self.makes.name.removesuffix(self.makes.suffix))
        return own == (path.parent, path.name.removesuffix(path.suffix))


def run_stages(stages: Sequence[Stage], say: Say, until: str = "") -> None:
    """Run missing stages in order; `until` names the last stage to run."""
    names = [stage.name for stage in stages]
    if until and until not in names:
        raise DjepaError(f"There is no stage '{until}'. The stages are: {', '.join(names)}.")
    homes = [p for s in stages[:1] for p in s.makes.parents if (p / CLAIM).is_file()]
    with ExitStack() as locks:  # else outputs of another process would be taken for ours
        for home in homes[:1]:
            locks.enter_context(locked(home))
        _run(stages, say, until, homes[:1])


def _run(stages: Sequence[Stage], say: Say, until: str, homes: Sequence[Path]) -> None:
    makes = {stage.makes for stage in stages}
    for number, stage in enumerate(stages, start=1):
        for home in homes:
            check_sealed(home, makes)
        head = f"{number}/{len(stages)} {stage.name}"
        if stage.done():
            say(f"{head}: there already ({stage.makes})")
        else:
            say(f"{head} ...")
            began = time.monotonic()
            stage.makes.parent.mkdir(parents=True, exist_ok=True)
            stage.run(say)
            for home in homes:
                seal(home, stage)
            say(f"{head}: {time.monotonic() - began:.0f} s, {stage.makes}")
        if stage.name == until:
            return
    for home in homes:
        check_sealed(home, makes)


def claim(folder: Path, config: Mapping[str, Any]) -> None:
    """Mark a folder as this study's; one that belongs to another is refused."""
    path = folder / CLAIM
    data = encode_json(path, dict(config))
    if not path.exists():
        with naming(folder):
            folder.mkdir(parents=True, exist_ok=True)
            _refuse_strangers(folder, data)
        write_atomically(path, data)
    elif read_bytes(path) != data:
        there = decode(path, read_bytes(path), dict[str, Any])
        asked = decode(path, data, dict[str, Any])
        odd = [name for name in asked if there.get(name) != asked[name]]
        raise DjepaError(
            f"{folder} holds a study with another {', '.join(odd) or 'configuration'}. "
            "Choose another --out, or remove it."
        )


def _refuse_strangers(folder: Path, data: bytes) -> None:
    """Refuse a folder without a mark, unless it is empty or its manifest lists this mark."""
    with suppress(DjepaError):
        if read_manifest(folder, STUDY)[0].files.get(CLAIM) == sha256(data):
            return
    for path in folder.rglob("*"):
        passing = path.name.startswith(".") or path.name == CLAIM + TEMPORARY
        if path.is_file() and not passing:
            raise DjepaError(
                f"{folder} is not empty and not a study (it holds {path.relative_to(folder)}). "
                "Nothing was changed; choose another --out."
            )


def seal(folder: Path, stage: Stage | None = None) -> None:
    """List the hashes of all results in the manifest, which is written last.

    Results already listed must be unchanged, except outputs of `stage`.
    """
    found = sorted(p for p in folder.rglob("*") if p.is_file() and _is_result(folder, p))
    hashes = {str(path.relative_to(folder)): sha256(read_bytes(path)) for path in found}
    if (folder / MANIFEST).exists():  # lost files stay listed until they are made again
        before = read_manifest(folder, STUDY)[0].files
        for name, of in before.items():
            if hashes.get(name, of) != of and not (stage and stage.owns(folder / name)):
                also = f" and {stage.makes}, and both are" if stage else ", and it is"
                raise DjepaError(
                    f"{folder / name} was altered while another stage ran. Remove it{also} made "
                    "again."
                )
        hashes |= {name: of for name, of in before.items() if not (folder / name).exists()}
    manifest = {"format": STUDY.format, "version": STUDY.version, "files": hashes}
    text, path = encode_json(folder / MANIFEST, manifest), folder / MANIFEST
    if not (path.exists() and read_bytes(path) == text):
        write_atomically(path, text)


def check_sealed(folder: Path, makes: Collection[Path] = ()) -> None:
    """Refuse altered results; and lost ones, if all files in `makes` exist."""
    if not (folder / MANIFEST).exists():
        return
    manifest, _ = read_manifest(folder, STUDY)
    whole = all(path.exists() for path in makes)  # else a stage may restore lost files
    for name, expected in manifest.files.items():
        path = folder / name
        if path.exists():
            read_checked(path, expected, None, STUDY)
        elif whole:
            raise DjepaError(
                f"{path} is missing, though it was made. Remove the rows of its pools, and all of "
                "it is made again."
            )


def _is_result(folder: Path, path: Path) -> bool:
    parts = path.relative_to(folder).parts
    passing = path.name.startswith(".") or path.suffix in (".html", ".part")
    return parts[0] not in ELSEWHERE and path.name != MANIFEST and not passing
