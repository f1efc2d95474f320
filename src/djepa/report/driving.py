"""Driving scenes from above: fans of candidates, pairs of drives, film strips, films.

A scene is the plain dictionary that `studies/measures/driving_views.py` stores: metres in the frame
of the ego car at the start, which faces along x. All panels of a figure have one scale.

Legend: K candidates, T road users.
"""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from djepa.report.style import (
    BLUE,
    INK,
    LINE,
    ORANGE,
    PAGE,
    PALE,
    SOFT,
    VERMILION,
    canvas,
    legend_beneath,
    save,
)
from djepa.worlds.traffic.plane import boxes_meet, corners
from djepa.worlds.traffic.scene import STEPS, ego_corners

Floats = npt.NDArray[np.float64]
Drive = Mapping[str, Any]
ROAD, MARK, OTHERS, PEOPLE = "#EEF0F2", "#FFFFFF", "#8A9099", "#CC79A7"
COLOURS = (VERMILION, BLUE, ORANGE)  # of the drives of several methods
SECOND = 10  # steps
TIMES = (0, 1, 2, 3, 4)  # s, columns of strips
AROUND = (42.0, 30.0)  # m along and across of a window that moves with the car
FILM_DPI = 110


def fan(stem: Path, scene: Drive, chosen: Mapping[str, int]) -> list[Path]:
    """All candidates as executed, coloured by PDMS; the choices of some methods are marked."""
    import matplotlib

    paths, pdms = np.array(scene["paths"]), np.array(scene["pdms"])
    colours = matplotlib.colormaps["viridis"]
    window = _window(paths[:, :, :2], 6.0)
    with canvas(PAGE, 0.5 + _high(window, PAGE - 0.7)) as figure:
        axes = figure.subplots()
        _ground(axes, scene, window)
        _others(axes, scene, 0)
        for k in np.argsort(pdms, kind="stable"):
            axes.plot(*paths[k, :, :2].T, color=colours(float(pdms[k])), linewidth=1.1, zorder=4)
            axes.plot(*paths[k, -1, :2], "o", color=colours(float(pdms[k])), markersize=3, zorder=5)
        for colour, (name, k) in zip(COLOURS, chosen.items(), strict=False):
            words = f"{name}: {100 * pdms[k]:.1f}"
            style = {"color": colour, "linewidth": 2.2, "linestyle": (0, (3, 1)), "zorder": 6}
            axes.plot(*paths[k, :, :2].T, label=words, **style)
        _ego(axes, paths[0, 0], INK)
        shade = matplotlib.cm.ScalarMappable(matplotlib.colors.Normalize(0, 100), colours)
        bar = figure.colorbar(shade, ax=axes, fraction=0.03, pad=0.01)
        bar.set_label("PDMS")
        bar.outline.set_visible(False)
        legend_beneath(figure, axes, 3)
        rows = [(k, float(p), *map(float, paths[k, -1, :2])) for k, p in enumerate(pdms)]
        return save(figure, stem, ("candidate", "PDMS", "end x, m", "end y, m"), rows)


def strips(stem: Path, scene: Drive, chosen: Mapping[str, int]) -> list[Path]:
    """A row for each method, a column for each time of its executed choice."""
    paths, pdms = np.array(scene["paths"]), np.array(scene["pdms"])
    wide = (PAGE - 1.1) / len(TIMES)
    with canvas(PAGE, 0.3 + (wide * AROUND[1] / AROUND[0] + 0.06) * len(chosen)) as figure:
        figure.set_layout_engine("compressed", w_pad=0.02, h_pad=0.02)
        grid = figure.subplots(len(chosen), len(TIMES), squeeze=False)
        for line, (name, k), colour in zip(grid, chosen.items(), COLOURS, strict=False):
            for axes, when in zip(line, TIMES, strict=True):
                step = round(SECOND * when)
                _ground(axes, scene, _around(paths[k, step]))
                _others(axes, scene, step)
                axes.plot(*paths[k, : step + 1, :2].T, color=colour, linewidth=1.0, zorder=4)
                _ego(axes, paths[k, step], colour)
            words = f"{name}\nPDMS {100 * pdms[k]:.1f}\n{scene['why'][k]}"
            line[0].set_ylabel(
                words, rotation=0, ha="right", va="center", color=colour, fontsize=6.5
            )
        for axes, when in zip(grid[0], TIMES, strict=True):
            axes.set_title(f"{when:g} s", loc="center", fontsize=7, pad=3)
        rows = [(name, k, float(pdms[k]), scene["why"][k]) for name, k in chosen.items()]
        return save(figure, stem, ("method", "candidate", "PDMS", "what it lacks"), rows)


