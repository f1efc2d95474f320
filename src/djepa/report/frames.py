"""Figures of frames: film strips of any world, and one state in several looks.

Legend: S side of a frame in pixels.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.errors import DjepaError
from djepa.report.style import BLUE, INK, PAGE, PALE, VERMILION, canvas, looks, save

Frame = npt.NDArray[np.uint8]  # (S, S, 3)
TIGHT = {"w_pad": 0.02, "h_pad": 0.02, "wspace": 0.01, "hspace": 0.01}  # between frames


def films(
    stem: Path,
    frames: Mapping[str, Sequence[Frame]],
    times: Sequence[str],
    goal: Frame,
    outcome: Mapping[str, bool],
) -> list[Path]:
    """Method -> a uint8 (S, S, 3) frame per time: a row each, with the goal at its end.

    `outcome` says whether a method succeeds. Frames may be of any world.
    """
    looks(frames)  # refuses an empty figure
    if not times or set(outcome) != set(frames):
        raise DjepaError("Films need times, and one outcome for each of their methods.")
    lines = [[*given, goal] for given in frames.values()]
    for name, line in zip(frames, lines, strict=True):
        _check_frames(name, line, len(times) + 1)
    side = min(1.1, (PAGE - 1.0) / (len(times) + 1))
    with canvas(1.0 + side * (len(times) + 1), 0.25 + side * len(frames)) as figure:
        grid = _grid(figure, lines, [*times, "goal"])
        for line, name in zip(grid, frames, strict=True):
            word, colour = ("succeeds", BLUE) if outcome[name] else ("fails", VERMILION)
            line[-2].spines[:].set(color=colour, linewidth=1.6)
            line[-1].spines[:].set(color=INK, linewidth=1.0)
            line[0].set_ylabel(f"{name}\n{word}", color=colour, rotation=0, ha="right", va="center")
        rows = [(name, int(outcome[name])) for name in frames]
        return save(figure, stem, ("method", "succeeded"), rows)


def looks_picture(stem: Path, frames: Mapping[str, tuple[Frame, Frame]]) -> list[Path]:
    """Look -> its context frame and its goal frame, uint8 (S, S, 3): a column each."""
    looks(frames)  # refuses an empty figure
    for look, pair in frames.items():
        _check_frames(look, pair, 2)
    side = min(1.2, (PAGE - 0.5) / len(frames))
    with canvas(0.5 + side * len(frames), 0.25 + 2 * side) as figure:
        grid = _grid(figure, list(zip(*frames.values(), strict=True)), list(frames))
        grid[0, 0].set_ylabel("context")
        grid[1, 0].set_ylabel("goal")
        rows = [(look, *(float(np.mean(of)) for of in pair)) for look, pair in frames.items()]
        return save(figure, stem, ("look", "context mean level", "goal mean level"), rows)


def _grid(figure: Any, lines: Sequence[Sequence[Frame]], titles: Sequence[str]) -> Any:
    """Rows of frames in thin borders, titles above the first; returns their axes."""
    figure.set_layout_engine("compressed", **TIGHT)
    grid = figure.subplots(len(lines), len(titles), squeeze=False)
    for axes, frame in zip(grid.flat, (frame for line in lines for frame in line), strict=True):
        axes.imshow(frame, interpolation="antialiased")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set(visible=True, color=PALE, linewidth=0.6)
    for axes, title in zip(grid[0], titles, strict=True):
        axes.set_title(title, loc="center", fontsize=7, pad=3)
    return grid


def _check_frames(name: str, frames: Sequence[Frame], count: int) -> None:
    kinds = {(frame.shape, frame.dtype.name) for frame in frames}
    if len(frames) != count or kinds != {((*2 * frames[0].shape[:1], 3), "uint8")}:
        raise DjepaError(f"{name}: needs {count} frames, all uint8 (S, S, 3) of one S.")
