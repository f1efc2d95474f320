"""Predictions of geometries for one start, beside the outcomes of execution.

Legend: K candidates, B blocks of five controls, S state.
"""

import math
from collections.abc import Sequence

import numpy as np
from PIL import Image

from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.models.protocol import STRIDE, Geometry
from djepa.report.canvas import GAP, INK, LINE, MARGIN, SOFT, Canvas, key_of_colours, mark_of
from djepa.report.predicted import Predicted, named, predict_pool, worth_seeing
from djepa.report.view import OUTER, View, executed_states, view_of

STEP, WORDS = OUTER + GAP, 128  # px from frame to frame, px for words beside the strips
TOP, TITLE, ROW = 386, 56, 352  # px of the page's head, of a panel's title, of a candidate
HOW = (
    "Predicted: a prediction is a latent, not a frame. Shown is its nearest neighbour among the",
    "{frames} executed frames of this pool, by the same encoder; beneath it, whose frame that is.",
    "Drift: distance from predicted to executed latent, over the spread of the pool's latents.",
    "At 1.00, a full bar, the prediction is as wrong as always answering their mean.",
    "Geometries see the whole table, without the goal pose; shown is the part where things happen.",
)


def futures_sheet(
    bank: Bank,
    start_id: int,
    geometries: Sequence[tuple[str, Geometry]],
    candidates: Sequence[int] = (),
    device: str = "cpu",
) -> Image.Image:
    """One page: the known frames and the goal; then a panel per geometry.

    Candidates are given by ID; by default each panel shows those of `worth_seeing`.
    """
    row, asked = bank.row(start_id), named(bank, start_id, candidates)
    if not geometries:
        raise DjepaError("Name at least one geometry.")
    found = [predict_pool(bank, start_id, *geometry, device) for geometry in geometries]
    panels = [(predicted, asked or worth_seeing(bank, start_id, predicted)) for predicted in found]
    drawn = [predicted.nearest(k) for predicted, rows in panels for k in rows]
    drawn += [predicted.own(k) for predicted, rows in panels for k in rows]
    view = view_of(bank, row, executed_states(bank, row, np.concatenate(drawn)))
    wide = WORDS + max(5, bank.outcomes.states.shape[2]) * STEP - GAP
    height = TOP + TITLE + max(len(rows) for _, rows in panels) * ROW + MARGIN // 2
    page = Canvas(len(panels) * (wide + MARGIN) + MARGIN, height)
    _head(page, view)
    for i, (predicted, rows) in enumerate(panels):
        left = MARGIN + i * (wide + MARGIN)
        _panel(page, left, left + wide, view, predicted, rows)
    return page.image


def _head(page: Canvas, view: View) -> None:
    """Draw title, the frames a decision sees, the goal, and the legend."""
    bank, row, known = view.bank, view.row, view.bank.decisions
    top, room = MARGIN + 50, page.image.width - 2 * MARGIN
    title = f"{bank.path.resolve().name} · start {known.start_ids[row]} · predicted and executed"
    page.text(MARGIN, MARGIN + 24, title, 28, room=room)
    frames = view.frames(np.concatenate([known.context[row], known.goal[row][None]]))
    captions = [f"t - {STRIDE * age}" if age else "t" for age in range(len(frames) - 2, -1, -1)]
    for i, (frame, caption) in enumerate(zip(frames, [*captions, "goal"], strict=True)):
        left = MARGIN + i * STEP
        page.tile((left, top, left + OUTER, top + OUTER), frame, SOFT)
        page.text(left, top + OUTER + 17, caption, 14, SOFT)
    y = top + OUTER + 50
    key_of_colours(page, MARGIN, y, 14, bank.config.task)
    count = bank.outcomes.observed[row].sum() * bank.outcomes.states.shape[2]
    for i, line in enumerate(HOW):
        page.text(MARGIN, y + 28 + 20 * i, line.format(frames=count), 15, SOFT, room=room)