def pair(stem: Path, scene: Drive, chosen: Mapping[str, int], step: int) -> list[Path]:
    """Two drives side by side at the given step."""
    paths, pdms = np.array(scene["paths"]), np.array(scene["pdms"])
    with canvas(PAGE, 0.5 + PAGE / 2 * AROUND[1] / AROUND[0]) as figure:
        panels = figure.subplots(1, len(chosen))
        for axes, (name, k), colour in zip(panels, chosen.items(), COLOURS, strict=False):
            _ground(axes, scene, _around(paths[k, step]))
            _others(axes, scene, step)
            axes.plot(*paths[k, :, :2].T, color=colour, linewidth=1.0, zorder=4)
            _ego(axes, paths[k, step], colour)
            words = f"{name}, {step / SECOND:.1f} s: PDMS {100 * pdms[k]:.1f}"
            axes.set_title(f"{words}\n{scene['why'][k]}", fontsize=7)
        rows = [(name, k, float(pdms[k]), step / SECOND) for name, k in chosen.items()]
        return save(figure, stem, ("method", "candidate", "PDMS", "time, s"), rows)


def film(scene: Drive, chosen: Mapping[str, int]) -> list[Image.Image]:
    """A picture every 0.1 s, the drives side by side; a car in contact with another has a ring.

    Contact is of the drawn boxes. The caption says whose fault it is.
    """
    paths, pdms = np.array(scene["paths"]), np.array(scene["pdms"])
    frames = []
    for step in range(STEPS + 1):
        with canvas(PAGE, 0.5 + PAGE / len(chosen) * AROUND[1] / AROUND[0]) as figure:
            figure.set_dpi(FILM_DPI)
            figure.set_layout_engine("compressed", w_pad=0.03, h_pad=0.03)
            panels = figure.subplots(1, len(chosen), squeeze=False)[0]
            for axes, (name, k), colour in zip(panels, chosen.items(), COLOURS, strict=False):
                here = paths[k, step]
                _ground(axes, scene, _around(here))
                _others(axes, scene, step)
                axes.plot(*paths[k, : step + 1, :2].T, color=colour, linewidth=1.2, zorder=4)
                if touched := _touches(scene, here, step):
                    ring = {"color": INK, "fillstyle": "none", "markersize": 38, "zorder": 9}
                    axes.plot(*ego_corners(here).mean(0), "o", **ring)
                _ego(axes, here, colour)
                words = f"{name}: PDMS {100 * pdms[k]:.1f}, {scene['why'][k]}"
                axes.set_title(words, fontsize=7.5, color=colour)
                axes.text(0.02, 0.94, f"{step / SECOND:.1f} s", transform=axes.transAxes, va="top")
                if touched:
                    axes.text(0.98, 0.94, "touches", transform=axes.transAxes, va="top", ha="right")
            frames.append(_image(figure))
    return frames


