"""Small drawing tools over Pillow: text, framed tiles, marks that are readable without colour."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from djepa.errors import DjepaError
from djepa.files import naming, write_atomically
from djepa.tasks.task import Task

RGB = tuple[int, int, int]
Box = tuple[int, int, int, int]

PAPER: RGB = (250, 250, 248)
INK: RGB = (33, 37, 41)
SOFT: RGB = (108, 114, 122)
LINE: RGB = (222, 224, 226)
BORDER = 4  # px of colour around a tile
MARGIN, GAP = 32, 12
ROUND = ("pusher", "finger", "grains")  # parts with a disc in the legend
HOLD_MS = 1000  # the last frame of an animation stays this long
HEADER, HEADING = 84, 60  # px of a sheet's title, and of the line above its grid
PANEL = 180  # least px for the counts beside the strip


@dataclass(frozen=True)
class Mark:
    """An outcome as a colour, a glyph of straight lines in the unit square, and a word."""

    word: str
    colour: RGB
    strokes: tuple[tuple[tuple[float, float], ...], ...]


# Blue and vermilion of Okabe and Ito: distinct for any colour vision; the glyph repeats it.
SUCCESS = Mark("success", (0, 114, 178), (((0.22, 0.53), (0.42, 0.73), (0.78, 0.30)),))
FAILURE = Mark(
    "failure", (213, 94, 0), (((0.28, 0.28), (0.72, 0.72)), ((0.72, 0.28), (0.28, 0.72)))
)
UNKNOWN = Mark(
    "not executed",
    (134, 139, 145),
    (
        ((0.33, 0.35), (0.37, 0.24), (0.50, 0.20), (0.63, 0.24), (0.66, 0.36), (0.51, 0.51)),
        ((0.51, 0.51), (0.50, 0.61)),
        ((0.50, 0.76), (0.50, 0.78)),
    ),
)


def mark_of(success: bool, observed: bool) -> Mark:
    """The mark of a candidate. Unobserved is not failure."""
    if not observed:
        return UNKNOWN
    return SUCCESS if success else FAILURE


@lru_cache(maxsize=64)
def badge(mark: Mark, size: int) -> Image.Image:
    """A filled square with the mark in white; drawn four times larger, for smooth edges."""
    big = 4 * size
    image = Image.new("RGB", (big, big), mark.colour)
    draw = ImageDraw.Draw(image)
    width = round(0.13 * big)
    for stroke in mark.strokes:
        points = [(x * big, y * big) for x, y in stroke]
        draw.line(points, fill="white", width=width, joint="curve")
        for x, y in points:  # round ends
            r = width / 2
            draw.ellipse((x - r, y - r, x + r, y + r), fill="white")
    return image.resize((size, size), Image.Resampling.LANCZOS)


@lru_cache(maxsize=64)
def font(size: int) -> Any:
    """The typeface included in Pillow, so that every machine draws the same."""
    return ImageFont.load_default(size)


class Canvas:
    """A blank image with methods that draw text, tiles and bars."""

    def __init__(self, width: int, height: int) -> None:
        self.image = Image.new("RGB", (width, height), PAPER)
        self.draw = ImageDraw.Draw(self.image)

    def text(
        self,
        x: int,
        y: int,
        words: str,
        size: int,
        ink: RGB = INK,
        anchor: str = "ls",
        room: int | None = None,
    ) -> int:
        """Words with their baseline at y, cut to `room` px; returns their width."""
        letters = font(size)
        if room is not None and letters.getlength(words) > room:
            while words and letters.getlength(words + "…") > room:
                words = words[:-1]
            words += "…"
        self.draw.text((x, y), words, fill=ink, font=letters, anchor=anchor)
        return int(letters.getlength(words))

    def tile(self, box: Box, frame: npt.NDArray[Any] | None, edge: RGB) -> None:
        """A frame (size, size, 3) within a border; None leaves it blank. `box` is the outside."""
        left, top, right, bottom = box
        self.draw.rectangle((left, top, right - 1, bottom - 1), fill=edge)
        inside = (left + BORDER, top + BORDER, right - BORDER - 1, bottom - BORDER - 1)
        if frame is None:
            self.draw.rectangle(inside, fill=LINE)
        else:
            self.image.paste(Image.fromarray(frame), inside[:2])

    def badge(self, x: int, y: int, mark: Mark, size: int) -> None:
        """The mark in a square whose upper left corner is (x, y)."""
        self.image.paste(badge(mark, size), (x, y))

    def swatch(self, x: int, y: int, size: int, colour: RGB, disc: bool) -> None:
        """A disc or a square of a colour, for legends."""
        shape = Image.new("L", (4 * size, 4 * size), 0 if disc else 255)
        if disc:
            ImageDraw.Draw(shape).ellipse((0, 0, 4 * size - 1, 4 * size - 1), fill=255)
        self.image.paste(colour, (x, y), shape.resize((size, size), Image.Resampling.LANCZOS))

    def bar(self, box: Box, share: float, ink: RGB) -> None:
        """A horizontal bar filled to `share` of its box."""
        left, top, right, bottom = box
        self.draw.rectangle((left, top, right - 1, bottom - 1), fill=LINE)
        if share > 0:
            filled = max(1, round(share * (right - left)))
            self.draw.rectangle((left, top, left + filled - 1, bottom - 1), fill=ink)


def gif_bytes(frames: Sequence[Image.Image], fps: int) -> bytes:
    """Frames as a GIF: one palette for all and no dithering, so that static parts do not flicker
    and the file is small.
    """
    if not frames or not 1 <= fps <= 50:
        raise DjepaError(f"A GIF needs frames, and 1 to 50 of them a second, not {fps}.")
    # The first and the last frame have every colour: of moving parts, and of marks.
    both = Image.new("RGB", (frames[0].width, 2 * frames[0].height))
    both.paste(frames[0], (0, 0))
    both.paste(frames[-1], (0, frames[0].height))
    palette = both.quantize(64, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    first, *others = [f.quantize(palette=palette, dither=Image.Dither.NONE) for f in frames]
    durations = [round(100 / fps) * 10] * len(others) + [HOLD_MS]  # GIF has units of 10 ms
    data = io.BytesIO()
    first.save(data, "GIF", save_all=True, append_images=others, duration=durations, loop=0)
    return data.getvalue()


def save_sheet(path: Path, sheet: Image.Image) -> None:
    """Write a PNG, and make its folder if needed."""
    data = io.BytesIO()
    sheet.save(data, "PNG", optimize=True)
    with naming(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, data.getvalue())


def check_size(size: int, least: int) -> None:
    """Refuse a tile size at which captions cannot be read."""
    if size < least:
        raise DjepaError(f"A tile needs at least {least} pixels to be read, got {size}.")


@dataclass(frozen=True)
class Layout:
    """Positions and sizes on a contact sheet of `count` candidates."""

    count: int
    size: int
    columns: int

    @property
    def outer(self) -> int:
        """Side of a tile with its border."""
        return self.size + 2 * BORDER

    @property
    def large(self) -> int:
        """Side of the frames of start and goal, without border."""
        return round(1.75 * self.size)

    @property
    def letter(self) -> int:
        """Size of captions."""
        return max(11, round(self.size * 0.112))

    @property
    def strip_bottom(self) -> int:
        """Bottom of the strip with context, start and goal, including captions."""
        return MARGIN + HEADER + self.large + 2 * BORDER + 2 * self.letter

    @property
    def width(self) -> int:
        """Width of the sheet: of the grid, or of the strip with its panel if wider."""
        grid = self.columns * (self.outer + GAP) - GAP
        return 2 * MARGIN + max(grid, self.panel_left + PANEL - MARGIN)

    @property
    def panel_left(self) -> int:
        """Left edge of the counts by family."""
        return MARGIN + 3 * (self.outer + GAP) + 2 * (self.large + 2 * BORDER + GAP) + 3 * GAP

    @property
    def height(self) -> int:
        """Height of the sheet."""
        return self.box(self.count - 1)[3] + 3 * self.letter + MARGIN

    def box(self, index: int) -> Box:
        """Outer box of the tile of the `index`-th candidate by ID."""
        row, column = divmod(index, self.columns)
        left = MARGIN + column * (self.outer + GAP)
        top = self.strip_bottom + HEADING + row * (self.outer + 3 * self.letter + GAP)
        return left, top, left + self.outer, top + self.outer


def layout(count: int, size: int = 112, columns: int | None = None) -> Layout:
    """The layout of a sheet. By default 7 to 9 columns, with the fewest empty places; ties go to
    more columns.
    """
    check_size(size, 80)
    if columns is not None and columns < 1:
        raise DjepaError(f"A sheet needs at least one column, got {columns}.")
    best = min((9, 8, 7), key=lambda c: -count % c)
    return Layout(count, size, min(count, columns or best))


def key_of_colours(page: Canvas, x: int, y: int, letter: int, task: Task) -> None:
    """Draw the legend of colours inside frames, if the task has one."""
    for word, colour in task.key().items():
        page.swatch(x, y - letter + 1, letter, colour, disc=word in ROUND)
        x += letter + 6
        x += page.text(x, y, word, letter, SOFT) + 18


def key_of_marks(page: Canvas, title: str, plan: Layout) -> None:
    """Draw the line above the grid: a title, and the legend of the marks."""
    x, y = MARGIN, plan.strip_bottom + HEADING - 18
    page.draw.line((x, y - 34, page.image.width - x, y - 34), fill=LINE)
    x += page.text(x, y, title, 16) + 24
    for mark in (SUCCESS, FAILURE, UNKNOWN):
        page.badge(x, y - 14, mark, 18)
        x += 24 + page.text(x + 24, y, mark.word, 16, mark.colour) + 18
