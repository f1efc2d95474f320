"""Audit any model from arrays in one .npz file. Legend: N starts, K candidates.

ids (N, K) integers, success (N, K) bool
costs (N, K) of one model, or costs_NAME of each of several
optional: realised_NAME (N, K) costs of the executed latents, distances_NAME (N, K) to the
goal, latents_NAME (N, K, D) and goals_NAME (N, D), chosen_NAME (N,) IDs that a planner chose;
without _NAME for one model. start_ids (N,) names of the starts
"""

import zlib
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from djepa.align.fit import Alignment
from djepa.audit.checks import check_arrays
from djepa.audit.report import Report, audit
from djepa.errors import DjepaError, unknown_name
from djepa.evidence.evidence import Evidence

Arrays = dict[str, npt.NDArray[Any]]
UNREADABLE = (
    *(OSError, ValueError, EOFError, TypeError, AttributeError, MemoryError),
    *(BadZipFile, zlib.error, RuntimeError),  # of archives: an encrypted one, another packing
    *(SyntaxError, TokenError),  # of headers of arrays
)
SCORES = ("costs", "realised", "distances")
OPTIONAL = ("realised", "distances", "latents", "goals", "chosen")


def audit_arrays(path: Path, alignment: Alignment | None = None) -> Report:
    """The audit of every model of the file; one without a name is called after the file."""
    arrays = _read(path)
    suffixes = _models(path, arrays)
    extra = {f"{kind}{suffix}" for kind in OPTIONAL for suffix in suffixes}
    names = {"ids", "success", "start_ids", *extra, *(f"costs{suffix}" for suffix in suffixes)}
    for key in arrays:  # a misspelt key must not pass for a missing one
        if key not in names:
            raise unknown_name(f"array in {path}:", key, names)
    ids, success = arrays["ids"], arrays["success"]
    of = {kind: _named(path, arrays, kind, suffixes) for kind in ("costs", *OPTIONAL)}
    for kind in SCORES:
        for name, array in of[kind].items():
            try:
                check_arrays(ids, success, **{kind: array})
            except DjepaError as error:
                raise DjepaError(f"{path}, {name}: {error}") from None
    starts = arrays.get("start_ids", np.arange(len(ids)))
    try:
        known = {"costs": of["costs"], "latents": of["latents"], "goals": of["goals"]}
        evidence = Evidence.from_arrays(start_ids=starts, candidate_ids=ids, **known)
        more = {kind: of[kind] for kind in ("realised", "distances", "chosen")}
        return audit(evidence, success, alignment=alignment, **more)
    except DjepaError as error:
        raise DjepaError(f"{path}: {error}") from None


def _named(path: Path, arrays: Arrays, kind: str, suffixes: list[str]) -> Arrays:
    """Arrays of one kind by model."""
    return {s[1:] or path.stem: arrays[kind + s] for s in suffixes if kind + s in arrays}


def _models(path: Path, arrays: Arrays) -> list[str]:
    """What follows `costs` in the keys: "" or _NAME."""
    suffixes = [key.removeprefix("costs") for key in arrays if key.split("_")[0] == "costs"]
    for key in ("ids", "success"):
        if key not in arrays:
            raise DjepaError(f"{path} lacks '{key}': an (N, K) array. It has {_list(arrays)}.")
    if not suffixes:
        raise DjepaError(f"{path} lacks 'costs' or 'costs_NAME'. It has {_list(arrays)}.")
    return suffixes


def _list(arrays: Arrays) -> str:
    return ", ".join(arrays) or "nothing"


def _read(path: Path) -> Arrays:
    if not path.is_file():
        raise DjepaError(f"There is no file {path}.")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as file_:
            return {key: file_[key] for key in file_.files}
    except UNREADABLE as error:
        raise DjepaError(
            f"{path} cannot be read: {error}. Write it with numpy.savez(path, costs=..., ...)."
        ) from None
