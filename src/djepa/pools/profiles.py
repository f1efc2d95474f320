"""Named pool recipes and the pools they make around one reference.

Shapes: K candidates, H horizon, A action width.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from djepa.checks import Floats, check_floats, check_int
from djepa.errors import DjepaError, check_name, unknown_name
from djepa.pools.families import (
    LIMIT,
    SHUFFLED,
    Array64,
    check_quotas,
    check_shuffles,
    draw,
    draw_unique,
    exhausted,
    is_centred,
)
from djepa.pools.pool import REFERENCE, Pool

SeedMode = Literal["stream", "refill", "restart"]
Item = tuple[str, Floats]

SMALL = (
    (REFERENCE, 1),
    ("noisy_0.05", 8),
    ("noisy_0.15", 8),
    ("noisy_0.3", 8),
    ("shuffled", 7),
    ("smooth_random", 16),
    ("uniform_random", 16),
)
LARGE = (
    (REFERENCE, 1),
    ("noisy_0.05", 32),
    ("noisy_0.15", 32),
    ("noisy_0.3", 32),
    ("shuffled", 31),
    ("smooth_random", 64),
    ("uniform_random", 64),
)


@dataclass(frozen=True)
class Profile:
    """A recipe for the pool around one reference. Vary a preset with `dataclasses.replace`."""

    name: str
    quotas: tuple[tuple[str, int], ...]
    """Families and counts in drawing order; the reference is first, with count 1."""
    seed_mode: SeedMode = "stream"
    """`stream`: one generator; each family redraws until full.
    `refill`: attempt a draws a whole bank from seed + a; whatever is new fills what is open.
    `restart`: whole banks from seed, seed + 1, ...; the first without a repeat is the pool."""
    horizon: int = 25
    width: int | None = None
    """Required action width; None takes any."""
    blocks: int = 5
    """Equal parts that `shuffled` permutes."""
    scale: float = 1.0
    """The reference is divided by this, in the working dtype."""
    working: str | None = None
    """Dtype of the reference and of fresh draws; None keeps the reference's."""
    stored: str | None = None
    """Dtype in which sequences must be unique; None is the working one."""
    exposed: str | None = None
    """Dtype of the pool's actions; None is the stored one."""

    def __post_init__(self) -> None:
        check_name("seed mode", str(self.seed_mode), _MODES)
        check_int("The horizon", self.horizon, 1)
        check_quotas(self.quotas, self.horizon, self.blocks)
        if self.quotas[:1] != ((REFERENCE, 1),):
            raise DjepaError("The quotas of a profile must begin with ('reference', 1).")
        if self.width is not None:
            check_int("The action width", self.width, 1)
        if not (np.isfinite(self.scale) and self.scale > 0):
            raise DjepaError(f"The scale must be positive and finite, not {self.scale!r}.")
        for dtype in (self.working, self.stored, self.exposed):
            if dtype not in (None, "float16", "float32", "float64"):
                raise unknown_name("dtype", str(dtype), ("float16", "float32", "float64"))


@dataclass(frozen=True)
class _Source:
    """One checked reference (H, A) in the working dtype, and how its sequences are drawn."""

    profile: Profile
    reference: Floats
    max_attempts: int

    def cast(self, sequence: Array64) -> Floats:
        # Rounded twice on purpose: recorded pools were first rounded to the working dtype.
        worked = sequence.astype(self.reference.dtype)
        return worked.astype(self.profile.stored or worked.dtype)

    def bank(self, seed: int) -> Iterator[Item]:
        generator = np.random.default_rng(seed)
        centre = self.reference.astype(np.float64)
        for family, count in self.profile.quotas:
            for _ in range(count):
                yield family, self.cast(draw(family, centre, generator, self.profile.blocks))


