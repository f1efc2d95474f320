"""Every figure that the paper prints, and where it belongs.

A figure is comparable only with the same method on the same kind of pool and the same population
of the same study, so all four are its key: `figure` returns None for anything else. They are of
the paper's starts and weights, none of which are ours: to be looked at, not tested against.

Methods are named as in align/registry.py. The paper's row "D-JEPA" is `composition` on PushT and
`relational` elsewhere. Pools are named by their profile (docs/pools.md); PushT's are 256 candidates
of `pusht-confirmation`, of which TD-JEPA's cost retains 63.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

RETAINED, CONTROL = "pusht-confirmation", "reference-control"
VISUAL, REPLAY = "visual-shape", "replay"
STARTS = {  # (study, population) -> starts; of each case where cases have starts of their own
    ("pusht", "confirmation"): 256,
    ("pusht", "mechanism"): 128,
    ("pusht", "audit"): 96,
    ("pusht", "earlier"): 32,
    ("reacher", "confirmation"): 128,
    ("granular", "confirmation"): 64,
    ("shapes", "confirmation"): 100,
    ("appearance", "confirmation"): 50,
    ("robotwin", "confirmation"): 128,
    ("piper", "confirmation"): 50,
    ("driving", "confirmation"): 1,
}
SHORTLISTS = (63, 32, 16, 8, 4)
BUDGETS = (8, 16, 32, 63)
SHAPES = ("I", "small-T", "square", "mean")
LOOKS = ("clean", "blur", "salt-pepper", "dark", "block-colour", "marker-colour", "pusher-colour")
TASKS = ("roller", "skillet", "cabinet", "handover", "all")


@dataclass(frozen=True)
class Key:
    """What a figure is of."""

    study: str
    population: str
    pools: str
    method: str
    case: str = ""  # shape, look, task or success rule
    quantity: str = "success"  # per cent, unless a name below says otherwise
    candidates: int = 63  # budget or shortlist


@dataclass(frozen=True)
class Figure:
    """One printed number."""

    value: float
    starts: int
    source: str  # label of the table, figure or appendix


@dataclass(frozen=True)
class PrintedPair:
    """A printed paired difference, in points; the interval only where one is printed."""

    difference: float
    gains: int
    losses: int
    starts: int
    source: str
    interval: tuple[float, float] | None = None


def figure(
    study: str,
    population: str,
    pools: str,
    method: str,
    case: str = "",
    quantity: str = "success",
    candidates: int = 63,
) -> Figure | None:
    """The paper's figure of exactly this, or None."""
    return FIGURES.get(Key(study, population, pools, method, case, quantity, candidates))


def pair(study: str, pools: str, ours: str, theirs: str, case: str = "") -> PrintedPair | None:
    """The paper's paired difference on confirmation starts, or None."""
    return PAIRS.get((Key(study, "confirmation", pools, ours, case), theirs))


def select(
    study: str, quantity: str = "success", population: str = "confirmation"
) -> dict[Key, Figure]:
    """All figures of one quantity: a whole table of the paper, in its order."""
    wanted = (study, quantity, population)
    return {k: f for k, f in FIGURES.items() if (k.study, k.quantity, k.population) == wanted}


def columns(
    study: str,
    cases: Mapping[str, tuple[str, str]],
    quantity: str = "success",
    names: Mapping[str, str] | None = None,
) -> dict[tuple[str, str], float]:
    """(column, method) -> value, for tables with a column for each case.

    `cases`: column -> its profile and the paper's case. `names`: the paper's method -> ours.
    """
    return {
        (column, (names or {}).get(key.method, key.method)): found.value
        for key, found in select(study, quantity).items()
        for column, of in cases.items()
        if (key.pools, key.case) == of
    }


def _rows(
    source: str,
    study: str,
    population: str,
    pools: str,
    of: Mapping[str, Sequence[float | None] | float],
    cases: Sequence[str] = ("",),
    quantity: str = "success",
    candidates: Sequence[int] = (63,),
    starts: Sequence[int] = (),
) -> dict[Key, Figure]:
    """Method -> values by case, or by number of candidates; None is a gap in the paper's table."""
    found, at = {}, [(case, k) for case in cases for k in candidates]
    counts = starts or [STARTS[study, population]] * len(at)
    for method, values in of.items():
        row = values if isinstance(values, Sequence) else [values]
        for (case, k), value, n in zip(at, row, counts, strict=True):
            if value is not None:
                key = Key(study, population, pools, method, case, quantity, k)
                found[key] = Figure(value, n, source)
    return found


