"""Pictures of two choices of one start: grasp, sequence, end from above, and a film.

    grasp      both choices when the grasps should hold, obliquely
    sequence   strips of both, obliquely, each up to its own stop
    overhead   both ends from above, in the same enlarged crop around coloured objects
    film       both sequences side by side, as an animation

Every picture contains its method, its time and the outcome of the sequence. Rows and names are
drawn with Pillow; nothing is counted here.

Legend: H commands, h rows and w columns of a picture.
"""

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from djepa.align.registry import label
from djepa.bank.bimanual import BimanualBank
from djepa.pools.bimanual import ANCHORS, COLOURS, support
from djepa.report.canvas import FAILURE, INK, PAPER, SUCCESS, Canvas, Mark, badge, font, gif_bytes
from djepa.rollout.bimanual import attempt, world_of
from djepa.worlds.protocol import Frames

SECONDS = 0.2  # of a command
CAMERAS = {"bimanual": ("left", "head"), "aloha": ("angle", "top")}  # oblique, from above
COLUMNS = 7  # pictures of a strip
SMALL, LARGE = (165, 220), (330, 440)  # rows and columns of a picture
DRAWN = (480, 640)  # before a crop is cut out
AROUND, LEAST = 40, 200  # px around coloured objects, and least height of the crop
GAP, HEAD = 6, 26  # px between pictures, and of the line above a row
HELD = 0.6  # s between a grasp's moment and its picture: the grippers have closed


@dataclass(frozen=True)
class Shown:
    """One executed candidate, up to its own stop."""

    name: str  # method
    candidate: int
    states: npt.NDArray[np.float64]  # (stop + 1, S)
    success: bool

    @property
    def stop(self) -> int:
        """Commands that were executed."""
        return len(self.states) - 1

    @property
    def mark(self) -> Mark:
        """Its outcome."""
        return SUCCESS if self.success else FAILURE

    @property
    def said(self) -> str:
        """The outcome in words."""
        how = "success" if self.success else "stopped, no success"
        return f"{how}, {SECONDS * self.stop:.1f} s"

    def until(self, moment: int) -> int:
        """The smaller of `moment` and the stop."""
        return min(moment, self.stop)


def executed(bank: BimanualBank, row: int, picks: dict[str, int]) -> list[Shown]:
    """Method -> candidate of a start: the same snapshot, executed again."""
    world, known, found = world_of(bank.config.task), bank.known, []
    commands = known.commands[row, list(picks.values())]
    states, _ = attempt(world, known.state[row], commands)
    for (name, candidate), path in zip(picks.items(), states, strict=True):
        stop = int(bank.outcome["length"][row, candidate])
        won = bool(bank.outcome["success"][row, candidate])
        found.append(Shown(name, candidate, path[: stop + 1], won))
    return found


def moments(stop: int) -> list[int]:
    """At most COLUMNS moments, evenly from the start to a sequence's stop."""
    return sorted({round(at) for at in np.linspace(0, stop, COLUMNS)})


def grasp(bank: BimanualBank, choices: list[Shown]) -> Image.Image:
    """Both choices side by side, when the grasps should hold."""
    at = max(arm[0] for arm in ANCHORS[bank.config.task]) + round(HELD / SECONDS)
    return _beside(bank, choices, at)


def sequence(bank: BimanualBank, choices: list[Shown]) -> Image.Image:
    """A strip of pictures of each choice."""
    world, camera = world_of(bank.config.task), CAMERAS[bank.config.world][0]
    h, w = SMALL
    sheet = Canvas(GAP + COLUMNS * (w + GAP), len(choices) * (HEAD + h + GAP) + GAP)
    for i, one in enumerate(choices):
        top, every = i * (HEAD + h + GAP), moments(one.stop)
        _heading(sheet, GAP, top, one)
        frames = world.view(one.states[every], camera, 2 * h, 2 * w)
        for k, (moment, frame) in enumerate(zip(every, frames, strict=True)):
            picture = _fitted(frame, SMALL)
            _noted(picture, moment, one)
            sheet.image.paste(picture, (GAP + k * (w + GAP), top + HEAD))
    return sheet.image


