"""Episodes as data for the page's replay, with the path of every planner in place of a candidate.
And as a film: a row for each episode, a column for each planner.

Legend: P planners, T controls, S numbers in a state, A action width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from djepa.report.canvas import BORDER, FAILURE, GAP, SOFT, SUCCESS, Canvas
from djepa.report.inspector import SIZE, numbers, picture
from djepa.worlds.protocol import World
from djepa.worlds.sketch import ANGLE, Sketch
from djepa.worlds.starts import Start

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Path:
    """What one planner executed in one episode."""

    states: Array  # (T + 1, S)
    controls: Array  # (T, A)
    cost: float  # the lowest task cost of the episode, 1 at the threshold


def replay(
    world: World,
    sketch: Sketch,
    episodes: Mapping[int, tuple[Start, Mapping[str, Path]]],
    label: str,
    about: tuple[str, str, int],
) -> dict[str, Any]:
    """Number of an episode -> its start and its paths by planner, as the page shows them.

    `about` is the hash of the episode list, the rule and the stride of frames.
    """
    hashed, rule, stride = about
    starts = [_episode(world, sketch, n, *of) for n, of in episodes.items()]
    names = list(next(iter(episodes.values()))[1])
    return {
        "label": label,
        "bank": hashed[:12],
        "rule": rule,
        "shape": world.variant,
        "side": sketch.side,
        "parts": [asdict(part) for part in sketch.parts],
        "pace": sketch.pace,
        "angle": ANGLE,
        "stride": stride,
        "geometries": [],
        "methods": names,
        "starts": starts,
    }


def _episode(
    world: World, sketch: Sketch, number: int, start: Start, paths: Mapping[str, Path]
) -> dict[str, Any]:
    frames = world.render(np.concatenate([start.context, start.goal[None]]), SIZE)
    states, controls = (np.stack([getattr(p, of) for p in paths.values()])
                        for of in ("states", "controls"))  # fmt: skip
    cost = np.array([path.cost for path in paths.values()])
    ranks = (np.lexsort((np.arange(len(cost)), cost)).argsort() + 1).tolist()
    unknown = dict.fromkeys(("base", "before", "correction", "opened", "advantage", "threshold"))
    return {
        "start": number,
        "identity": start.identity(world).hex()[:16],
        "context": [picture(frame) for frame in frames[:-1]],
        "goal": picture(frames[-1]),
        "aim": sketch.draw(start.goal[None], controls[0, :0])[0].tolist(),
        "ids": list(range(len(paths))),
        "origin": list(paths),
        "success": [int(c < 1) for c in cost],
        "task": numbers(cost),
        "states": sketch.draw(states, controls).reshape(len(paths), -1).tolist(),
        "costs": [],
        "methods": [{"ranks": ranks, "chosen": i, **unknown} for i in range(len(paths))],
    }


class Ran(NamedTuple):
    """What a film shows of one planner in one episode."""

    states: Array  # (T + 1, S)
    executed: int  # controls; the last state stays
    solved: int  # number of controls until solved; -1: never


def film(
    world: World, episodes: Sequence[tuple[Array, Mapping[str, Ran]]], size: int = 176
) -> list[Image.Image]:
    """T + 1 frames of episodes, each given as its goal (S,) and the run of every planner."""
    drawn = [
        [(name, ran, world.render(ran.states, size, goal)) for name, ran in of.items()]
        for goal, of in episodes
    ]
    outer, letter, steps = size + 2 * BORDER, max(12, size // 13), len(drawn[0][0][2])
    high, wide = outer + 2 * letter + 14, outer + GAP
    frames = []
    for step in range(steps):
        page = Canvas(GAP + wide * len(drawn[0]), GAP + high * len(drawn))
        for line, row in enumerate(drawn):
            for column, (name, ran, seen) in enumerate(row):
                left, top = GAP + column * wide, GAP + line * high
                now, edge = min(step, ran.executed), SOFT
                words = f"control {now} of {steps - 1}"
                if solved := 0 <= ran.solved <= step:
                    words, edge = f"solved after {ran.solved}", SUCCESS.colour
                elif step == steps - 1:
                    words, edge = f"not solved in {steps - 1}", FAILURE.colour
                page.tile((left, top, left + outer, top + outer), seen[step], edge)
                if edge != SOFT:
                    mark = SUCCESS if solved else FAILURE
                    page.badge(left + outer - 2 * letter, top, mark, 2 * letter)
                page.text(left, top + outer + letter + 2, name, letter, room=outer)
                page.text(left, top + outer + 2 * letter + 6, words, letter, edge, room=outer)
        frames.append(page.image)
    return frames
