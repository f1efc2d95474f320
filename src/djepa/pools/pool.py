"""The candidates of one start.

Shapes: K candidates, H horizon, A action width.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.checks import Floats, check_floats, check_int
from djepa.errors import DjepaError, unknown_name

REFERENCE = "reference"
"""Family of the recorded segment itself: executed for diagnosis, never offered to a decision."""


def _check_integers(what: str, values: object, minimum: int) -> npt.NDArray[np.int64]:
    array = np.asarray(values)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise DjepaError(f"{what} must be one row of integers, not {array.dtype} {array.shape}.")
    if array.size and array.min() < minimum:
        raise DjepaError(f"{what} must be at least {minimum}; found {array.min()}.")
    return array.astype(np.int64)


@dataclass(frozen=True, eq=False)
class Pool:
    """Candidates of one start, identified by ID and not by position.

    The arrays are copied and read-only: the sequence of an ID never changes.
    """

    ids: npt.NDArray[np.int64]
    """(K,) unique, at least 0."""
    actions: Floats
    """(K, H, A) finite control sequences."""
    families: tuple[str, ...]
    """(K) how each candidate was made."""
    centres: npt.NDArray[np.int64]
    """(K,) the centre it was made from: 0 the reference, 1.. decoys, -1 none."""
    seed: int
    """The seed that reproduces the pool."""
    costs: Floats | None = None
    """(K,) native costs by which candidates were retained; None without retention."""

    def __post_init__(self) -> None:
        actions = check_floats("Pool actions", self.actions, (None, None, None))
        arrays: dict[str, npt.NDArray[Any]] = {
            "ids": _check_integers("Pool ids", self.ids, 0),
            "actions": actions,
            "centres": _check_integers("Pool centres", self.centres, -1),
        }
        if self.costs is not None:
            arrays["costs"] = check_floats("Pool costs", self.costs, (None,))
        lengths = {name: len(array) for name, array in arrays.items()}
        lengths["families"] = len(self.families)
        if len(set(lengths.values())) != 1:
            raise DjepaError(f"Pool fields must have one entry per candidate, not {lengths}.")
        if len(np.unique(arrays["ids"])) != len(actions):
            raise DjepaError("Pool ids must be unique; two candidates share one.")
        if not all(isinstance(family, str) for family in self.families):
            raise DjepaError("Pool families must be strings.")
        for name, array in arrays.items():
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        object.__setattr__(self, "families", tuple(self.families))
        object.__setattr__(self, "seed", check_int("Pool seed", self.seed, 0))

    def __len__(self) -> int:
        return len(self.ids)

    def hashes(self) -> tuple[str, ...]:
        """(K) SHA-256 of each sequence as C-contiguous little-endian float32."""
        stored = np.ascontiguousarray(self.actions, dtype="<f4")
        return tuple(hashlib.sha256(sequence.tobytes()).hexdigest() for sequence in stored)

    def take(self, positions: npt.ArrayLike) -> "Pool":
        """The candidates at `positions`, in that order, with their IDs."""
        kept = _check_integers("Pool positions", positions, 0)
        if not len(kept) or kept.max() >= len(self):
            raise DjepaError(f"Pool positions must be one or more of 0..{len(self) - 1}.")
        return Pool(
            ids=self.ids[kept],
            actions=self.actions[kept],
            families=tuple(self.families[position] for position in kept),
            centres=self.centres[kept],
            seed=self.seed,
            costs=None if self.costs is None else self.costs[kept],
        )

    def without(self, family: str = REFERENCE) -> "Pool":
        """The pool less one family; unchanged if it has none of that family."""
        if family != REFERENCE and family not in self.families:
            raise unknown_name("family", family, set(self.families))
        kept = [position for position, name in enumerate(self.families) if name != family]
        if not kept:
            raise DjepaError(f"Every candidate is of family '{family}': nothing would be left.")
        return self.take(kept)
