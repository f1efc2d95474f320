"""The paper's own PushT figures, to print beside ours: plain facts, each with where it stands.

Keys are our method names. Populations differ: 256 confirmation starts, 128 mechanism starts, 96
audit starts and an earlier 32; a figure on one is not comparable with a figure on another. All of
them are the paper's starts, pools and weights, none of which are ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

CONFIRMATION, MECHANISM, AUDIT, EARLY = 256, 128, 96, 32  # starts
K = TypeVar("K")


@dataclass(frozen=True)
class Published:
    """One printed figure; percent of starts unless its dictionary says otherwise."""

    value: float
    starts: int
    source: str  # label of the table, figure or appendix
    successes: int | None = None  # where the count is printed too


@dataclass(frozen=True)
class PublishedPair:
    """A printed paired difference, in points."""

    difference: float
    interval: tuple[float, float]
    gains: int
    losses: int
    starts: int = CONFIRMATION
    source: str = "tab:paired"


@dataclass(frozen=True)
class PublishedDeployment:
    """What deploying one configuration takes."""

    success: float
    milliseconds: float  # median per start, end to end, batches of 16
    files: int  # checkpoint files, from app:implementation
    source: str = "tab:deployment"


def _all(source: str, starts: int, values: Mapping[K, float]) -> dict[K, Published]:
    return {key: Published(value, starts, source) for key, value in values.items()}


def _modules(value: float, successes: int) -> Published:
    return Published(value, CONFIRMATION, "tab:independentmodules", successes)


# Success on the confirmation starts.
SUCCESS: dict[str, Published] = {
    "native lewm": _modules(83.59, 214),
    "native tdjepa": _modules(76.95, 197),
    "plasticity": _modules(79.69, 204),
    "relational": _modules(87.11, 223),
    "composition": _modules(87.89, 225),
    **_all(
        "tab:main",
        CONFIRMATION,
        {
            "native jepawm": 85.16,
            "native dinowm": 82.03,
            "fusion, four": 85.94,
            "D-JEPA": 87.89,  # its best configuration, which is the composition
        },
    ),
}

# Adapted objectives of others on the confirmation starts; keys are the paper's names.
CONTROLS = _all(
    "tab:main",
    CONFIRMATION,
    {
        "PEGrad": 82.03,
        "Var-JEPA": 80.08,
        "conflict-safe variational": 81.25,
        "expected value": 78.91,
        "CVaR": 79.69,
    },
)

# Success on an earlier population.
EARLIER = _all(
    "tab:main",
    EARLY,
    {
        "native jepawm": 81.25,
        "native dinowm": 75.00,
        "native lewm": 81.25,
        "native tdjepa": 84.38,
        "fusion, four": 78.13,
        "D-JEPA": 93.75,
    },
)

# Blocks by their reference; the first on the confirmation starts, the others on mechanism starts.
ABLATION: dict[str, dict[str, Published]] = {
    "native tdjepa": _all(
        "tab:ablation",
        CONFIRMATION,
        {"native tdjepa": 76.95, "plasticity": 79.69, "relational": 87.11, "composition": 87.89},
    ),
    "lewm descriptors": _all(
        "tab:ablation",
        MECHANISM,
        {"lewm descriptors": 84.38, "temporal descriptors": 83.59, "relational": 93.75},
    ),
    "native jepawm": _all(
        "tab:ablation",
        MECHANISM,
        {
            "native dinowm": 95.31,
            "native jepawm": 98.44,
            "fusion, four": 99.22,
            "multi-geometry": 99.22,
        },
    ),
}

# (ours, reference) -> difference; 10,000 resamples of whole starts.
PAIRED: dict[tuple[str, str], PublishedPair] = {
    ("composition", "native lewm"): PublishedPair(4.30, (0.39, 8.20), 19, 8),
    ("composition", "native tdjepa"): PublishedPair(10.94, (5.86, 16.02), 37, 9),
}
for _name in ("native lewm", "native tdjepa"):
    PAIRED["D-JEPA", _name] = PAIRED["composition", _name]

# Candidates -> success, mean of 16 subset seeds.
BUDGET: dict[str, dict[int, Published]] = {
    name: _all("tab:budget", CONFIRMATION, dict(zip((8, 16, 32, 63), values, strict=True)))
    for name, values in {
        "native lewm": (80.42, 81.52, 82.18, 83.59),
        "native tdjepa": (77.10, 77.47, 77.95, 76.95),
        "relational": (81.96, 83.94, 86.28, 87.11),
    }.items()
}

# Shortlist size -> Spearman coefficient of predicted and realised latent cost.
SHORTLISTS = (63, 32, 16, 8, 4)
CORRELATION: dict[str, dict[str, dict[int, Published]]] = {
    kind: {
        name: _all("tab:diagnostic", AUDIT, dict(zip(SHORTLISTS, values, strict=True)))
        for name, values in of.items()
    }
    for kind, of in {
        "within": {
            "native lewm": (0.895, 0.842, 0.621, 0.339, 0.108),
            "native tdjepa": (0.798, 0.773, 0.560, 0.353, 0.126),
        },
        "pooled": {
            "native lewm": (0.931, 0.894, 0.774, 0.610, 0.519),
            "native tdjepa": (0.850, 0.820, 0.683, 0.503, 0.357),
        },
    }.items()
}

# Shortlist size -> mean share of success-failure pairs in the wrong order; starts are the mixed.
INVERSIONS: dict[str, dict[int, Published]] = {
    name: {k: Published(value, starts, "app:distanceconflict") for k, value, starts in of}
    for name, of in {
        "native lewm": ((63, 3.95, 96), (16, 20.44, 96), (4, 49.02, 34)),
        "native tdjepa": ((63, 3.87, 96), (16, 19.44, 95), (4, 38.22, 29)),
    }.items()
}

# Starts on which the nearest failing future is nearer than every successful one: a count.
POSITIVE_GAPS = _all("app:distanceconflict", AUDIT, {"native lewm": 8.0, "native tdjepa": 8.0})

DEPLOYMENT: dict[str, PublishedDeployment] = {
    "relational": PublishedDeployment(87.11, 35.03, 3),
    "composition": PublishedDeployment(87.89, 52.16, 4),
    "relational, lifted": PublishedDeployment(87.11, 34.02, 1),
}

# Share of ranks and of choices that native distance gives back after the lift; 63 · 256 ranks.
RECOVERY = _all("tab:deployment", CONFIRMATION, {"ranks": 100.0, "choices": 100.0})
