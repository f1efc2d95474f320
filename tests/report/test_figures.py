import csv
import sys

import numpy as np
import pytest
from PIL import Image

from djepa.errors import DjepaError, MissingExtraError
from djepa.report import curves, figures, maps

pytest.importorskip("matplotlib")

MODELS = ("native lewm", "native tdjepa")
RNG = np.random.default_rng(0)
BY_SHORTLIST = {m: {k: RNG.uniform(0, 1, 3 + k) for k in (4, 16)} for m in MODELS}
RANKS = np.array([[1, 2, 3], [3, 1, 2]])
LATENTS = RNG.normal(size=(5, 6))


def gap_strip(stem):
    return figures.gap_strip(stem, {"a": [-0.5, np.nan, 0.25, 0.0], "b": [-1.0, -0.5]})


def inversion_bars(stem):
    return figures.inversion_bars(stem, BY_SHORTLIST)


def correlation_curves(stem):
    pooled = {m: {4: 0.5, 16: 0.75} for m in MODELS}
    return curves.correlation_curves(stem, BY_SHORTLIST, pooled)


def success_bars(stem):
    panels = {
        "reference": {"native lewm": (3, 4), "D-JEPA": (4, 4), "oracle": (4, 4)},
        "decoy": {"native lewm": (1, 2), "oracle": (2, 2)},
    }
    groups = {"models": ["native lewm"], "ours": ["D-JEPA", "oracle"]}
    return figures.success_bars(stem, panels, groups, {"reference": {"native lewm": 83.59}})


def budget_curves(stem):
    budget = {m: {8: [0.5, 0.75, 1.0], 63: [0.75] * 3} for m in MODELS}
    return curves.budget_curves(stem, budget, 256)


def learning_curve(stem):
    fitted = {"relational": {64: (1, 4), 128: (3, 4)}, "D-JEPA": {128: (4, 4)}}
    return curves.learning_curve(stem, fitted)


def rank_recovery(stem):
    return maps.rank_recovery(stem, RANKS, RANKS, RANKS[::-1])


def terminal_geometry(stem):
    return maps.terminal_geometry(stem, LATENTS, LATENTS / 2, np.zeros(6), (3, 1))


ALL = (gap_strip, inversion_bars, correlation_curves, success_bars, budget_curves,
       learning_curve, rank_recovery, terminal_geometry)  # fmt: skip


def numbers(paths):
    with paths[2].open() as file:
        return list(csv.reader(file))


@pytest.mark.parametrize("draw", ALL)
def test_three_files_and_the_same_bytes_again(tmp_path, draw):
    paths = draw(tmp_path / "made" / "fig.1")
    assert [p.name for p in paths] == ["fig.1.png", "fig.1.svg", "fig.1.csv"]
    with Image.open(paths[0]) as picture:
        assert 600 <= picture.width <= 1400  # 200 dpi: one column to a page
        assert np.asarray(picture.convert("L")).std() > 5  # something was drawn
    assert b"<svg" in paths[1].read_bytes()
    assert len(numbers(paths)) > 1
    before = [p.read_bytes() for p in paths]
    assert [p.read_bytes() for p in draw(tmp_path / "fig.1")] == before
    assert not any(word in before[1] for word in (b"<dc:date>", b"Matplotlib v"))


def test_own_settings_change_nothing(tmp_path):
    import matplotlib

    before = budget_curves(tmp_path / "a")[1].read_bytes()
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red", "svg.hashsalt": "x"}):
        assert budget_curves(tmp_path / "a")[1].read_bytes() == before
        assert matplotlib.rcParams["font.size"] == 20


def test_gaps_and_their_quartiles(tmp_path):
    # a without NaN: -0.5, 0, 0.25, of which 0.25 is above zero.
    assert numbers(gap_strip(tmp_path / "f"))[1:] == [
        ["a", "0", "-0.5"],
        ["a", "2", "0.25"],
        ["a", "3", "0.0"],
        ["a", "lower quartile", "-0.25"],
        ["a", "median", "0.0"],
        ["a", "upper quartile", "0.125"],
        ["b", "0", "-1.0"],
        ["b", "1", "-0.5"],
        ["b", "lower quartile", "-0.875"],
        ["b", "median", "-0.75"],
        ["b", "upper quartile", "-0.625"],
    ]


def test_means_by_shortlist(tmp_path):
    header, *rows = numbers(inversion_bars(tmp_path / "f"))
    assert header == ["model", "shortlist", "mean", "low", "high", "starts"]
    assert [row[:2] for row in rows] == [[m, k] for m in MODELS for k in ("16", "4")]
    for model, k, mean, low, high, starts in rows:
        values = BY_SHORTLIST[model][int(k)]
        assert float(mean) == values.mean()
        assert float(low) < float(mean) < float(high)
        assert int(starts) == len(values)


