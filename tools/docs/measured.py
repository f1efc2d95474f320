"""What a marker can call of figures without stored rows, and of single numbers of stored files.

docs/results/measured.json, shortlist.json, severity.json and inverse-kinematics.json hold what was
measured once, with the command that made it. Weights have their numbers in a card.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from tools.docs.values import RESULTS
from tools.severity import PAPER, choose

from djepa.evaluate.intervals import Rate
from djepa.evaluate.markdown import markdown
from djepa.evaluate.paper import figure
from djepa.models.weights import SHIPPED
from djepa.worlds.conditions import BLUR_SIGMA, DARK_FACTOR, NOISE_SHARE
from djepa.worlds.looks import CLEAN, CONDITIONS

WEIGHTS = Path(__file__).parents[2] / "weights"
ARMS, CHUNKS = "robotwin", "native chunk + 16 variants"  # the paper's study of two arms, its pools
CHANGES = {  # condition -> what a severity of it is
    "blur": lambda severity: f"{BLUR_SIGMA * severity:g} / 224 of the side",
    "salt-pepper": lambda severity: f"{100 * NOISE_SHARE * severity:g} % of the pixels",
    "dark": lambda severity: f"levels times {DARK_FACTOR**severity:.3f}",
}


@cache
def _json(file: str) -> Any:
    """A file of docs/results, or the card of weights."""
    places = (RESULTS / file, SHIPPED / file / "card.json", WEIGHTS / file / "card.json")
    return json.loads(next(path for path in places if path.is_file()).read_text())


def _at(file: str, *steps: str | int) -> Any:
    """What lies at these steps. In a list a name means the entry of that name."""
    found = _json(file)
    for step in steps:
        if isinstance(found, list) and isinstance(step, str):
            found = next(entry for entry in found if entry["name"] == step)
        else:
            found = found[step]
    return found


def number(file: str, *steps: str | int, digits: int = 2) -> str:
    """One number of a file of docs/results, or of the card of weights."""
    return f"{_at(file, *steps):.{digits}f}"


def percent(file: str, *steps: str | int, digits: int = 1) -> str:
    """One share of it, such as 26.4 %."""
    return f"{100 * _at(file, *steps):.{digits}f} %"


def millions(weights: str) -> str:
    """How many million parameters shipped weights have."""
    return f"{_json(weights)['parameters'] / 1e6:.1f}"


def tested(run: str) -> str:
    """Success of a longer training on starts that nothing was trained or chosen on."""
    metrics = _json("training-long.json")[run]["card"]["metrics"]
    low, high = (100 * end for end in metrics["native_interval"])
    return f"{100 * metrics['native']:.1f} % ({low:.1f}-{high:.1f})"


def unmoved(weights: str, steps: int) -> str:
    """Error after some steps as a share of that of a model which expects no change."""
    metrics = _json(weights)["metrics"]
    return f"{100 * metrics[f'l1_{steps}'] / metrics[f'still_{steps}']:.0f} %"


def measured(what: str, value: str) -> str:
    """A figure of measured.json, as it was noted."""
    return str(_json("measured.json")[what]["values"][value])


def share(hits: int, of: int) -> str:
    """A share with its interval, such as 9.4 % (3.2-24.2)."""
    return Rate(hits, of).percent(interval=True)


def printed(
    study: str, pools: str, method: str, case: str, quantity: str = "success", digits: int = 2
) -> str:
    """The paper's figure of one case; success in percent."""
    unit = " %" if quantity == "success" else ""
    return f"{_figure(study, pools, method, case, quantity):.{digits}f}{unit}"


def printed_range(study: str, pools: str, case: str, *methods: str) -> str:
    """Smallest and largest of the paper's figures, in percent."""
    found = [_figure(study, pools, method, case) for method in methods]
    return f"{min(found):.0f} to {max(found):.0f} %"


def printed_gap() -> str:
    """Share of the gap of two arms that the paper's means close."""
    base, ours, best = (
        _figure(ARMS, CHUNKS, method, "all") for method in ("native chunk", "relational", "oracle")
    )
    return f"{100 * (ours - base) / (best - base):.0f} %"