def _panel(
    page: Canvas, left: int, right: int, view: View, predicted: Predicted, rows: dict[int, str]
) -> None:
    """Draw one geometry: its title, its drift over the pool, and a row per candidate."""
    page.draw.line((left, TOP, right - 1, TOP), fill=INK, width=2)
    drift = predicted.drift[view.bank.outcomes.observed[view.row]].mean(0)
    words = "mean drift over the pool: " + ", ".join(f"{d:.2f}" for d in drift)
    page.text(left, TOP + 38, predicted.title, 26, room=(right - left) // 2)
    page.text(right, TOP + 38, words, 15, SOFT, anchor="rs")
    for i, (k, why) in enumerate(rows.items()):
        top = TOP + TITLE + i * ROW
        page.draw.line((left, top, right - 1, top), fill=LINE)
        _row(page, left, right, top, view, predicted, k, why)


def _row(
    page: Canvas,
    left: int,
    right: int,
    top: int,
    view: View,
    predicted: Predicted,
    k: int,
    why: str,
) -> None:
    """Draw one candidate: its ID and outcome; its two strips, and the cost of each."""
    ids, seen = view.bank.decisions.candidate_ids[view.row], view.bank.outcomes
    ran, cost = bool(seen.observed[view.row, k]), float(seen.cost[view.row, k])
    mark, rank = (
        mark_of(bool(seen.success[view.row, k]), ran),
        predicted.ranking.tolist().index(k) + 1,
    )
    words = f"#{ids[k]} · {why} · native rank {rank} of {len(ids)}"
    page.text(left, top + 27, words, 17, room=right - left - 160)
    page.badge(right - 20, top + 11, mark, 20)
    page.text(right - 28, top + 27, mark.word, 17, mark.colour, anchor="rs")
    upper, lower = top + 40, top + 40 + OUTER + 42
    _aside(page, left, upper, "predicted", _native(predicted.cost[k]))
    _predicted(page, left + WORDS, upper, view, predicted, k)
    if not ran:
        _aside(page, left, lower, "not executed")
        return
    # Rounded down: a success is never shown with a task cost of 1.00.
    task = f"task cost {math.floor(100 * cost) / 100:.2f}"
    _aside(page, left, lower, "executed", _native(predicted.realised_cost[k]), task)
    for b, frame in enumerate(view.frames(seen.states[view.row, k])):
        x = left + WORDS + b * STEP
        page.tile((x, lower, x + OUTER, lower + OUTER), frame, mark.colour)
        page.text(x, lower + OUTER + 15, _time(b), 13, SOFT)


def _predicted(page: Canvas, left: int, top: int, view: View, predicted: Predicted, k: int) -> None:
    """Draw the executed frames nearest to the predictions, their candidates, and the drift."""
    ids, B = view.bank.decisions.candidate_ids[view.row], predicted.drift.shape[1]
    nearest, ran, y = predicted.nearest(k), len(predicted.own(k)) > 0, top + OUTER + 31
    for b, frame in enumerate(view.frames(executed_states(view.bank, view.row, nearest))):
        x, (source, block) = left + b * STEP, divmod(int(nearest[b]), B)
        page.tile((x, top, x + OUTER, top + OUTER), frame, SOFT)
        found = (
            "its own frame" if (source, block) == (k, b) else f"#{ids[source]} at {_time(block)}"
        )
        page.text(x, y - 16, found, 13, SOFT)
        if ran:
            drift = float(predicted.drift[k, b])
            page.bar((x, y - 10, x + OUTER - 68, y), min(1.0, drift), INK)
            page.text(x + OUTER, y, f"drift {drift:.2f}", 13, anchor="rs")


def _native(cost: float) -> str:
    return f"native cost {cost:.4f}" if cost < 10 else f"native cost {cost:.4g}"


def _time(block: int) -> str:
    return f"t + {STRIDE * (block + 1)}"


def _aside(page: Canvas, left: int, top: int, title: str, *lines: str) -> None:
    page.text(left, top + OUTER // 2 - 8, title, 18)
    for i, line in enumerate(lines):
        page.text(left, top + OUTER // 2 + 14 + 18 * i, line, 14, SOFT, room=WORDS - 6)