def test_both_correlations(tmp_path):
    rows = numbers(correlation_curves(tmp_path / "f"))[1:]
    assert [row[0] for row in rows] == ["within"] * 2 + ["pooled"] * 2 + ["within"] * 2 + [
        "pooled"
    ] * 2
    assert rows[2] == ["pooled", "native lewm", "16", "0.75", "", "", ""]
    assert float(rows[0][3]) == BY_SHORTLIST["native lewm"][16].mean()


def test_successes(tmp_path):
    rows = numbers(success_bars(tmp_path / "f"))[1:]
    assert [row[:5] for row in rows] == [
        ["reference", "native lewm", "3", "4", "0.75"],
        ["reference", "D-JEPA", "4", "4", "1.0"],
        ["reference", "oracle", "4", "4", "1.0"],
        ["decoy", "native lewm", "1", "2", "0.5"],
        ["decoy", "oracle", "2", "2", "1.0"],
    ]
    assert float(rows[0][5]) == pytest.approx(0.301, abs=0.001)  # Wilson of 3/4
    assert [row[7] for row in rows] == ["83.59", "", "", "", ""]


def test_budgets(tmp_path):
    assert numbers(budget_curves(tmp_path / "g"))[1:3] == [
        ["native lewm", "8", "0.75", "0.5", "1.0", "3"],
        ["native lewm", "63", "0.75", "0.75", "0.75", "3"],
    ]


def test_learning(tmp_path):
    rows = numbers(learning_curve(tmp_path / "f"))[1:]
    assert [row[:5] for row in rows] == [
        ["relational", "64", "1", "4", "0.25"],
        ["relational", "128", "3", "4", "0.75"],
        ["D-JEPA", "128", "4", "4", "1.0"],
    ]


def test_ranks(tmp_path):
    rows = numbers(rank_recovery(tmp_path / "f"))[1:]
    after = [row[1:] for row in rows if row[0] == "after the lift"]
    assert after == [["1", "1", "2"], ["2", "2", "2"], ["3", "3", "2"]]
    before = {tuple(row[1:]) for row in rows if row[0] == "before the lift"}
    assert before == {(a, b, "1") for a, b in ("13", "21", "32", "31", "12", "23")}


def test_one_plane_for_both(tmp_path):
    (_, goal, *rows) = numbers(terminal_geometry(tmp_path / "f"))
    flat = {(kind, int(k)): np.array([float(x), float(y)]) for kind, k, x, y, _ in rows}
    centre = np.array([float(goal[2]), float(goal[3])])
    for k in range(5):  # lifted halfway to the goal, in any plane
        lifted, first = flat["lifted", k] - centre, flat["predicted", k] - centre
        np.testing.assert_allclose(lifted, first / 2, atol=1e-12)
    assert [row[:2] for row in rows if row[4] == "1"] == [["predicted", "3"], ["lifted", "1"]]


def test_methods_keep_their_colours():
    from djepa.report.style import BLUE, VERMILION, looks

    found = looks(["D-JEPA", "other", "LeWM", "another"])
    assert (found["D-JEPA"]["color"], found["LeWM"]["color"]) == (VERMILION, BLUE)
    assert len({look["color"] for look in found.values()}) == 4
    assert len({look["marker"] for look in looks(map(str, range(7))).values()}) == 7


@pytest.mark.parametrize(
    ("draw", "arguments", "message"),
    [
        (figures.gap_strip, ({},), "something to show"),
        (figures.gap_strip, ({"a": [np.nan]},), "no start"),
        (figures.inversion_bars, ({"a": {4: [0.5]}, "b": {8: [0.5]}},), "same sizes"),
        (figures.inversion_bars, ({"a": {4: []}},), "needs numbers"),
        (figures.success_bars, ({"p": {"a": (1, 2), "b": (1, 3)}},), r"run on \[2, 3\] starts"),
        (figures.success_bars, ({"p": {"a": (1, 2)}}, {"": ["b"]}), "Unknown method 'b'"),
        (maps.rank_recovery, (RANKS, RANKS[:1]), "one shape"),
        (maps.rank_recovery, (RANKS, RANKS - 1), "from 1 to 3"),
        (maps.terminal_geometry, (LATENTS, LATENTS[:4], LATENTS[0], (0, 1)), "no one pool"),
        (maps.terminal_geometry, (LATENTS, LATENTS, LATENTS[0], (0, 5)), "no one pool"),
    ],
)
def test_what_cannot_be_drawn(tmp_path, draw, arguments, message):
    with pytest.raises(DjepaError, match=message):
        draw(tmp_path / "f", *arguments)
    assert not list(tmp_path.iterdir())


def test_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match="report"):
        budget_curves(tmp_path / "f")