def _stream(source: _Source, seed: int) -> tuple[list[Item], int]:
    generator = np.random.default_rng(seed)
    centre = source.reference.astype(np.float64)
    seen: set[bytes] = set()
    items: list[Item] = []
    for family, count in source.profile.quotas:
        accepted = draw_unique(
            family,
            count,
            centre,
            generator,
            blocks=source.profile.blocks,
            cast=source.cast,
            seen=seen,
            max_attempts=source.max_attempts,
        )
        items += [(family, sequence) for sequence in accepted]
    return items, seed


def _refill(source: _Source, seed: int) -> tuple[list[Item], int]:
    left = dict(source.profile.quotas)
    seen: set[bytes] = set()
    items: list[Item] = []
    for attempt in range(source.max_attempts):
        for family, sequence in source.bank(seed + attempt):
            if left[family] and sequence.tobytes() not in seen:
                seen.add(sequence.tobytes())
                left[family] -= 1
                items.append((family, sequence))
        if not any(left.values()):
            return items, seed
    raise exhausted(str(len(items) + sum(left.values())), len(items), source.max_attempts)


def _restart(source: _Source, seed: int) -> tuple[list[Item], int]:
    best = 0
    for attempt in range(source.max_attempts):
        items = list(source.bank(seed + attempt))
        unique = len({sequence.tobytes() for _, sequence in items})
        if unique == len(items):
            return items, seed + attempt
        best = max(best, unique)
    raise exhausted(str(len(items)), best, source.max_attempts)


_MODES: dict[str, Callable[[_Source, int], tuple[list[Item], int]]] = {
    "stream": _stream,
    "refill": _refill,
    "restart": _restart,
}

_PRESETS = (
    Profile("reference-control", SMALL),
    Profile("pusht-confirmation", LARGE, "refill", width=2, working="float32", stored="float16"),
    Profile(
        "visual-shape",
        SMALL,
        "restart",
        width=2,
        scale=100.0,
        working="float32",
        stored="float16",
        exposed="float32",
    ),
)
PROFILES: dict[str, Profile] = {preset.name: preset for preset in _PRESETS}
"""The published recipes by name; all have horizon 25."""


def _scaled(reference: object, profile: Profile) -> Floats:
    array = check_floats("The reference", reference, (profile.horizon, profile.width))
    dtype = np.dtype(profile.working or array.dtype)
    with np.errstate(over="ignore"):  # overflow is out of range, which is reported below
        scaled: Floats = array.astype(dtype) / dtype.type(profile.scale)
    if not (np.abs(scaled) <= LIMIT).all():
        largest = float(np.abs(scaled).max())
        raise DjepaError(
            f"The reference must lie within ±1 after division by {profile.scale:g}; "
            f"its largest magnitude is {largest:g}. Is it in the units of '{profile.name}'?"
        )
    return scaled


def control_pool(
    reference: npt.ArrayLike,
    seed: int,
    profile: str | Profile = "reference-control",
    max_attempts: int = 4096,
) -> Pool:
    """The pool around `reference` (H, A): IDs in order of acceptance, ID 0 the reference.

    `max_attempts` bounds draws per family (`stream`) or whole banks (`refill`, `restart`).
    The recorded seed is `seed`, but for `restart` the first one whose bank had no repeat.
    """
    if isinstance(profile, str):
        check_name("profile", profile, PROFILES)
        profile = PROFILES[profile]
    seed = check_int("The seed", seed, 0)
    attempts = check_int("max_attempts", max_attempts, 1)
    source = _Source(profile, _scaled(reference, profile), attempts)
    stored = source.cast(source.reference.astype(np.float64))
    check_shuffles(stored, profile.blocks, dict(profile.quotas).get(SHUFFLED, 0))
    items, recorded = _MODES[profile.seed_mode](source, seed)
    actions = np.stack([sequence for _, sequence in items])
    return Pool(
        ids=np.arange(len(items)),
        actions=actions.astype(profile.exposed or actions.dtype),
        families=tuple(family for family, _ in items),
        centres=np.array([0 if is_centred(family) else -1 for family, _ in items]),
        seed=recorded,
    )
