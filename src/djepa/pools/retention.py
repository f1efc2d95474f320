"""Reduce a large pool to the retained one, by a geometry's native cost alone.

Shapes: K candidates.
"""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from djepa.checks import check_int
from djepa.errors import DjepaError
from djepa.pools.pool import REFERENCE, Pool


@dataclass(frozen=True)
class Retention:
    """How many candidates are retained."""

    keep: int = 63
    """Number of candidates of the retained pool."""
    top: int = 16
    """Number taken as the cheapest of all; the others come from the families in turn."""

    def __post_init__(self) -> None:
        check_int("keep", self.keep, 2)
        check_int("top", self.top, 0)
        if self.top > self.keep:
            raise DjepaError(f"top must not exceed keep; got top {self.top}, keep {self.keep}.")


def retain_by_cost(pool: Pool, costs: npt.ArrayLike, keep: int = 63, top: int = 16) -> Pool:
    """`keep` candidates: the `top` cheapest, the others from the families in turn.

    `costs` (K,) is the native cost of every candidate of the pool; a reference needs one too and
    is never retained. The cheapest are taken by (cost, ID). Then families take turns in the order
    of their names, each giving its cheapest remaining one by (cost, ID); an empty one is skipped.
    The result is in order of selection, and keeps IDs and costs. It depends on no outcome.
    """
    keep = check_int("keep", keep, 1)
    top = check_int("top", top, 0)
    checked = _checked_costs(costs, len(pool))
    ranked = [
        int(position)
        for position in np.lexsort((pool.ids, checked))
        if pool.families[position] != REFERENCE
    ]
    if not top <= keep <= len(ranked):
        raise DjepaError(
            f"Retention needs top <= keep <= candidates other than the reference; "
            f"got top {top}, keep {keep}, {len(ranked)} candidates."
        )
    turns: Counter[str] = Counter()
    queued: list[tuple[int, str, int]] = []
    for position in ranked[top:]:
        family = pool.families[position]
        queued.append((turns[family], family, position))
        turns[family] += 1
    # Taking turns and skipping empty families is the order by (turn, name of the family).
    later = [position for _, _, position in sorted(queued)]
    return replace(pool, costs=checked).take((ranked[:top] + later)[:keep])


def _checked_costs(costs: npt.ArrayLike, count: int) -> npt.NDArray[np.float64]:
    array = np.asarray(costs)
    if array.dtype.kind not in "fiu":
        raise DjepaError(f"Costs must be real numbers, not {array.dtype}.")
    if array.shape != (count,):
        raise DjepaError(
            f"Costs must have shape ({count},), one per candidate of the pool, not {array.shape}."
        )
    if not np.isfinite(array).all():
        raise DjepaError("Costs contain NaN or infinity; every candidate needs a finite cost.")
    return array.astype(np.float64)