def _figure(study: str, pools: str, method: str, case: str, quantity: str = "success") -> float:
    found = figure(study, "confirmation", pools, method, case, quantity)
    assert found is not None, "not in the paper"
    return found.value


def patch_jepa() -> str:
    """Predictions and choices of the patch JEPA of two arms on held-out starts, by task."""
    lines = []
    for task in ("grab roller", "handover block", "bread to skillet", "object to drawer"):
        of = _json("bimanual-jepa")["validation"][task]
        shares = [
            f"{100 * of[f'{who} succeeds']:.0f} %" for who in ("random", "lowest cost", "best")
        ]
        tokens = f"{100 * of['error of tokens'] / of['error of no change']:.0f} %"
        lines.append((task, tokens, f"{1000 * of['error of tools, m']:.1f} mm", *shares))
    columns = ("task", "error of tokens", "of tools", "random variant", "lowest cost")
    return markdown((*columns, "best variant"), lines)


def shortlist() -> str:
    """Closed loop on development episodes, aligned choice among all and among eight."""
    stored = _json("shortlist.json")
    lines = []
    for planner, solved in stored["solved"].items():
        cells = []
        for rule, count in solved.items():
            cells.append(f"{count} ({Rate(count, stored['episodes']).percent()})")
            cells += ["", ""] if planner == stored["base"] else _difference(planner, rule)
        lines.append((planner, *cells))
    beside = ("difference, points", "p")
    return markdown(("planner", "solved, moderate", *beside, "solved, strict", *beside), lines)


def shortlist_gain(rule: str) -> str:
    """Aligned choice of eight against aligned choice of all."""
    points, p = _difference("D-JEPA, aligned choice of 8", rule, "D-JEPA, aligned choice")
    mean, _, interval = points.partition(" ")
    return f"{mean} points {interval}, p = {p}"


def _difference(ours: str, rule: str, theirs: str = "CEM under TD-JEPA") -> tuple[str, str]:
    wanted = (ours, theirs, rule)
    every = _json("shortlist.json")["differences"]
    one = next(of for of in every if (of["ours"], of["theirs"], of["rule"]) == wanted)
    mean, low, high = one["points"]
    return f"{mean:+.1f} ({low:+.1f} to {high:+.1f})", f"{one['p']:g}"


def kinematics() -> str:
    """Poses that our inverse kinematics of one arm and mink's do not reach."""
    stored = _json("inverse-kinematics.json")
    lines = [
        (begins, f"{of['ours']} of {stored['poses']}", f"{of['mink']} of {stored['poses']}",
         str(of["both"]))
        for begins, of in stored["failures"].items()
    ]  # fmt: skip
    return markdown(("search begins", "failures, ours", "failures, mink", "of both"), lines)


def severities() -> str:
    """The severities of looks.v2: the rule applied again to the success that was measured."""
    clean, lines = _tried(CLEAN, 1), []
    for condition in CONDITIONS[1:]:
        aim, way = min(PAPER[condition], clean), dict[float, float]()

        def success(severity: float, of: str = condition, way: dict[float, float] = way) -> float:
            way[severity] = _tried(of, severity)
            return way[severity]

        taken = choose(success, aim)
        cells = (f"{PAPER[condition]:.0f}", f"{aim:.1f}")
        tried = ", ".join(f"{found:.1f} at {severity:g}" for severity, found in way.items())
        is_that = CHANGES.get(condition, lambda _: "")(taken)
        lines.append((_title(condition), *cells, tried, f"{taken:g}", is_that))
    columns = ("condition", "paper", "aim", "at severity 1/2, then towards the aim", "taken")
    return markdown((*columns, "what that is"), lines)


def under(condition: str, severity: float) -> str:
    """Native success of the shapes' model under a condition, %."""
    return f"{_tried(condition, severity):.1f}"


def costs(condition: str, severity: float) -> str:
    """Points of success that a condition costs the shapes' model."""
    return f"{_tried(CLEAN, 1) - _tried(condition, severity):.0f}"


def _tried(condition: str, severity: float) -> float:
    return float(_json("severity.json")["tried"][f"{condition} {severity:g}"])


def _title(condition: str) -> str:
    return {"salt-pepper": "salt and pepper", "dark": "darkening"}.get(
        condition, condition.replace("-", " ")
    )
