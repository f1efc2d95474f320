"""Pictures of one start of a bank: a contact sheet and an animation."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from djepa.artefacts.store import locate
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.files import write_atomically
from djepa.report.canvas import (
    BORDER,
    GAP,
    HEADER,
    LINE,
    MARGIN,
    SOFT,
    SUCCESS,
    Canvas,
    Layout,
    Mark,
    check_size,
    gif_bytes,
    key_of_colours,
    key_of_marks,
    layout,
    mark_of,
    save_sheet,
)

Array = npt.NDArray[Any]
SIDE_BY_SIDE = 6  # most candidates in one animation


def contact_sheet(
    bank: Bank, start_id: int, size: int = 112, columns: int | None = None
) -> Image.Image:
    """One start on one page: the known frames, the goal, and the final frame of every candidate.

    Candidates are in order of ID; frame and mark say success, failure or not executed.
    """
    row = bank.row(start_id)
    plan = layout(bank.candidates, size, columns)
    page = Canvas(plan.width, plan.height)
    _header(page, bank, row)
    for draw in (_strip, _panel, _grid):
        draw(page, plan, bank, row)
    return page.image


def _header(page: Canvas, bank: Bank, row: int) -> None:
    config, made = bank.config, bank.provenance
    room = page.image.width - 2 * MARGIN
    title = f"{bank.path.resolve().name} · start {bank.decisions.start_ids[row]}"
    page.text(MARGIN, MARGIN + 24, title, 30, room=room)
    about = (
        f"world {config.world}   ·   shape {config.shape}   ·   rule {config.rule}   ·   "
        f"behaviour {made.behaviour[row]}   ·   profile {config.profile}"
    )
    page.text(MARGIN, MARGIN + 54, about, 16, SOFT, room=room)


def _strip(page: Canvas, plan: Layout, bank: Bank, row: int) -> None:
    """Context frames as a model sees them; start with the goal pose beneath; the goal state."""
    known, world = bank.decisions, bank.world()
    top, left = MARGIN + HEADER, MARGIN
    contexts = world.render(known.context[row], plan.size)
    for age, frame in zip(range(len(contexts) - 1, -1, -1), contexts, strict=True):
        page.tile((left, top, left + plan.outer, top + plan.outer), frame, LINE)
        caption = f"t - {age * bank.config.task.stride}" if age else "t"
        page.text(left, top + plan.outer + plan.letter + 4, caption, plan.letter, SOFT)
        left += plan.outer + GAP
    key_of_colours(
        page, MARGIN, top + plan.outer + 3 * plan.letter + 16, plan.letter, bank.config.task
    )
    left += GAP
    side = plan.large + 2 * BORDER
    goal = known.goal[row]
    for name, state in (("start, goal pose beneath", known.state[row]), ("goal", goal)):
        frame = world.render(state, plan.large, goal if name != "goal" else None)
        page.tile((left, top, left + side, top + side), frame, SOFT)
        page.text(left, top + side + plan.letter + 4, name, plan.letter)
        left += side + GAP


def _panel(page: Canvas, plan: Layout, bank: Bank, row: int) -> None:
    """Draw numbers of successes: of all, by family, and by centre if there are several."""
    seen, made = bank.outcomes, bank.provenance
    won, ran, family = seen.success[row] & seen.observed[row], seen.observed[row], made.family[row]
    groups = [(name, family == name) for name in sorted(set(family.tolist()))]
    centre = made.centre_of[row]
    if (centre > 0).any():
        groups += [("reference centre", centre == 0), ("decoy centres", centre > 0)]
    left, right = plan.panel_left, page.image.width - MARGIN
    top, letter = MARGIN + HEADER, plan.letter
    page.text(left, top + 18, f"{won.sum()} of {ran.sum()} succeed", 22, SUCCESS.colour)
    step = min(30, (plan.large - 28) // len(groups))
    for i, (name, member) in enumerate(groups):
        hits, of = int((won & member).sum()), int((ran & member).sum())
        y = top + 50 + i * step
        page.text(left, y, name, letter, room=right - left - 3 * letter)
        page.text(right, y, f"{hits}/{of}", letter, SOFT, anchor="rs")
        page.bar((left, y + 4, right, y + 8), hits / of if of else 0.0, SUCCESS.colour)


def _grid(page: Canvas, plan: Layout, bank: Bank, row: int) -> None:
    known, seen = bank.decisions, bank.outcomes
    ids, observed = known.candidate_ids[row], seen.observed[row]
    key_of_marks(page, "Every candidate after its last control, by ID", plan)
    # Candidates that were not executed have no final state.
    finals = np.where(observed[:, None], seen.states[row, :, -1], known.state[row])
    frames = bank.world().render(finals, plan.size, known.goal[row])
    for index, k in enumerate(np.argsort(ids)):
        mark = mark_of(bool(seen.success[row, k]), bool(observed[k]))
        box, letter = plan.box(index), plan.letter
        page.tile(box, frames[k] if observed[k] else None, mark.colour)
        page.badge(box[2] - 22, box[1], mark, 22)
        y = box[3] + letter + 3
        page.text(box[0], y, f"#{ids[k]}", letter)
        # Rounded down: a success is never shown with a cost of 1.00.
        cost = f"cost {math.floor(100 * seen.cost[row, k]) / 100:.2f}" if observed[k] else "no cost"
        page.text(box[2], y, cost, letter, mark.colour, anchor="rs")
        y += letter + 4
        page.text(box[0], y, _origin(bank, row, int(k)), letter - 1, SOFT, room=plan.outer)


def _origin(bank: Bank, row: int, k: int) -> str:
    """Family of a candidate, and its centre if the pool has decoys."""
    made = bank.provenance
    family, centre = str(made.family[row, k]), int(made.centre_of[row, k])
    if not (made.centre_of[row] > 0).any() or centre < 0:
        return family
    return f"{family} · {f'decoy {centre}' if centre else 'reference'}"


def default_candidates(bank: Bank, start_id: int) -> list[int]:
    """IDs of executed candidates to show side by side: the success of lowest cost, the failure of
    lowest cost, and the worst one not made from the reference. Missing kinds are left out; ties go
    to the smaller ID.
    """
    row = bank.row(start_id)
    seen, ids = bank.outcomes, bank.decisions.candidate_ids[row]
    ran, won, cost = seen.observed[row], seen.success[row], seen.cost[row]
    free = bank.provenance.centre_of[row] != 0
    chosen: list[int] = []
    for member, order in ((ran & won, cost), (ran & ~won, cost), (ran & free, -cost)):
        where = np.flatnonzero(member)
        if len(where):
            best = where[np.lexsort((ids[where], order[where]))[0]]
            chosen.append(int(ids[best]))
    if not chosen:
        raise DjepaError(f"No candidate of start {start_id} was executed; name some to animate.")
    return list(dict.fromkeys(chosen))


def animation(
    bank: Bank, start_id: int, candidate_ids: Sequence[int] | None = None, size: int = 224
) -> list[Image.Image]:
    """H + 1 frames: candidates executed again from the restored state, side by side.

    Without IDs, those of `default_candidates`. The last frame shows the recorded outcome.
    """
    row, known, world = bank.row(start_id), bank.decisions, bank.world()
    check_size(size, 112)
    wanted = default_candidates(bank, start_id) if candidate_ids is None else candidate_ids
    chosen = _positions(bank, row, wanted)
    states = world.execute(known.state[row], known.actions[row, chosen])
    success, _ = world.judge(known.goal[row], states[:, -1])
    marks = [_checked_mark(bank, row, k, bool(s)) for k, s in zip(chosen, success, strict=True)]
    titles = [f"#{known.candidate_ids[row, k]}  {_origin(bank, row, k)}" for k in chosen]
    frames = world.render(states, size, known.goal[row])  # (k, H + 1, size, size, 3)
    last = states.shape[1] - 1
    return [
        _moment(frames[:, step], titles, f"control {step} of {last}", marks if step == last else [])
        for step in range(last + 1)
    ]


def _moment(frames: Array, titles: list[str], when: str, marks: list[Mark]) -> Image.Image:
    """One picture of an animation: (k, size, size, 3) frames; marks only at its end."""
    outer = frames.shape[1] + 2 * BORDER
    letter = max(12, round(outer * 0.07))
    page = Canvas(len(frames) * (outer + GAP) + GAP, outer + 2 * GAP + 3 * letter)
    for i, (frame, title) in enumerate(zip(frames, titles, strict=True)):
        left, right, y = GAP + i * (outer + GAP), (i + 1) * (outer + GAP), GAP + outer + letter + 4
        page.tile((left, GAP, right, GAP + outer), frame, marks[i].colour if marks else SOFT)
        page.text(left, y, title, letter, room=outer)
        page.text(left, y + letter + 6, when, letter, SOFT)
        if marks:
            page.badge(right - 2 * letter, GAP, marks[i], 2 * letter)
            word = marks[i].word.upper()
            page.text(right, y + letter + 6, word, letter, marks[i].colour, anchor="rs")
    return page.image


def _positions(bank: Bank, row: int, candidate_ids: Sequence[int]) -> list[int]:
    """Positions of the candidates in the pool, each once."""
    ids = bank.decisions.candidate_ids[row].tolist()
    wanted = list(dict.fromkeys(int(i) for i in candidate_ids))
    for candidate in wanted:
        if candidate not in ids:
            raise DjepaError(
                f"Start {row} of {bank.path} has no candidate {candidate}; "
                f"it has {len(ids)}, from {min(ids)} to {max(ids)}."
            )
    if not 1 <= len(wanted) <= SIDE_BY_SIDE:
        raise DjepaError(f"Name 1 to {SIDE_BY_SIDE} candidates to animate, got {len(wanted)}.")
    return [ids.index(candidate) for candidate in wanted]


def _checked_mark(bank: Bank, row: int, k: int, success: bool) -> Mark:
    """The recorded outcome; an error if executing again gave another one."""
    seen = bank.outcomes
    if seen.observed[row, k] and success != seen.success[row, k]:
        raise DjepaError(
            f"Candidate {bank.decisions.candidate_ids[row, k]} of start {row} does not end as "
            f"recorded. {bank.path} was made with {bank.manifest['versions']}; install those."
        )
    return mark_of(bool(seen.success[row, k]), bool(seen.observed[row, k]))


def save_animation(path: Path, frames: Sequence[Image.Image], fps: int = 10) -> None:
    """Write a GIF that loops forever and pauses a second on its last frame."""
    write_atomically(path, gif_bytes(frames, fps))


def show(
    bank: Bank, start_id: int, out: Path | str, candidates: Sequence[int] | None = None
) -> list[Path]:
    """Write `start-<id>.png`, the contact sheet, and `start-<id>.gif` into the folder `out`."""
    sheet, frames = contact_sheet(bank, start_id), animation(bank, start_id, candidates)
    picture, film = (locate(out) / f"start-{start_id}{suffix}" for suffix in (".png", ".gif"))
    save_sheet(picture, sheet)
    save_animation(film, frames)
    return [picture, film]