_MAIN = {  # Table 1: PushT, Reacher, granular Chamfer, main, strict, earlier PushT
    "native jepawm": (85.16, 84.38, 0.370, 34.38, 12.50, 81.25),
    "native dinowm": (82.03, 80.47, 0.341, 35.94, 7.81, 75.00),
    "native lewm": (83.59, 86.72, 0.350, 37.50, 14.06, 81.25),
    "native tdjepa": (76.95, 68.75, 0.390, 28.13, 9.38, 84.38),
    "PEGrad": (82.03, 78.13, 0.380, 31.25, 10.94, 65.63),
    "Var-JEPA": (80.08, 75.00, 0.400, 29.69, 9.38, 62.50),
    "conflict-safe": (81.25, 77.34, 0.390, 31.25, 10.94, 65.63),
    "expected value": (78.91, 74.22, 0.410, 28.13, 9.38, 62.50),
    "CVaR": (79.69, 75.78, 0.400, 29.69, 9.38, 62.50),
    "fusion, four": (85.94, 82.03, 0.360, 37.50, 15.63, 78.13),
    "relational": (None, 93.75, 0.358, 39.06, 18.75, None),
    "composition": (87.89, None, None, None, None, 93.75),
}


def _main(column: int) -> dict[str, list[float | None]]:
    return {method: [row[column]] for method, row in _MAIN.items()}


def _inverted(method: str, values: Sequence[float], mixed: Sequence[int]) -> dict[Key, Figure]:
    """Of success-failure pairs in shortlists; starts are those with both outcomes in them."""
    of = ("app:distanceconflict", "pusht", "audit", RETAINED, {method: values})
    return _rows(*of, quantity="inverted pairs", candidates=(63, 16, 4), starts=mixed)


FIGURES: dict[Key, Figure] = {
    **_rows("tab:main", "pusht", "confirmation", RETAINED, _main(0)),
    **_rows("tab:main", "pusht", "earlier", RETAINED, _main(5)),
    **_rows(
        "tab:independentmodules",
        "pusht",
        "confirmation",
        RETAINED,
        {"plasticity": 79.69, "relational": 87.11},
    ),
    **_rows(
        "tab:ablation",
        "pusht",
        "mechanism",
        RETAINED,
        {
            "lewm descriptors": 84.38,
            "temporal descriptors": 83.59,
            "relational": 93.75,
            "native dinowm": 95.31,
            "native jepawm": 98.44,
            "fusion, four": 99.22,
            "multi-geometry": 99.22,
        },
    ),
    **_rows(
        "tab:budget",
        "pusht",
        "confirmation",
        RETAINED,
        {
            "native lewm": (80.42, 81.52, 82.18, 83.59),
            "native tdjepa": (77.10, 77.47, 77.95, 76.95),
            "relational": (81.96, 83.94, 86.28, 87.11),
        },
        quantity="success, mean of 16 subsets",
        candidates=BUDGETS,
    ),
    **_rows(
        "tab:diagnostic",
        "pusht",
        "audit",
        RETAINED,
        {
            "native lewm": (0.895, 0.842, 0.621, 0.339, 0.108),
            "native tdjepa": (0.798, 0.773, 0.560, 0.353, 0.126),
        },
        quantity="Spearman, within",
        candidates=SHORTLISTS,
    ),
    **_rows(
        "tab:diagnostic",
        "pusht",
        "audit",
        RETAINED,
        {
            "native lewm": (0.931, 0.894, 0.774, 0.610, 0.519),
            "native tdjepa": (0.850, 0.820, 0.683, 0.503, 0.357),
        },
        quantity="Spearman, pooled",
        candidates=SHORTLISTS,
    ),
    **_inverted("native lewm", (3.95, 20.44, 49.02), (96, 96, 34)),
    **_inverted("native tdjepa", (3.87, 19.44, 38.22), (96, 95, 29)),
    **_rows(
        "app:distanceconflict",
        "pusht",
        "audit",
        RETAINED,
        {"native lewm": 8, "native tdjepa": 8},
        quantity="starts with a positive gap",
    ),
    **_rows(
        "app:distanceconflict",
        "pusht",
        "audit",
        RETAINED,
        {"native lewm": (0.2027, 0.2167)},
        ("fails", "succeeds"),
        quantity="distance of the recorded pair",
    ),
    **_rows(
        "tab:deployment",
        "pusht",
        "confirmation",
        RETAINED,
        {"relational": 35.03, "composition": 52.16, "relational, lifted": 34.02},
        quantity="milliseconds",
    ),
    **_rows(
        "app:implementation",
        "pusht",
        "confirmation",
        RETAINED,
        {"relational": 3, "composition": 4, "relational, lifted": 1},
        quantity="files",
    ),
    **_rows(
        "tab:deployment",
        "pusht",
        "confirmation",
        RETAINED,
        {"relational, lifted": 87.11},
    ),
    **_rows(
        "tab:deployment",
        "pusht",
        "confirmation",
        RETAINED,
        {"relational, lifted": (100.0, 100.0)},
        ("ranks", "choices"),
        quantity="recovered by native distance",
    ),
    **_rows("tab:main", "reacher", "confirmation", CONTROL, _main(1)),
    **_rows(
        "tab:reachercost",
        "reacher",
        "confirmation",
        CONTROL,
        {"native tdjepa": 0.0515, "native lewm": 0.0302, "relational": 0.0245},
        quantity="cost",
    ),
    **_rows("tab:main", "granular", "confirmation", REPLAY, _main(2), quantity="cost"),
    **_rows("tab:main", "granular", "confirmation", REPLAY, _main(3), ("main",)),
    **_rows("tab:main", "granular", "confirmation", REPLAY, _main(4), ("strict",)),
    **_rows(
        "tab:generalization",
        "shapes",
        "confirmation",
        VISUAL,
        {
            "native": (22.0, 39.0, 24.0, 28.33),
            "fusion": (37.0, 61.0, 36.0, 44.67),
            "relational": (52.0, 66.0, 43.0, 53.67),
        },
        SHAPES,
        starts=(100, 100, 100, 300),
    ),
    **_rows(
        "tab:generalization",
        "appearance",
        "confirmation",
        VISUAL,
        {
            "native": (64.0, 66.0, 68.0, 72.0, 24.0, 48.0, 54.0, 56.57),
            "fusion": (70.0, 76.0, 72.0, 74.0, 30.0, 56.0, 62.0, 62.86),
            "relational": (78.0, 82.0, 82.0, 82.0, 54.0, 60.0, 74.0, 73.14),
        },
        (*LOOKS, "mean"),
    ),
    **_rows(
        "tab:robotwincontrols",
        "robotwin",
        "confirmation",
        "native chunk + 16 variants",
        {
            "native chunk": (71.09, 64.06, 59.38, 52.34, 61.72),
            "fixed correction": (75.00, 68.75, 64.84, 58.59, 66.80),
            "scalar gate": (75.78, 67.97, 63.28, 57.81, 66.21),
            "without preservation": (None, None, None, None, 71.48),
            "relational": (83.59, 78.91, 75.00, 69.53, 76.76),
            "oracle": (89.06, 85.16, 82.03, 77.34, 83.40),
        },
        TASKS,
        starts=(128, 128, 128, 128, 512),
    ),
    **_rows(
        "tab:realrobot",
        "piper",
        "confirmation",
        "cross-entropy search",
        {"native": (56.0, 72.0), "relational": (74.0, 88.0)},
        ("push T", "stack"),
    ),
    **_rows(
        "tab:driving",
        "driving",
        "confirmation",
        "32 trajectories",
        {
            "native": (0.0, 58.33, 58.33, 58.33, 58.33, 83.33, 84.86, 57.36),
            "relational": (80.0, 95.83, 95.83, 99.17, 99.17, 99.67, 97.73, 95.34),
            "oracle": (100.0,) * 8,
        },
        (*(f"scene {i}" for i in range(1, 8)), "mean"),
        quantity="PDMS",
        starts=(1,) * 7 + (7,),
    ),
}


