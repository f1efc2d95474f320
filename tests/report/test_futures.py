import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from djepa.errors import DjepaError
from djepa.models.lewm import LeWM
from djepa.models.predict import encode_states
from djepa.report import futures
from djepa.report.canvas import BORDER, FAILURE, MARGIN, PAPER, SUCCESS, Canvas, font, save_sheet
from djepa.report.futures import ROW, STEP, TITLE, TOP, WORDS, futures_sheet
from djepa.report.predicted import named, predict_pool, worth_seeing
from djepa.report.view import OUTER, SIZE, executed_states, view_of
from djepa.worlds.push import CANVAS
from tiny import TINY

B, K = 5, 63


class Foreseeing:
    """A geometry whose futures are the realised latents of one start, `late` candidates on.

    Its latents are pusher positions and velocities.
    """

    name, image, latent = "foreseeing", 28, 4

    def __init__(self, bank, row, late=0):
        states = torch.from_numpy(np.roll(bank.outcomes.states[row], -late, axis=0))
        self.futures = encode_states(self, bank.scene(), states)

    def encode(self, frames, proprio):
        return proprio

    def rollout(self, context, history, candidates):
        return self.futures[None]

    def native_cost(self, futures, goal):
        return (futures[:, :, -1] - goal[:, None]).square().mean(-1)


class Blind(Foreseeing):
    """Every frame looks the same to it."""

    def encode(self, frames, proprio):
        return torch.zeros_like(proprio)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Small frames gain nothing from threads, and on a busy machine lose a lot."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    net = LeWM(TINY).eval()
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return net.requires_grad_(False)


def hidden(bank, row, positions):
    """The bank with candidates of one start not executed, for those who only look at it."""
    seen = bank.outcomes
    observed, states, cost = seen.observed.copy(), seen.states.copy(), seen.cost.copy()
    observed[row, positions], states[row, positions], cost[row, positions] = False, np.nan, np.nan
    outcomes = dataclasses.replace(seen, observed=observed, states=states, cost=cost)
    names = (
        "path",
        "config",
        "manifest",
        "candidates",
        "decisions",
        "provenance",
        "row",
        "world",
        "scene",
    )
    return SimpleNamespace(**{name: getattr(bank, name) for name in names}, outcomes=outcomes)


def tiles(sheet, row=0, predicted=True, panel=0, wide=WORDS + B * STEP - (STEP - OUTER)):
    """(B, SIZE, SIZE, 3) frames of a strip as they stand on the page."""
    left = MARGIN + panel * (wide + MARGIN) + WORDS + BORDER
    top = TOP + TITLE + row * ROW + 40 + BORDER + (0 if predicted else OUTER + 42)
    page = np.asarray(sheet)
    xs = [left + b * STEP for b in range(B)]
    return np.stack([page[top : top + SIZE, x : x + SIZE] for x in xs])


@pytest.mark.parametrize("start", [0, 7])
def test_a_perfect_prediction_is_shown_as_executed(small_bank, start):
    predicted = predict_pool(small_bank, start, "x", Foreseeing(small_bank, start))
    for k in range(K):
        assert predicted.nearest(k).tolist() == [k * B + b for b in range(B)]
        assert predicted.own(k).tolist() == predicted.nearest(k).tolist()
    assert (predicted.drift == 0).all()
    assert np.allclose(predicted.cost, predicted.realised_cost)


