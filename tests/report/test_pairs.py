import csv

import numpy as np
import pytest
from PIL import Image

from djepa.errors import DjepaError
from djepa.report import curves, figures, frames, maps
from djepa.report.style import BLUE, VERMILION

pytest.importorskip("matplotlib")

COUNTS = {"clean": (14, 2, 50), "dark": (3, 11, 50), "granular": (0, 0, 256)}
THRESHOLDS = np.array([0.06, 0.12, 0.18, 0.3])
CURVES = {"native lewm": np.array([0, 0.25, 0.5, 1]), "D-JEPA": np.array([0.125, 0.5, 0.75, 1])}
MARKS = {"main": 0.18, "strict": 0.12}
OURS = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
THEIRS = np.array([0.2, 0.3, 0.4, 0.1, 0.4, 0.6])  # three above ours, two below, one equal
TABLE = np.array([[0.02, 0.08], [np.nan, -0.01], [-0.03, 0.0]])
NAMES = ("D-JEPA", "native lewm")


def frame(level, size=8):
    """White on top, a level beneath."""
    made = np.full((size, size, 3), 255, np.uint8)
    made[size // 2 :] = level
    return made


LOOKS = {"clean": (frame(100), frame(50)), "dark": (frame(45), frame(23))}
FILMS = {"D-JEPA": [frame(0), frame(90)], "native lewm": [frame(0), frame(180)]}
OUTCOME = {"native lewm": False, "D-JEPA": True}


def gains_and_losses(stem):
    return figures.gains_and_losses(stem, COUNTS, *NAMES)


def threshold_curve(stem):
    return curves.threshold_curve(stem, THRESHOLDS, CURVES, MARKS)


def paired_costs(stem):
    return curves.paired_costs(stem, OURS, THEIRS, NAMES, MARKS)


def paired_log(stem):
    return curves.paired_costs(stem, OURS, THEIRS, NAMES, {"success": 1.0}, log=True)


def coefficient_map(stem):
    return maps.coefficient_map(stem, TABLE, 0.1)


def looks_picture(stem):
    return frames.looks_picture(stem, LOOKS)


def films(stem):
    return frames.films(stem, FILMS, ("start", "25"), frame(90), OUTCOME)


ALL = (gains_and_losses, threshold_curve, paired_costs, paired_log, coefficient_map, looks_picture,
       films)  # fmt: skip


def numbers(paths):
    with paths[2].open() as file:
        return list(csv.reader(file))


@pytest.fixture
def drawn(monkeypatch):
    """The figures as they were saved."""
    kept, save = [], figures.save

    def keep(figure, *rest):
        paths = save(figure, *rest)
        figure.draw_without_rendering()  # places everything at the resolution of the PNG again
        kept.append(figure)
        return paths

    for module in (curves, figures, frames, maps):
        monkeypatch.setattr(module, "save", keep)
    return kept


def said(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


@pytest.mark.parametrize("draw", ALL)
def test_three_files_and_the_same_bytes_again(tmp_path, draw):
    paths = draw(tmp_path / "made" / "fig.1")
    assert [p.name for p in paths] == ["fig.1.png", "fig.1.svg", "fig.1.csv"]
    with Image.open(paths[0]) as picture:
        assert np.asarray(picture.convert("L")).std() > 5  # something was drawn
    assert b"<svg" in paths[1].read_bytes()
    before = [p.read_bytes() for p in paths]
    assert [p.read_bytes() for p in draw(tmp_path / "fig.1")] == before


@pytest.mark.parametrize("draw", ALL)
def test_no_text_is_cut(tmp_path, drawn, draw):
    draw(tmp_path / "f")
    paper, ink = drawn[0].bbox_inches, drawn[0].get_tightbbox()
    assert ink.min.min() >= 0
    assert (ink.max <= paper.max).all()


def test_gains_right_losses_left(tmp_path, drawn):
    header, *rows = numbers(gains_and_losses(tmp_path / "f"))
    assert header == ["case", "gains", "losses", "starts"]
    assert [(case, *map(int, of)) for case, *of in rows] == [(c, *of) for c, of in COUNTS.items()]
    axes = drawn[0].axes[0]
    bars = [(bar.get_width(), matched(bar)) for bar in axes.patches]
    assert bars == [(28, BLUE), (-4, VERMILION), (6, BLUE), (-22, VERMILION),
                    (0, BLUE), (0, VERMILION)]  # fmt: skip
    texts = {text.get_text() for text in axes.texts}
    assert {"+12 of 50", "−8 of 50", "0 of 256", "14", "11"} <= texts
    handles = [handle.get_color() for handle in drawn[0].legends[0].legend_handles]
    assert handles == [BLUE, VERMILION]
    assert said(drawn[0])[0] == "gains: D-JEPA succeeds, native lewm fails"


def matched(artist):
    from matplotlib.colors import to_hex

    return to_hex(np.ravel(artist.get_facecolor())[:3]).upper()


def test_shares_by_threshold(tmp_path, drawn):
    header, *rows = numbers(threshold_curve(tmp_path / "f"))
    assert header == ["method", "threshold", "share"]
    for name, curve in CURVES.items():
        own = [(float(x), float(y)) for method, x, y in rows if method == name]
        assert own == list(zip(THRESHOLDS, curve, strict=True))
    axes = drawn[0].axes[0]
    lines = {line.get_label(): line for line in axes.lines}
    np.testing.assert_array_equal(lines["D-JEPA"].get_ydata(), 100 * CURVES["D-JEPA"])
    upright = [line.get_xdata()[0] for line in axes.lines if line.get_label() not in CURVES]
    assert sorted(upright) == [0.12, 0.18]
    assert {text.get_text() for text in axes.texts} == {"strict 0.12", "main 0.18"}


def test_crowded_marks_do_not_meet(tmp_path, drawn):
    marks = {"strict": 0.12, "nearly": 0.125, "main": 0.18, "loose": 0.19}
    curves.threshold_curve(tmp_path / "f", THRESHOLDS, CURVES, marks)
    curves.paired_costs(tmp_path / "g", OURS, THEIRS, NAMES, marks)
    for figure in drawn:
        boxes = [text.get_window_extent() for text in figure.axes[0].texts]
        assert len(boxes) == 4
        assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


@pytest.mark.parametrize("draw", [paired_costs, paired_log])
def test_sides_of_the_diagonal(tmp_path, drawn, draw):
    header, *rows = numbers(draw(tmp_path / "f"))
    assert header == ["start", "ours", "theirs"]
    pairs = zip(OURS, THEIRS, strict=True)
    assert [tuple(map(float, row)) for row in rows] == [(i, *pair) for i, pair in enumerate(pairs)]
    assert said(drawn[0]) == [
        "below, D-JEPA better: 3 of 6",
        "above, native lewm better: 2 of 6",
        "on the diagonal, equal: 1 of 6",
    ]
    axes = drawn[0].axes[0]
    assert axes.get_xlim() == axes.get_ylim()
    assert axes.get_window_extent().width == pytest.approx(axes.get_window_extent().height)
    below, above, equal = (np.asarray(points.get_offsets()) for points in axes.collections)
    np.testing.assert_array_equal(below, [[0.2, 0.1], [0.3, 0.2], [0.4, 0.3]])  # theirs, ours
    np.testing.assert_array_equal(above, [[0.1, 0.4], [0.4, 0.5]])
    np.testing.assert_array_equal(equal, [[0.6, 0.6]])
    assert [matched(points) for points in axes.collections[:2]] == [BLUE, VERMILION]


def test_coefficients_around_zero(tmp_path, drawn):
    header, *rows = numbers(coefficient_map(tmp_path / "f"))
    assert header == ["bin", "step", "coefficient"]
    assert [row[:2] for row in rows] == [[b, t] for b in "123" for t in "12"]
    read = [float(value) if value else np.nan for *_, value in rows]
    np.testing.assert_array_equal(np.reshape(read, (3, 2)), TABLE)
    axes, bar = drawn[0].axes
    assert axes.images[0].get_clim() == (-0.08, 0.08)  # its own maximum, not the bound
    cells = [text.get_text() for text in axes.texts]
    assert cells == ["+0.020", "+0.080", "", "−0.010", "−0.030", "0.000"]
    assert "ρ = 0.1" in bar.get_ylabel()
    shades = axes.images[0].cmap
    assert [shades(x)[2] > shades(x)[0] for x in (0.0, 1.0)] == [False, True]  # blue above zero


def test_no_movement(tmp_path, drawn):
    rows = numbers(maps.coefficient_map(tmp_path / "f", np.zeros((2, 1)), 0.1))
    assert rows[1:] == [["1", "1", "0.0"], ["2", "1", "0.0"]]
    assert drawn[0].axes[0].images[0].get_clim() == (-0.1, 0.1)


def test_looks_above_their_goals(tmp_path, drawn):
    assert numbers(looks_picture(tmp_path / "f")) == [
        ["look", "context mean level", "goal mean level"],
        ["clean", "177.5", "152.5"],
        ["dark", "150.0", "139.0"],
    ]
    shown = [axes.images[0].get_array() for axes in drawn[0].axes]
    for i, pair in enumerate(LOOKS.values()):
        np.testing.assert_array_equal(shown[i], pair[0])  # upper row
        np.testing.assert_array_equal(shown[i + 2], pair[1])
    assert [axes.get_title() for axes in drawn[0].axes] == ["clean", "dark", "", ""]


def test_films_end_with_the_goal(tmp_path, drawn):
    rows = numbers(films(tmp_path / "f"))
    assert rows == [["method", "succeeded"], ["D-JEPA", "1"], ["native lewm", "0"]]
    axes = drawn[0].axes
    assert [a.get_title() for a in axes[:3]] == ["start", "25", "goal"]
    assert [axes[i].get_ylabel() for i in (0, 3)] == ["D-JEPA\nsucceeds", "native lewm\nfails"]
    for line, given in enumerate(FILMS.values()):
        for column, expected in enumerate([*given, frame(90)]):
            np.testing.assert_array_equal(axes[3 * line + column].images[0].get_array(), expected)


@pytest.mark.parametrize(
    ("draw", "arguments", "message"),
    [
        (figures.gains_and_losses, ({}, *NAMES), "something to show"),
        (figures.gains_and_losses, ({"a": (3, 2, 4)}, *NAMES), "of 4 starts"),
        (figures.gains_and_losses, ({"a": (-1, 2, 4)}, *NAMES), "-1 gains"),
        (figures.gains_and_losses, ({"a": (0, 0, 0)}, *NAMES), "of 0 starts"),
        (curves.threshold_curve, (THRESHOLDS, {}, MARKS), "something to show"),
        (curves.threshold_curve, ([], {"a": []}, MARKS), "two or more"),
        (curves.threshold_curve, ([0.2, 0.1], {"a": [0, 1]}, MARKS), "rising"),
        (curves.threshold_curve, ([0.1, 0.2], {"a": [0, 0.5, 1]}, MARKS), "a: needs 2 shares"),
        (curves.threshold_curve, ([0.1, 0.2], {"a": [0, 50]}, MARKS), "from 0 to 1"),
        (curves.threshold_curve, ([0.1, 0.2], {"a": [0, np.nan]}, MARKS), "from 0 to 1"),
        (curves.paired_costs, ([], [], NAMES, MARKS), "twice"),
        (curves.paired_costs, (OURS, THEIRS[:5], NAMES, MARKS), r"\(6,\) and \(5,\)"),
        (curves.paired_costs, ([np.nan], [1.0], NAMES, MARKS), "finite"),
        (curves.paired_costs, ([0.0], [1.0], NAMES, MARKS, True), "above zero"),
        (maps.coefficient_map, (np.empty((0, 5)), 0.1), "needs numbers"),
        (maps.coefficient_map, (np.full((2, 2), np.nan), 0.1), "needs numbers"),
        (maps.coefficient_map, (TABLE, 0.05), "0.08 cannot have the bound 0.05"),
        (frames.looks_picture, ({},), "something to show"),
        (frames.looks_picture, ({"a": (frame(1), frame(1, 6))},), "of one S"),
        (frames.looks_picture, ({"a": (frame(1) / 255, frame(1) / 255)},), "uint8"),
        (frames.films, ({}, ("start",), frame(1), {}), "something to show"),
        (frames.films, (FILMS, (), frame(1), OUTCOME), "need times"),
        (frames.films, (FILMS, ("start", "25"), frame(1), {"D-JEPA": True}), "one outcome"),
        (frames.films, (FILMS, ("start",), frame(1), OUTCOME), "D-JEPA: needs 2 frames"),
    ],
)
def test_what_cannot_be_drawn(tmp_path, draw, arguments, message):
    with pytest.raises(DjepaError, match=message):
        draw(tmp_path / "f", *arguments)
    assert not list(tmp_path.iterdir())
