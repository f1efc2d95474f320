"""The ways to draw a control sequence from a centre. All controls lie in [-1, 1].

Shapes: H horizon, A action width. Every function takes the generator it draws from. The
order of draws determines a pool, so each function draws exactly as documented.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.checks import Floats, check_int
from djepa.errors import DjepaError, unknown_name
from djepa.pools.pool import REFERENCE

Array64 = npt.NDArray[np.float64]
Cast = Callable[[Array64], Floats]

NOISY = "noisy_"
SHUFFLED = "shuffled"
SMOOTH = "smooth_random"
UNIFORM = "uniform_random"
PLAIN = (REFERENCE, SHUFFLED, SMOOTH, UNIFORM)
LIMIT = 1.0


def noise_sigma(family: str) -> float | None:
    """The sigma in a name such as `noisy_0.15`; None for every other family."""
    if not family.startswith(NOISY):
        return None
    try:
        sigma = float(family.removeprefix(NOISY))
    except ValueError:
        sigma = math.nan
    if not (math.isfinite(sigma) and sigma > 0):
        raise DjepaError(f"Family '{family}' needs a positive sigma after '{NOISY}': noisy_0.15.")
    return sigma


def noisy(centre: Array64, generator: np.random.Generator, sigma: float) -> Array64:
    """(H, A) the centre plus normal noise, clipped. One normal draw of the whole shape."""
    return np.clip(centre + generator.normal(0.0, sigma, centre.shape), -LIMIT, LIMIT)


def shuffled(centre: Array64, generator: np.random.Generator, blocks: int) -> Array64:
    """(H, A) the centre's `blocks` equal parts in another order. One permutation draw."""
    order = generator.permutation(blocks)
    if np.array_equal(order, np.arange(blocks)):
        order = np.roll(order, 1)  # the identity would be the centre itself
    parts = centre.reshape(blocks, -1, centre.shape[-1])
    return parts[order].reshape(centre.shape)


def uniform_random(shape: tuple[int, ...], generator: np.random.Generator) -> Array64:
    """(H, A) independent uniform controls. One uniform draw of the whole shape."""
    return generator.uniform(-LIMIT, LIMIT, shape)


def smooth_random(shape: tuple[int, ...], generator: np.random.Generator) -> Array64:
    """(H, A) uniform controls u, low-passed: a_0 = u_0, a_t = 0.8 a_(t-1) + 0.2 u_t, clipped."""
    controls = uniform_random(shape, generator)
    for step in range(1, len(controls)):
        controls[step] = 0.8 * controls[step - 1] + 0.2 * controls[step]
    return np.clip(controls, -LIMIT, LIMIT)


def draw(family: str, centre: Array64, generator: np.random.Generator, blocks: int) -> Array64:
    """(H, A) one sequence of the named family; the reference draws nothing."""
    sigma = noise_sigma(family)
    if sigma is not None:
        return noisy(centre, generator, sigma)
    if family == SHUFFLED:
        return shuffled(centre, generator, blocks)
    if family == SMOOTH:
        return smooth_random(centre.shape, generator)
    if family == UNIFORM:
        return uniform_random(centre.shape, generator)
    if family == REFERENCE:
        return centre
    raise _unknown(family)


def _unknown(family: str) -> DjepaError:
    return unknown_name("family", family, (*PLAIN, f"{NOISY}<sigma>"))


def draw_unique(
    family: str,
    count: int,
    centre: Array64,
    generator: np.random.Generator,
    *,
    blocks: int,
    cast: Cast,
    seen: set[bytes],
    max_attempts: int,
) -> list[Floats]:
    """`count` cast sequences (H, A) whose bytes are not in `seen`, to which they are added."""
    accepted: list[Floats] = []
    for _ in range(max_attempts):
        if len(accepted) == count:
            break
        sequence = cast(draw(family, centre, generator, blocks))
        if sequence.tobytes() not in seen:
            seen.add(sequence.tobytes())
            accepted.append(sequence)
    if len(accepted) < count:
        raise exhausted(f"{count} of family '{family}'", len(accepted), max_attempts)
    return accepted


def exhausted(wanted: str, found: int, max_attempts: int) -> DjepaError:
    """The error for a pool that needs more attempts than allowed for unique sequences."""
    return DjepaError(
        f"Found only {found} unique sequences, wanted {wanted}, after {max_attempts} attempts. "
        "Ask for fewer, raise max_attempts, or use another reference."
    )


def is_centred(family: str) -> bool:
    """Whether a family is made from its centre; random controls belong to none."""
    return family not in (SMOOTH, UNIFORM)


def check_quotas(quotas: Iterable[tuple[str, int]], horizon: int, blocks: int) -> dict[str, int]:
    """The count of each family, after checking names, counts and horizon."""
    counts: dict[str, int] = {}
    for family, count in quotas:
        if family in counts:
            raise DjepaError(f"Family '{family}' is listed twice. Add up its counts.")
        if noise_sigma(family) is None and family not in PLAIN:
            raise _unknown(family)
        counts[family] = check_int(f"The count of family '{family}'", count, 1)
    if SHUFFLED in counts and horizon % check_int("The number of blocks", blocks, 1):
        raise DjepaError(
            f"Horizon {horizon} does not divide into {blocks} equal blocks to shuffle. "
            "Choose another number of blocks or leave the family 'shuffled' out."
        )
    return counts


def check_shuffles(centre: npt.NDArray[Any], blocks: int, wanted: int) -> None:
    """Refuse a stored centre (H, A) with fewer than `wanted` block orders that differ from it.

    Equal blocks make permutations coincide: blocks! / (product of multiplicities!) remain.
    """
    if not wanted:
        return
    repeats = Counter(part.tobytes() for part in np.split(centre, blocks))
    orders = math.factorial(blocks)
    for repeat in repeats.values():
        orders //= math.factorial(repeat)
    if orders - 1 < wanted:
        raise DjepaError(
            f"The reference allows only {orders - 1} distinct shuffles of its {blocks} blocks, "
            f"but {wanted} are wanted: too many blocks are equal. "
            "Use another reference or a smaller count for the family 'shuffled'."
        )