def test_a_prediction_of_another_candidate_shows_that_one(small_bank):
    predicted = predict_pool(small_bank, 2, "x", Foreseeing(small_bank, 2, late=1))
    ids, latents = small_bank.decisions.candidate_ids[2], predicted.realised.flatten(0, 1)
    found = np.stack([predicted.nearest(k) for k in range(K)])
    claimed = (np.arange(K)[:, None] + 1) % K * B + np.arange(B)
    assert torch.equal(latents[found], latents[claimed])
    other = found != claimed  # shuffled candidates share blocks, and so whole frames
    assert other.mean() < 0.2
    own = found // B == np.arange(K)[:, None]
    assert (own | (ids[found // B] <= ids[claimed // B]))[other].all()
    z = latents.double()
    spread = (z - z.mean(0)).norm(dim=-1).square().mean().sqrt()
    gap = (predicted.realised[4, 2] - predicted.realised[3, 2]).double().norm()
    assert predicted.drift[3, 2] == pytest.approx((gap / spread).item(), rel=1e-4)


def test_ties_go_to_its_own_frame_and_then_to_the_smaller_id(small_bank):
    bank = hidden(small_bank, 1, [9])
    predicted = predict_pool(bank, 1, "x", Blind(small_bank, 1))
    first = int(bank.decisions.candidate_ids[1].argmin())
    assert predicted.nearest(8).tolist() == [8 * B + b for b in range(B)]
    assert predicted.nearest(9).tolist() == [first * B] * B
    assert predicted.ranking[0] == first
    assert (predicted.drift == 0).all()  # all latents alike: no spread, and no error


def test_the_strips_hold_the_frames_they_claim(small_bank):
    late = [("right", Foreseeing(small_bank, 3)), ("late", Foreseeing(small_bank, 3, late=1))]
    sheet = futures_sheet(small_bank, 3, late, candidates=[5, 9])
    for row in range(2):
        right, wrong = tiles(sheet, row), tiles(sheet, row, panel=1)
        executed = tiles(sheet, row, predicted=False)
        assert np.array_equal(right, executed)
        assert np.array_equal(executed, tiles(sheet, row, predicted=False, panel=1))
        assert not np.array_equal(wrong, executed)


def test_the_view_holds_everything_and_keeps_the_scale(small_bank):
    known = small_bank.decisions
    states = executed_states(small_bank, 4, np.arange(3 * B))
    view = view_of(small_bank, 4, states)
    assert np.array_equal(states.reshape(3, B, -1), small_bank.outcomes.states[4, :3])
    assert (view.corner >= 0).all()
    assert (view.corner + view.side <= CANVAS).all()
    for point in (states[:, 2:4], known.context[4][:, 2:4], known.goal[4][None, 2:4]):
        assert (point >= view.corner).all()
        assert (point <= view.corner + view.side).all()
    whole = dataclasses.replace(view, corner=np.zeros(2), side=CANVAS)
    expected = small_bank.world().render(states, SIZE, known.goal[4])
    assert np.array_equal(whole.frames(states), expected)
    assert view.frames(states).shape == expected.shape


@pytest.mark.parametrize("start", [0, 5, 8])
def test_the_telling_candidates(small_bank, model, start):
    predicted = predict_pool(small_bank, start, "x", model)
    rows, seen = worth_seeing(small_bank, start, predicted), small_bank.outcomes
    order, won = list(rows), seen.success[start]
    ranks = [predicted.ranking.tolist().index(k) for k in order]
    assert len(rows) == 4
    assert ranks == sorted(ranks)
    assert ranks[0] == 0
    assert rows[order[0]].startswith("native choice")
    best = int(seen.cost[start].argmin())
    assert "best executed" in rows[best]
    short = predicted.ranking[:8]
    if (won[short] != won[order[0]]).any():
        assert any(won[k] != won[order[0]] for k in order if k in short)


def test_a_native_choice_that_is_best_says_both(small_bank):
    class Oracle(Foreseeing):
        def native_cost(self, futures, goal):
            return torch.from_numpy(small_bank.outcomes.cost[6]).float()[None]

    predicted = predict_pool(small_bank, 6, "x", Oracle(small_bank, 6))
    rows = worth_seeing(small_bank, 6, predicted)
    assert next(iter(rows.values())) == "native choice and best executed"
    assert list(rows.values()).count("best executed") == 0


def test_the_page_and_its_file(small_bank, model, tmp_path):
    sheet = futures_sheet(small_bank, 2, [("one", model), ("two", model)])
    wide = WORDS + B * STEP - (STEP - OUTER)
    assert sheet.size == (2 * (wide + MARGIN) + MARGIN, TOP + TITLE + 4 * ROW + MARGIN // 2)
    assert (
        sheet.tobytes() == futures_sheet(small_bank, 2, [("one", model), ("two", model)]).tobytes()
    )
    predicted = predict_pool(small_bank, 2, "x", model)
    for i, k in enumerate(worth_seeing(small_bank, 2, predicted)):
        edge = sheet.getpixel((MARGIN + WORDS + 1, TOP + TITLE + i * ROW + 40 + OUTER + 42 + 60))
        assert edge == (SUCCESS if small_bank.outcomes.success[2, k] else FAILURE).colour
    save_sheet(tmp_path / "new" / "folder" / "x.png", sheet)
    with Image.open(tmp_path / "new" / "folder" / "x.png") as picture:
        assert picture.convert("RGB").tobytes() == sheet.tobytes()


def test_words_fit_their_places(small_bank, model, monkeypatch):
    """Nothing is cut short, except a title longer than its half of a panel."""
    cut = []

    class Watched(Canvas):
        def text(self, x, y, words, size, *others, room=None, **more):
            if room is not None and font(size).getlength(words) > room:
                cut.append(words)
            return super().text(x, y, words, size, *others, room=room, **more)

    monkeypatch.setattr(futures, "Canvas", Watched)
    futures_sheet(small_bank, 0, [("lewm", model)])
    assert cut == []
    futures_sheet(small_bank, 0, [("a-name-" * 20, model)])
    assert cut == ["a-name-" * 20]


def test_what_was_not_executed_is_left_blank(small_bank, model):
    ids = small_bank.decisions.candidate_ids[3]
    native = int(predict_pool(small_bank, 3, "x", model).ranking[0])
    bank = hidden(small_bank, 3, [native])
    predicted = predict_pool(bank, 3, "x", model)
    assert int(predicted.ranking[0]) == native  # predictions need no outcome
    assert len(predicted.executed) == (K - 1) * B
    assert not set(predicted.nearest(native).tolist()) & set(range(native * B, native * B + B))
    assert np.isfinite(predicted.drift).all()
    assert next(iter(worth_seeing(bank, 3, predicted))) == native
    sheet = futures_sheet(bank, 3, [("lewm", model)], [int(ids[native])])
    assert (tiles(sheet, predicted=False) == PAPER).all()
    assert not (tiles(sheet) == PAPER).all()


def test_errors_name_what_is_wrong(small_bank, model, tmp_path):
    geometries = [("lewm", model)]
    with pytest.raises(DjepaError, match="no start 10; it has 0 to 9"):
        futures_sheet(small_bank, 10, geometries)
    with pytest.raises(DjepaError, match="no start -1"):
        futures_sheet(small_bank, -1, geometries)
    with pytest.raises(DjepaError, match="at least one geometry"):
        futures_sheet(small_bank, 0, [])
    with pytest.raises(DjepaError, match="no candidate 64; it has 63, from 1 to 63"):
        named(small_bank, 0, [1, 64])
    with pytest.raises(DjepaError, match="No candidate of start 1 was executed"):
        futures_sheet(hidden(small_bank, 1, slice(None)), 1, geometries)
    (tmp_path / "file").write_text("")
    with pytest.raises(DjepaError, match="Cannot write"):
        save_sheet(tmp_path / "file" / "x.png", Image.new("RGB", (4, 4)))