def overhead(bank: BimanualBank, choices: list[Shown]) -> Image.Image:
    """Both ends from above, in the same crop."""
    world, camera = world_of(bank.config.task), CAMERAS[bank.config.world][1]
    ends = np.stack([world.view(one.states[-1], camera, *DRAWN) for one in choices])
    box = crop(bank.config.task, ends)
    tiles = [Image.fromarray(end).crop(box) for end in ends]
    return _tiled(choices, [_fitted(np.asarray(tile), LARGE) for tile in tiles], None)


def crop(task: str, pictures: Frames) -> tuple[int, int, int, int]:
    """(n, h, w, 3) -> left, top, right, bottom around everything of the task's colours."""
    seen = [support(one, colour) for one in pictures for colour in COLOURS[task]]
    rows, columns = np.nonzero(np.any(seen, axis=0))
    h, w = pictures.shape[1:3]
    if not len(rows):
        return 0, 0, w, h
    high = max(LEAST, np.ptp(rows) + 2 * AROUND, (np.ptp(columns) + 2 * AROUND) * h / w)
    high = min(int(high), h)
    wide = high * w // h
    top, left = (
        int(of.max() + of.min() - size) // 2 for of, size in ((rows, high), (columns, wide))
    )
    top, left = min(max(top, 0), h - high), min(max(left, 0), w - wide)
    return left, top, left + wide, top + high


def png_bytes(picture: Image.Image) -> bytes:
    """A picture as PNG."""
    picture.save(data := io.BytesIO(), "PNG", optimize=True)
    return data.getvalue()


def film(bank: BimanualBank, choices: list[Shown], fps: int = 5) -> bytes:
    """An animation of both; each stays where it stopped."""
    longest = max(one.stop for one in choices)
    return gif_bytes([_beside(bank, choices, at) for at in range(longest + 1)], fps)


def _beside(bank: BimanualBank, choices: list[Shown], at: int) -> Image.Image:
    world, camera = world_of(bank.config.task), CAMERAS[bank.config.world][0]
    states = np.stack([one.states[one.until(at)] for one in choices])
    tiles = [_fitted(frame, LARGE) for frame in world.view(states, camera, *LARGE)]
    return _tiled(choices, tiles, at)


def _tiled(choices: list[Shown], tiles: list[Image.Image], at: int | None) -> Image.Image:
    """Pictures side by side with names; if `at` is None, each at its end."""
    h, w = LARGE
    sheet = Canvas(GAP + len(tiles) * (w + GAP), HEAD + h + GAP)
    for i, (one, tile) in enumerate(zip(choices, tiles, strict=True)):
        _heading(sheet, GAP + i * (w + GAP), 0, one)
        _noted(tile, one.stop if at is None else one.until(at), one)
        sheet.image.paste(tile, (GAP + i * (w + GAP), HEAD))
    return sheet.image


def _heading(sheet: Canvas, left: int, top: int, one: Shown) -> None:
    sheet.text(left, top + HEAD - 8, f"{label(one.name)}, candidate {one.candidate}", 14, INK)


def _fitted(frame: npt.NDArray[Any], size: tuple[int, int]) -> Image.Image:
    return Image.fromarray(frame).resize(size[::-1], Image.Resampling.LANCZOS)


def _noted(picture: Image.Image, moment: int, one: Shown) -> None:
    """The time in a corner; at the stop, how the sequence ended."""
    ended = moment == one.stop
    words, draw = one.said if ended else f"{SECONDS * moment:.1f} s", ImageDraw.Draw(picture)
    letters, left = font(13), 22 if ended else 0
    wide = int(letters.getlength(words)) + 10 + left
    draw.rectangle((0, picture.height - 20, wide, picture.height), fill=PAPER)
    ink = one.mark.colour if ended else INK
    draw.text((5 + left, picture.height - 5), words, fill=ink, font=letters, anchor="ls")
    if ended:
        picture.paste(badge(one.mark, 16), (4, picture.height - 18))
