"""The registry of methods: name in stored rows, label in tables and pages, one-line description.

`name` is stored in rows and never changes; `label` is what a reader sees. The order of METHODS
is the order of every table.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Origin = Literal["published", "ours", "control", "bound"]
GEOMETRIES = {"lewm": "LeWM", "tdjepa": "TD-JEPA", "jepawm": "JEPA-WM", "dinowm": "DINO-WM"}


@dataclass(frozen=True)
class Method:
    """One way to choose a candidate."""

    name: str  # in stored rows
    label: str  # in tables and pages
    sentence: str
    origin: Origin
    preset: str = ""  # configuration that fits it, see align/presets.py; empty if not an alignment


def slug(name: str) -> str:
    """A folder or file name: lower case letters and digits, everything else one hyphen."""
    return "-".join("".join(c if c.isalnum() else " " for c in name.lower()).split())


def label(name: str) -> str:
    """The label of a method in tables; unregistered methods are shown by their name."""
    return METHODS[name].label if name in METHODS else name


def ordered(names: Iterable[str]) -> list[str]:
    """Names sorted in the order of tables; unregistered methods come last, in the given order."""
    places = {name: place for place, name in enumerate(METHODS)}
    return sorted(dict.fromkeys(names), key=lambda name: places.get(name, len(places)))


def _control(name: str, shown: str, sentence: str) -> Method:
    return Method(name, shown, sentence, "control")


def _published(name: str, shown: str, sentence: str, preset: str = "") -> Method:
    return Method(name, shown, sentence, "published", preset)


def _ours(name: str, shown: str, sentence: str, preset: str = "") -> Method:
    return Method(name, shown, sentence, "ours", preset)


_OWN = "The candidate with the lowest planning cost of"
_DENSE = "The candidate whose predicted end has the nearest neighbours; the goal is not used."
_FUSED = "Convex sum of cost ranks; the weights solve most fitting starts."
_FUSED_DENSE = "The same fusion with the rank of pool density as one more input."
_FUSED_BOTH = "The same fusion with the ranks of LeWM's and TD-JEPA's pool density as inputs."

_LISTED = (
    _control("random", "random candidate", "A candidate drawn at random."),
    _control("anchor", "recorded attempt", "The recorded attempt that the pool was made from."),
    _control(
        "endpoint",
        "pusher endpoint",
        "The candidate after which the pusher is nearest to its goal; the block is ignored.",
    ),
    *(
        _control(f"consensus {name}", f"pool density alone, {shown}", _DENSE)
        for name, shown in (
            ("lewm", "LeWM"),
            ("tdjepa", "TD-JEPA"),
            ("joint", "JEPA-WM"),
            ("plain", "DINO-WM"),
        )
    ),
    *(
        _published(f"native {name}", shown, f"{_OWN} {shown}.")
        for name, shown in GEOMETRIES.items()
    ),
    _published("native score", "native score", "The highest score of the trajectory scorer."),
    _control(
        "consensus native",
        "pool density alone",
        "The query with the nearest neighbours in the pool.",
    ),
    _control(
        "forecast, straight",
        "forecast at constant velocity",
        "The highest PDMS if every other road user kept its present velocity.",
    ),
    _control(
        "forecast, lanes",
        "forecast along lanes",
        "The highest PDMS if vehicles kept to their lanes and their acceleration faded.",
    ),
    _control(
        "forecast, rules",
        "forecast by the rules of the road",
        "The highest mean PDMS over sampled futures in which vehicles follow, turn and yield.",
    ),
    _published("native policy", "native policy", "The chunk of the native policy."),
    _published(
        "fixed correction",
        "fixed correction",
        "The variant that solves most fitting starts of the task, always.",
    ),
    _published(
        "scalar gate",
        "scalar gate",
        "That variant where the policy expects a large error of itself, else the native chunk.",
    ),
    _published(
        "timing gate",
        "timing gate",
        "That variant where the native chunk grasps early, else the native chunk.",
    ),
    _published(
        "distance gate",
        "distance gate",
        "That variant where the native chunk stays far from the predicted grasps.",
    ),
    _control(
        "nearest to colours",
        "nearest to colours",
        "The candidate nearest to the grasps and places that the colours predict.",
    ),
    _control(
        "nearest to scene",
        "nearest to scene",
        "The candidate nearest to the grasps and places that the whole scene predicts.",
    ),
    _control(
        "nearest to prediction",
        "nearest to prediction",
        "The candidate whose end, as a patch JEPA predicts it, is nearest to the predicted goal.",
    ),
    _control("consensus predictive", "pool density alone, predicted ends", _DENSE),
    _control("consensus scene", "pool density alone, grasps and places", _DENSE),
    _control("consensus energy", "pool density alone, energy", _DENSE),
    _ours(
        "without preservation",
        "D-JEPA, without preservation",
        "Our choice among all candidates; the native chunk is one of them.",
    ),
    _control(
        "scalar fusion",
        "fusion of native scalars",
        "Ridge regression of quality on the scorer's logits, score and rank.",
    ),
    _control(
        "per-candidate network",
        "per-candidate network",
        "Score correction without attention between candidates.",
    ),
    _published(
        "score correction",
        "score correction",
        "A bounded change of every native score, from 288 numbers a candidate.",
    ),
    _published(
        "anchor-relative",
        "anchor-relative, without risk",
        "Predicted benefit beside the native winner, from 282 numbers a candidate.",
    ),
    _published(
        "anchor-relative with risk",
        "anchor-relative, with risk",
        "The same, less the predicted risk of a collision that the native winner has not.",
    ),
    _published("native", "model's own cost", f"{_OWN} the study's one model."),
    *(
        _control(
            f"native, turned-{angle}",
            f"model's own cost, view turned {angle}°",
            f"{_OWN} the same model, which sees the table turned by {angle} degrees.",
        )
        for angle in (90, 180, 270)
    ),
    _control("visual alone", "visual part of the cost", "The lowest visual part of the cost."),
    _control(
        "proprio alone",
        "proprioceptive part of the cost",
        "The lowest proprioceptive part of the cost.",
    ),
    _control(
        "fine-tuned",
        "TD-JEPA, fine-tuned",
        "TD-JEPA with the end of its predictor trained on prediction error alone.",
    ),
    _published("PEGrad", "PEGrad", "Ranking gradients without the part against prediction."),
    _published("Var-JEPA", "Var-JEPA", "A variational residual on the predicted futures."),
    _published("conflict-safe", "conflict-safe variational", "Both of the two above."),
    _published("expected value", "expected value", "Mean cost of 16 futures of the prior."),
    _published("CVaR", "CVaR", "Mean of the two largest costs of 16 futures of the prior."),
    _published(
        "plasticity",
        "predictive plasticity",
        "TD-JEPA with the end of its predictor adapted to outcomes; its own cost chooses.",
    ),
    _published("fusion", "fusion", _FUSED),
    _control("multi-view fusion", "fusion of four views", _FUSED),
    _published("fusion, two", "fusion of two models", _FUSED),
    _published("fusion, four", "fusion of four models", _FUSED),
    _control("consensus + fusion", "fusion + pool density", _FUSED_DENSE),
    _control("consensus + fusion, two", "fusion of two models + pool density", _FUSED_DENSE),
    _control("consensus + fusion, four", "fusion of four models + pool density", _FUSED_DENSE),
    _control("both consensus + fusion", "fusion + both pool densities", _FUSED_BOTH),
    _control(
        "both consensus + fusion, two", "fusion of two models + both pool densities", _FUSED_BOTH
    ),
    _control(
        "both consensus + fusion, four", "fusion of four models + both pool densities", _FUSED_BOTH
    ),
    Method(
        "pointwise",
        "operator without relations",
        "The published operator without attention between candidates.",
        "control",
        "pointwise",
    ),
    _published(
        "lewm descriptors",
        "published operator, LeWM alone",
        "The published operator on LeWM's futures and ranks.",
        "lewm",
    ),
    _published(
        "temporal descriptors",
        "published operator, TD-JEPA alone",
        "The published operator on TD-JEPA's futures and ranks.",
        "tdjepa",
    ),
    _published(
        "multi-geometry",
        "published operator, four models",
        "The published operator with the ranks of four models over JEPA-WM's rank.",
        "four",
    ),
    Method(
        "four-fused",
        "published operator over fusion of four",
        "The published operator with the ranks of four models over their fusion.",
        "control",
        "four-fused",
    ),
    _control(
        "multi-view",
        "published operator, four views",
        "The published operator on the ranks of four views of one model.",
    ),
    _published(
        "relational",
        "D-JEPA, as published",
        "The paper's relational operator over fusion, under its calibrated gate.",
        "published",
    ),
    _published(
        "relational, fitted here",
        "D-JEPA, as published, fitted in this run",
        "The same, fitted on the few starts of this run.",
        "published",
    ),
    _published(
        "composition",
        "D-JEPA, as published, with composition",
        "The published operator, and plasticity where a calibrated margin prefers it.",
    ),
    _ours(
        "log costs",
        "likelihood mixture, without density",
        "Log costs weighted by the likelihood of the outcomes of fitting starts.",
        "logs",
    ),
    _ours(
        "log mixture",
        "likelihood mixture, with density",
        "The same with pool density as one more input where folds of the fitting starts gain.",
        "log",
    ),
    _ours(
        "mixture",
        "likelihood mixture, with density and ranks",
        "Log costs, ranks and pool density, each kept where folds of the fitting starts gain.",
    ),
    _ours(
        "mixture, simple forecasts",
        "likelihood mixture without the forecast by rules",
        "The native score, the forecasts at constant velocity and along lanes, and pool density.",
    ),
    _ours(
        "D-JEPA",
        "D-JEPA",
        "The likelihood mixture, and an operator over it that acts only if calibration starts "
        "show a gain.",
        "best",
    ),
    _ours(
        "D-JEPA, unchecked",
        "D-JEPA, without the comparison of evidence",
        "D-JEPA whose gate may also open where the evidence differs from that of the calibration.",
    ),
    _ours(
        "D-JEPA, native alone",
        "D-JEPA, from the native score alone",
        "D-JEPA without forecasts.",
    ),
    _ours(
        "D-JEPA, straight forecast",
        "D-JEPA, forecast at constant velocity alone",
        "D-JEPA without the forecasts along lanes and by the rules of the road.",
    ),
    _ours(
        "D-JEPA, few harmed",
        "D-JEPA, certified limit on harm",
        "D-JEPA's choice where a gate is open that turns at most 5 % of starts from a success of "
        "the native chunk to a failure, with 95 % confidence; else the native chunk.",
    ),
    _ours(
        "D-JEPA, certified",
        "D-JEPA, limit on harm certified",
        "D-JEPA's choice where a gate is open that turns at most 1 % of logs from no collision at "
        "fault to one, with 95 % confidence; else the native choice.",
    ),
    Method(
        "realised lewm",
        "LeWM's cost after execution",
        "LeWM's cost of what execution showed: its predictor without error.",
        "bound",
    ),
    _control("random controls", "random controls", "Closed loop: controls drawn at random."),
    *(
        _published(
            f"cem {name}", f"CEM under {shown}", f"Closed loop: search under {shown}'s cost."
        )
        for name, shown in GEOMETRIES.items()
    ),
    _control("icem", "iCEM", "Closed loop: CEM with coloured noise that carries its best along."),
    _control("mppi", "MPPI", "Closed loop: the mean of candidates weighted by their log cost."),
    _ours(
        "aligned",
        "D-JEPA, aligned choice",
        "Closed loop: CEM under one model; D-JEPA chooses among its final population.",
    ),
    _ours(
        "aligned-2",
        "D-JEPA, aligned choice, second round",
        "Closed loop: as aligned choice, fitted also at states to which the first round led.",
    ),
    _ours("aligned-cem", "D-JEPA, aligned search", "Closed loop: D-JEPA scores every population."),
    _ours(
        "aligned-mppi",
        "D-JEPA, MPPI by log costs",
        "Closed loop: candidates weighted by the likelihood mixture of log costs; their mean.",
    ),
    Method("oracle", "best candidate", "A success wherever the pool holds one.", "bound"),
)
METHODS = {method.name: method for method in _LISTED}