def _image(figure: Any) -> Image.Image:
    """The figure as pixels."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=FILM_DPI, metadata={"Software": None})
    return Image.open(data).convert("RGB")


def _touches(scene: Drive, pose: Floats, step: int) -> bool:
    """Whether the car at this pose touches a road user at this step."""
    there = [
        corners(np.array(path[step][:2]), np.array(path[step][2]), np.array(size))
        for path, size in zip(scene["others"], scene["sizes"], strict=True)
        if path[step] is not None
    ]
    return bool(there) and bool(boxes_meet(ego_corners(pose), np.stack(there)).any())


def comfort(stem: Path, scene: Drive, chosen: Mapping[str, int]) -> list[Path]:
    """The drives in columns of one second, above speed and yaw rate of the car."""
    paths, speed = np.array(scene["paths"]), np.array(scene["speed"])
    times, rows = np.arange(STEPS + 1) / SECOND, []
    window = _window(paths[list(chosen.values())][:, :, :2], 8.0)
    high = _high(window, PAGE / 4)
    with canvas(PAGE, 2.3 + high) as figure:
        grid = figure.add_gridspec(2, 4, height_ratios=(high, 1.4))
        for column in range(4):
            axes = figure.add_subplot(grid[0, column])
            _ground(axes, scene, window)
            _others(axes, scene, SECOND * (column + 1))
            for (_, k), colour in zip(chosen.items(), COLOURS, strict=False):
                part = paths[k, SECOND * column : SECOND * (column + 1) + 1]
                axes.plot(*part[:, :2].T, color=colour, linewidth=1.6, zorder=5)
                _ego(axes, part[-1], colour)
            axes.set_title(f"{column} to {column + 1} s", loc="center", fontsize=7)
        left, right = figure.add_subplot(grid[1, :2]), figure.add_subplot(grid[1, 2:])
        for (name, k), colour in zip(chosen.items(), COLOURS, strict=False):
            turn = np.gradient(np.unwrap(paths[k, :, 2])) * SECOND
            words = f"{name}, PDMS {100 * scene['pdms'][k]:.1f}, {scene['why'][k]}"
            left.plot(times, speed[k], color=colour, label=words)
            right.plot(times, turn, color=colour)
            rows += [(name, *map(float, of)) for of in zip(times, speed[k], turn, strict=True)]
        left.set(xlabel="time, s", ylabel="speed, m/s")
        right.set(xlabel="time, s", ylabel="yaw rate, rad/s")
        legend_beneath(figure, left, 2)
        return save(figure, stem, ("method", "time, s", "speed, m/s", "yaw rate, rad/s"), rows)


def _window(points: Floats, room: float = 10.0) -> tuple[float, float, float, float]:
    """West, east, south, north around some paths."""
    flat = points.reshape(-1, 2)
    (west, south), (east, north) = flat.min(0) - room, flat.max(0) + room
    short = max(0.0, 0.35 * (east - west) - (north - south)) / 2
    return west, east, south - short, north + short


def _around(pose: Floats) -> tuple[float, float, float, float]:
    """The window around a car; all have one scale."""
    (x, y), (long, wide) = pose[:2], AROUND
    return x - long / 2, x + long / 2, y - wide / 2, y + wide / 2


def _high(window: tuple[float, float, float, float], wide: float) -> float:
    """Height in inches of a window that is `wide` inches wide."""
    west, east, south, north = window
    return float(np.clip(wide * (north - south) / (east - west), 0.6, 4.5))


def _ground(axes: Any, scene: Drive, window: tuple[float, float, float, float]) -> None:
    """Draw road, lanes of the route, red lights."""
    for polygon in scene["road"]:
        axes.fill(*np.array(polygon).T, color=ROAD, linewidth=0, zorder=0)
    for polygon in scene["route"]:
        axes.fill(*np.array(polygon).T, color="#E1EBF3", linewidth=0, zorder=1)
    for line in scene["centres"]:
        axes.plot(*np.array(line).T, color=PALE, linewidth=0.4, linestyle=(0, (4, 4)), zorder=2)
    for polygon in scene["red"]:
        axes.plot(*np.array(polygon)[[0, -1]].T, color=VERMILION, linewidth=2, zorder=3)
    axes.set(xlim=window[:2], ylim=window[2:], aspect="equal", xticks=[], yticks=[])
    axes.grid(visible=False)
    axes.spines[:].set(visible=True, color=LINE)


def _others(axes: Any, scene: Drive, step: int) -> None:
    for path, size, kind in zip(scene["others"], scene["sizes"], scene["kinds"], strict=True):
        pose = path[step]
        if pose is None:
            continue
        box = corners(np.array(pose[:2]), np.array(pose[2]), np.array(size))
        colour = OTHERS if kind in (0, 2) else PEOPLE if kind == 1 else ORANGE
        axes.fill(*box.T, color=colour, linewidth=0, zorder=3)
        front = box[[0, 3]]
        axes.plot(*front.T, color=SOFT, linewidth=1.0, zorder=3)


def _ego(axes: Any, pose: Floats, colour: str) -> None:
    box = ego_corners(np.asarray(pose, float))
    axes.fill(*box.T, facecolor=colour, edgecolor=INK, linewidth=0.5, zorder=7)
    axes.plot(*box[[0, 3]].T, color=INK, linewidth=1.2, zorder=8)
