"""Small drawing tools over Pillow: type, framed tiles, marks that need no colour to be read."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

RGB = tuple[int, int, int]
Box = tuple[int, int, int, int]

PAPER: RGB = (250, 250, 248)
INK: RGB = (33, 37, 41)
SOFT: RGB = (108, 114, 122)
LINE: RGB = (222, 224, 226)
BORDER = 4  # px of colour around a tile


@dataclass(frozen=True)
class Mark:
    """An outcome as a colour, a glyph of straight lines in the unit square, and a word."""

    word: str
    colour: RGB
    strokes: tuple[tuple[tuple[float, float], ...], ...]


# Blue and vermilion of Okabe and Ito: told apart with any colour vision; the glyph says it again.
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
    """What is known of a candidate. Unobserved is never failure."""
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
    """The typeface that comes with Pillow, so that every machine draws the same."""
    return ImageFont.load_default(size)


class Canvas:
    """A sheet of paper to put text, tiles and bars on."""

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
        """Words with their baseline at y, cut to `room` px; returns the width they took."""
        letters = font(size)
        if room is not None and letters.getlength(words) > room:
            while words and letters.getlength(words + "...") > room:
                words = words[:-1]
            words += "..."
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

    def stamp(self, box: Box, mark: Mark, size: int) -> None:
        """The mark's badge in the upper right corner of a tile."""
        self.image.paste(badge(mark, size), (box[2] - size, box[1]))

    def bar(self, box: Box, share: float, ink: RGB) -> None:
        """A horizontal bar filled to `share` of its box."""
        left, top, right, bottom = box
        self.draw.rectangle((left, top, right - 1, bottom - 1), fill=LINE)
        if share > 0:
            filled = max(1, round(share * (right - left)))
            self.draw.rectangle((left, top, left + filled - 1, bottom - 1), fill=ink)


def checked_size(size: int, least: int) -> int:
    """A tile size at which captions can still be read."""
    from djepa.errors import DjepaError

    if size < least:
        raise DjepaError(f"A tile needs at least {least} pixels to be read, got {size}.")
    return size
