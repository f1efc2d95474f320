import pytest

from djepa.align.registry import METHODS
from djepa.evaluate import paper
from djepa.evaluate.paired import paired
from djepa.pools.profiles import PROFILES


def test_a_figure_stands_only_where_it_belongs() -> None:
    here = ("pusht", "confirmation", "pusht-confirmation", "native lewm")
    found = paper.figure(*here)
    assert found == paper.Figure(83.59, 256, "tab:main")
    for place, other in enumerate(("reacher", "mechanism", "reference-control", "D-JEPA")):
        assert paper.figure(*here[:place], other, *here[place + 1 :]) is None
    assert paper.figure(*here, candidates=8) is None
    assert paper.figure(*here, case="strict") is None


def test_decoy_and_planner_pools_and_our_own_method_have_none() -> None:
    pools = {
        key.pools for key in paper.FIGURES if key.study not in ("robotwin", "piper", "driving")
    }
    assert pools <= {*PROFILES, "replay"}
    assert not any(key.method == "D-JEPA" for key in paper.FIGURES)


def test_methods_are_those_of_the_registry() -> None:
    others = {"native chunk", "fixed correction", "scalar gate", "without preservation"}
    named = {key.method.removesuffix(", lifted") for key in paper.FIGURES}
    assert named <= {*METHODS, *others}


def test_shares_are_whole_numbers_of_starts() -> None:
    for key, figure in paper.FIGURES.items():
        # The mean over looks and the one over subsets are not counts of starts.
        if key.quantity == "success" and (key.study, key.case) != ("appearance", "mean"):
            hits = figure.value * figure.starts / 100
            assert abs(hits - round(hits)) < 0.025, key


@pytest.mark.parametrize(
    ("method", "study", "gains", "losses", "starts", "interval"),
    [
        ("composition", "pusht", 19, 8, 256, (0.39, 8.20)),  # over LeWM
        ("composition", "pusht", 37, 9, 256, (5.86, 16.02)),  # over TD-JEPA
        ("relational", "reacher", 15, 6, 128, (0.78, 14.06)),
        ("relational", "reacher", 33, 1, 128, (17.19, 32.81)),
    ],
)
def test_the_printed_intervals_are_those_of_our_bootstrap(
    method: str, study: str, gains: int, losses: int, starts: int, interval: tuple[float, float]
) -> None:
    (share,) = (of.value for key, of in paper.select(study).items() if key.method == method)
    both = round(share * starts / 100) - gains
    a = [True] * gains + [False] * losses + [True] * both
    b = [False] * gains + [True] * losses + [True] * both
    rest = [False] * (starts - len(a))
    found = paired(a + rest, b + rest).difference_interval
    one = 100 / starts  # a start, in points
    assert [100 * end for end in found] == pytest.approx(interval, abs=1.1 * one)


def test_full_budgets_and_deployment_repeat_success() -> None:
    here = ("pusht", "confirmation", "pusht-confirmation")
    for method in ("native lewm", "native tdjepa", "relational"):
        quantity = "success, mean of 16 subsets"
        assert paper.figure(*here, method, quantity=quantity) == paper.Figure(
            paper.figure(*here, method).value, 256, "tab:budget"
        )


def test_means_are_means() -> None:
    for study in ("shapes", "appearance"):
        found: dict[str, dict[str, float]] = {}
        for key, figure in paper.select(study).items():
            found.setdefault(key.method, {})[key.case] = figure.value
        for of in found.values():
            mean = of.pop("mean")
            assert sum(of.values()) / len(of) == pytest.approx(mean, abs=0.005)


def test_columns_of_a_table() -> None:
    cases = {"a": ("replay", "main"), "b": ("decoy", "main")}
    found = paper.columns("granular", cases, names={"native dinowm": "native"})
    assert found["a", "native"] == 35.94
    assert found["a", "relational"] == 39.06
    assert all(column == "a" for column, _ in found)
