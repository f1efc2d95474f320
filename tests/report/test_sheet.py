import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from djepa.bank.collect import collect
from djepa.errors import DjepaError
from djepa.report import canvas
from djepa.report.canvas import FAILURE, LINE, SUCCESS, UNKNOWN, layout
from djepa.report.sheet import animation, contact_sheet, default_candidates, save_animation, show
from djepa.rollout.engine import LocalEngine
from djepa.rollout.execute import CollectConfig
from djepa.tasks.task import TASKS, get_task


@pytest.fixture(autouse=True)
def one_thread():
    """Small frames gain nothing from threads, and on a busy machine lose a lot."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def altered(bank, **outcomes):
    """The bank with other outcomes, as an object that only the pictures take for a bank."""
    names = ("path", "config", "manifest", "candidates", "decisions", "provenance", "row", "world")
    seen = dataclasses.replace(bank.outcomes, **outcomes)
    return SimpleNamespace(**{name: getattr(bank, name) for name in names}, outcomes=seen)


def edges(image, count, size=112, columns=None):
    """Colour of the left border of every candidate's tile, in order of ID."""
    plan = layout(count, size, columns)
    boxes = [plan.box(i) for i in range(count)]
    return [image.getpixel((box[0] + 1, (box[1] + box[3]) // 2)) for box in boxes]


@pytest.mark.parametrize("start", [0, 7])
def test_every_border_says_the_outcome(small_bank, start):
    order = np.argsort(small_bank.decisions.candidate_ids[start])
    won = small_bank.outcomes.success[start][order]
    expected = [SUCCESS.colour if s else FAILURE.colour for s in won]
    assert edges(contact_sheet(small_bank, start), 63) == expected
    assert 0 < won.sum() < 63


def test_any_size_and_number_of_columns(small_bank):
    for size, columns in ((80, 5), (128, 12), (112, 99)):
        image = contact_sheet(small_bank, 1, size, columns)
        colours = edges(image, 63, size, columns)
        assert colours.count(SUCCESS.colour) == small_bank.outcomes.success[1].sum()
        last = layout(63, size, columns).box(62)
        assert last[2] < image.width
        assert last[3] < image.height
    assert contact_sheet(small_bank, 1).tobytes() == contact_sheet(small_bank, 1).tobytes()


def test_final_frames_are_those_of_the_world(small_bank):
    image = np.asarray(contact_sheet(small_bank, 2))
    k = int(np.argsort(small_bank.decisions.candidate_ids[2])[10])
    final, goal = small_bank.outcomes.states[2, k, -1], small_bank.decisions.goal[2]
    frame = small_bank.world().render(final, 112, goal)
    left, top, right, bottom = layout(63).box(10)
    shown = image[top + 4 : bottom - 4, left + 4 : right - 4]
    np.testing.assert_array_equal(shown[22:], frame[22:])  # the badge covers a corner above


def test_unobserved_is_grey_and_never_failure(small_bank):
    seen = small_bank.outcomes
    observed, states, cost = seen.observed.copy(), seen.states.copy(), seen.cost.copy()
    order = np.argsort(small_bank.decisions.candidate_ids[3])
    hidden = order[:5]
    observed[3, hidden], states[3, hidden], cost[3, hidden] = False, np.nan, np.nan
    bank = altered(small_bank, observed=observed, states=states, cost=cost)
    image = contact_sheet(bank, 3)
    assert edges(image, 63)[:5] == [UNKNOWN.colour] * 5
    assert UNKNOWN.colour not in edges(image, 63)[5:]
    left, top, right, bottom = layout(63).box(0)
    assert image.getpixel(((left + right) // 2, (top + bottom) // 2)) == LINE
    assert not set(default_candidates(bank, 3)) & set(bank.decisions.candidate_ids[3, hidden])
    last = animation(bank, 3, [int(bank.decisions.candidate_ids[3, hidden[0]])], size=112)[-1]
    assert last.getpixel((13, 60)) == UNKNOWN.colour


def test_marks_differ_without_colour():
    shapes = [np.asarray(canvas.badge(m, 22).convert("L")) > 200 for m in (SUCCESS, FAILURE)]
    assert all(20 < shape.sum() < 200 for shape in shapes)
    assert (shapes[0] ^ shapes[1]).sum() > 40
    assert (shapes[1] == shapes[1][:, ::-1]).mean() > 0.95  # a cross is symmetric, a tick is not
    assert (shapes[0] == shapes[0][:, ::-1]).mean() < 0.9


@pytest.mark.parametrize("world", [name for name in TASKS if name != "arm"])
def test_the_legend_names_colours_of_that_world(world):
    task, page = get_task(world), canvas.Canvas(600, 40)
    canvas.key_of_colours(page, 0, 30, 20, task)
    drawn = {tuple(row) for row in np.asarray(page.image).reshape(-1, 3).tolist()}
    named = task.key()
    assert set(named.values()) <= drawn
    assert ("pusher" in named) == (world == "push")
    others = {c for name in TASKS for c in get_task(name).key().values()} - set(named.values())
    assert not others & drawn


def test_layout_chooses_columns():
    assert layout(63).columns == 9
    assert layout(64).columns == 8
    assert layout(3).columns == 3
    assert layout(63, columns=5).columns == 5
    with pytest.raises(DjepaError, match="column"):
        layout(63, columns=0)
    with pytest.raises(DjepaError, match="80 pixels"):
        layout(63, size=40)


def test_animation_ends_as_recorded(small_bank):
    ids = default_candidates(small_bank, 4)
    frames = animation(small_bank, 4, ids, size=112)
    assert len(frames) == 26
    assert len({frame.size for frame in frames}) == 1
    at = [(12 + i * 132 + 1, 60) for i in range(len(ids))]
    row = small_bank.decisions.candidate_ids[4].tolist()
    won = [small_bank.outcomes.success[4, row.index(i)] for i in ids]
    assert won[:2] == [True, False]
    ends = [frames[-1].getpixel(p) for p in at]
    assert ends == [SUCCESS.colour if s else FAILURE.colour for s in won]
    for frame in frames[:-1]:  # nothing is given away before the end
        assert not {frame.getpixel(p) for p in at} & {SUCCESS.colour, FAILURE.colour}


def test_default_candidates(small_bank):
    seen, made = small_bank.outcomes, small_bank.provenance
    for start in range(3):
        ids, cost = small_bank.decisions.candidate_ids[start], seen.cost[start]
        free = np.where(made.centre_of[start] != 0, cost, -np.inf)
        won = seen.success[start]
        expected = [
            ids[np.where(won, cost, np.inf).argmin()],
            ids[np.where(won, np.inf, cost).argmin()],
            ids[free.argmax()],
        ]
        assert default_candidates(small_bank, start) == expected


def test_default_candidates_of_a_pool_that_lacks_some(small_bank):
    seen, ids = small_bank.outcomes, small_bank.decisions.candidate_ids[0]
    tied = altered(small_bank, success=np.zeros_like(seen.success), cost=np.full_like(seen.cost, 2))
    free = ids[small_bank.provenance.centre_of[0] != 0]
    assert default_candidates(tied, 0) == [ids.min(), free.min()]
    with pytest.raises(DjepaError, match="No candidate of start 0 was executed"):
        default_candidates(altered(small_bank, observed=np.zeros_like(seen.observed)), 0)


def test_an_outcome_that_does_not_repeat_is_an_error(small_bank):
    wrong = altered(small_bank, success=~small_bank.outcomes.success)
    with pytest.raises(DjepaError, match="does not end as recorded"):
        animation(wrong, 0)


def test_show_writes_both(small_bank, tmp_path):
    paths = show(small_bank, 6, tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["start-6.png", "start-6.gif"]
    assert sorted(p.name for p in paths[0].parent.iterdir()) == ["start-6.gif", "start-6.png"]
    with Image.open(paths[0]) as sheet:
        assert sheet.convert("RGB").tobytes() == contact_sheet(small_bank, 6).tobytes()
    with Image.open(paths[1]) as film:
        assert film.n_frames == 26
        assert film.info["loop"] == 0
        assert film.info["duration"] == 100
        film.seek(25)
        assert film.info["duration"] == 1000
        shown = np.asarray(film.convert("RGB"), np.int64)
    last = np.asarray(animation(small_bank, 6)[-1], np.int64)
    assert np.abs(shown - last).max() <= 96  # antialiased edges go to a near colour
    assert np.abs(shown - last).mean() < 4
    assert paths[1].stat().st_size < 200_000


def test_decoy_pools_name_their_centres(tmp_path):
    bank = collect(tmp_path / "decoy", CollectConfig(starts=2, profile="decoy"), LocalEngine(1))
    won = bank.outcomes.success[1].sum()
    assert edges(contact_sheet(bank, 1), 64).count(SUCCESS.colour) == won
    assert len(show(bank, 1, tmp_path, candidates=[1, 2, 2])) == 2


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        ([1, 64], "no candidate 64; it has 63, from 1 to 63"),
        ([-1], "no candidate -1"),
        ([], "1 to 6"),
        (range(1, 9), "1 to 6"),
    ],
)
def test_wrong_candidates(small_bank, tmp_path, candidates, message):
    with pytest.raises(DjepaError, match=message):
        show(small_bank, 0, tmp_path, candidates)
    assert not list(tmp_path.iterdir())


def test_wrong_start_folder_and_rate(small_bank, tmp_path):
    with pytest.raises(DjepaError, match="no start 10; it has 0 to 9"):
        show(small_bank, 10, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(DjepaError, match=r"file.*Choose another place"):
        show(small_bank, 0, tmp_path / "file")
    with pytest.raises(DjepaError, match="1 to 50"):
        save_animation(tmp_path / "x.gif", animation(small_bank, 0, size=112), fps=0)
