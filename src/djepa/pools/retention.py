"""From a large pool to the retained one, by the model's own cost and nothing else.

Shapes: K candidates.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from djepa.errors import DjepaError
from djepa.pools.pool import REFERENCE, Pool, check_int


def retain_by_cost(
    pool: Pool,
    costs: npt.ArrayLike,
    keep: int = 63,
    top: int = 16,
    *,
    ids: npt.ArrayLike | None = None,
    hashes: Sequence[str] | None = None,
) -> Pool:
    """`keep` candidates: the `top` cheapest, the rest by turns over the families.

    `costs` (K,) is the native cost of every candidate of the pool, the reference included though
    it is never retained. The cheapest are taken by (cost, ID). Then families take turns in the
    order of their names, each giving its cheapest left by (cost, ID); an empty one is passed over.
    The result is in order of selection and keeps the IDs. No outcome has a way in. `ids` and
    `hashes` say which candidates the costs were computed for; if they are not those of the pool,
    in its order, the costs are refused.
    """
    if ids is not None and not np.array_equal(np.asarray(ids), pool.ids):
        raise DjepaError("The costs belong to other candidate IDs, or to another order of them.")
    if hashes is not None and tuple(hashes) != pool.hashes():
        raise DjepaError("The costs belong to other sequences: their SHA-256 are not the pool's.")
    keep = check_int("keep", keep, 1)
    top = check_int("top", top, 0)
    ranked = [
        int(position)
        for position in np.lexsort((pool.ids, _checked_costs(costs, len(pool))))
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
    # Taking turns and passing over the empty is the order by (turn, name of the family).
    later = [position for _, _, position in sorted(queued)]
    return pool.take((ranked[:top] + later)[:keep])


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