def _counts(
    study: str, pools: str, source: str, of: Mapping[str, tuple[int, int]], starts: int
) -> dict[tuple[Key, str], PrintedPair]:
    """Case -> gains and losses of the published D-JEPA over fusion."""
    return {
        (Key(study, "confirmation", pools, "relational", case), "fusion"): PrintedPair(
            100 * (gains - losses) / starts, gains, losses, starts, source
        )
        for case, (gains, losses) in of.items()
    }


_LOOK_COUNTS = ((4, 0), (3, 0), (6, 1), (4, 0), (15, 3), (5, 3), (6, 0))
_PUSHT = Key("pusht", "confirmation", RETAINED, "composition")
_REACHER = Key("reacher", "confirmation", CONTROL, "relational")
_STACK = Key("piper", "confirmation", "cross-entropy search", "relational", "stack")
PAIRS: dict[tuple[Key, str], PrintedPair] = {
    (_PUSHT, "native lewm"): PrintedPair(4.30, 19, 8, 256, "tab:paired", (0.39, 8.20)),
    (_PUSHT, "native tdjepa"): PrintedPair(10.94, 37, 9, 256, "tab:paired", (5.86, 16.02)),
    (_REACHER, "native lewm"): PrintedPair(7.03, 15, 6, 128, "tab:paired", (0.78, 14.06)),
    (_REACHER, "native tdjepa"): PrintedPair(25.00, 33, 1, 128, "tab:paired", (17.19, 32.81)),
    **_counts(
        "shapes",
        VISUAL,
        "tab:shiftcounts",
        {"I": (21, 6), "small-T": (13, 8), "square": (14, 7)},
        100,
    ),
    **_counts(
        "appearance",
        VISUAL,
        "tab:shiftcounts",
        dict(zip(LOOKS, _LOOK_COUNTS, strict=True)),
        50,
    ),
    (replace(_STACK, case="push T"), "native"): PrintedPair(18.0, 12, 3, 50, "tab:realrobot"),
    (_STACK, "native"): PrintedPair(16.0, 10, 2, 50, "tab:realrobot"),
}
