"""Any model's numbers in one .npz file, audited. Legend: N starts, K candidates.

ids (N, K) integers, success (N, K) bool
costs (N, K) of one model, or costs_NAME of each of several
realised, distances or realised_NAME, distances_NAME (N, K), where there are any
"""

import zlib
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from djepa.audit.gap import audit
from djepa.audit.result import Audit
from djepa.errors import DjepaError, unknown_name

Arrays = dict[str, npt.NDArray[Any]]
UNREADABLE = (OSError, ValueError, EOFError, TypeError, AttributeError, BadZipFile, zlib.error)
OPTIONAL = ("realised", "distances")


def audit_arrays(path: Path) -> list[Audit]:
    """One audit per model of the file; one without a name is called after the file."""
    arrays = _read(path)
    suffixes = _models(path, arrays)
    extra = {f"{kind}{suffix}" for kind in OPTIONAL for suffix in suffixes}
    known = {"ids", "success", *extra, *(f"costs{suffix}" for suffix in suffixes)}
    for key in arrays:  # a misspelt key must not pass for one that is not there
        if key not in known:
            raise unknown_name(f"array in {path}:", key, known)
    audits = []
    for suffix in suffixes:
        name, costs = suffix[1:] or path.stem, arrays[f"costs{suffix}"]
        realised, distances = (arrays.get(f"{kind}{suffix}") for kind in OPTIONAL)
        try:
            one = audit(name, costs, arrays["ids"], arrays["success"], realised, distances)
        except DjepaError as error:
            raise DjepaError(f"{path}, {name}: {error}") from None
        audits.append(one)
    return audits


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
        with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
            return {key: held[key] for key in held.files}
    except UNREADABLE as error:
        raise DjepaError(
            f"{path} cannot be read: {error}. Write it with numpy.savez(path, costs=..., ...)."
        ) from None
