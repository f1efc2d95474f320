"""Decoy pools: density does not show where the solution is.

Perturbing one reference makes a dense cluster around the hidden solution, and a chooser that
never looks at the goal can find it. Here the reference and its decoys all have the same cluster.

Shapes: C centres, K candidates, H horizon, A action width.
"""

import numpy as np
import numpy.typing as npt

from djepa.checks import Floats, check_floats, check_int
from djepa.errors import DjepaError
from djepa.pools.families import (
    LIMIT,
    SHUFFLED,
    check_quotas,
    check_shuffles,
    draw_unique,
    is_centred,
)
from djepa.pools.pool import REFERENCE, Pool

NOISE = ("noisy_0.05", "noisy_0.15", "noisy_0.3")


def per_centre(candidates: int, shuffles: int) -> tuple[tuple[str, int], ...]:
    """Families of one centre: `shuffles` shuffled, the others noisy, the least noise first.

    A shuffle's pusher ends near its centre's end, the block elsewhere. Without shuffles, comparing
    the pusher's end with the goal's is enough to succeed, and needs no model of the block.
    """
    noisy = candidates - shuffles
    counts = [noisy // 3 + (i < noisy % 3) for i in range(3)]
    mix = (*zip(NOISE, counts, strict=True), (SHUFFLED, shuffles))
    return tuple((family, count) for family, count in mix if count)


PER_CENTRE = per_centre(16, 3)


def decoy_pool(
    centres: npt.ArrayLike,
    seed: int,
    per_centre: tuple[tuple[str, int], ...] = PER_CENTRE,
    keep: int | None = None,
    max_attempts: int = 4096,
    blocks: int = 5,
) -> Pool:
    """The same families in the same numbers around every centre (C, H, A), in random order.

    Centre 0 is the hidden reference, the others are segments of the same behaviour from the same
    restored state. No centre is a candidate. IDs 1..K follow the permutation; only the first
    `keep` are kept, which drops candidates uniformly.
    """
    checked = _checked_centres(centres)
    total = _check_request(checked, per_centre, blocks) * len(checked)
    keep = total if keep is None else check_int("keep", keep, 1)
    if keep > total:
        raise DjepaError(f"keep is {keep}, but {len(checked)} centres give only {total}.")
    attempts = check_int("max_attempts", max_attempts, 1)
    root = np.random.SeedSequence(check_int("The seed", seed, 0))
    mixer, *children = (np.random.default_rng(c) for c in root.spawn(1 + len(checked)))
    seen = {centre.tobytes() for centre in checked}
    items: list[tuple[str, int, Floats]] = []
    # Centres are drawn in random order: a sequence that two of them could make favours neither.
    for index in mixer.permutation(len(checked)).tolist():
        for family, count in per_centre:
            accepted = draw_unique(
                family,
                count,
                checked[index].astype(np.float64),
                children[index],
                blocks=blocks,
                cast=lambda sequence: sequence.astype(checked.dtype),
                seen=seen,
                max_attempts=attempts,
            )
            label = index if is_centred(family) else -1
            items += [(family, label, sequence) for sequence in accepted]
    mixed = [items[position] for position in mixer.permutation(total)[:keep]]
    return Pool(
        ids=np.arange(1, keep + 1),
        actions=np.stack([sequence for _, _, sequence in mixed]),
        families=tuple(family for family, _, _ in mixed),
        centres=np.array([label for _, label, _ in mixed]),
        seed=seed,
    )


def _checked_centres(centres: npt.ArrayLike) -> Floats:
    array = check_floats("The centres", centres, (None, None, None))
    if np.abs(array).max() > LIMIT:
        raise DjepaError(f"The centres must lie within ±1; found {np.abs(array).max():g}.")
    if len({centre.tobytes() for centre in array}) < len(array):
        raise DjepaError("Two centres are identical. A decoy must differ from the reference.")
    return array


def _check_request(centres: Floats, per_centre: tuple[tuple[str, int], ...], blocks: int) -> int:
    """Number of candidates per centre; refuses families that some centre cannot make."""
    counts = check_quotas(per_centre, centres.shape[1], blocks)
    if REFERENCE in counts or not counts:
        raise DjepaError("per_centre must name families to draw; a centre is never a candidate.")
    for centre in centres:
        check_shuffles(centre, blocks, counts.get(SHUFFLED, 0))
    return sum(counts.values())
