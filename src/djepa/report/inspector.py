"""Single decisions as data for the page: who chose which candidate, and what executing it showed.

Everything is plain JSON. Candidates stand in order of their ID; states are five whole numbers each.

Legend: N starts of the bank, K candidates, H horizon, M methods.
"""

import base64
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.evidence.ranks import best, check_pools, strict_ranks
from djepa.worlds.push import CANVAS, PUSHER_RADIUS
from djepa.worlds.shapes import Shape
from djepa.worlds.starts import CONTEXT_STRIDE

Array = npt.NDArray[Any]
Point = tuple[float, float]
SIZE = 128  # px of a frame
ANGLE = 1000  # angles are stored in thousandths of a radian


@dataclass(frozen=True, eq=False)
class View:
    """One method's view of every start of a bank."""

    score: Array  # (N, K), lower is better
    chosen: Array  # (N,) positions
    base: Array | None = None  # (N, K) scores before the correction
    opened: Array | None = None  # (N,) bool: the gate let the corrected choice pass
    advantage: Array | None = None  # (N,) what the gate compares with its threshold
    threshold: float | None = None


def inspect(
    bank: Bank,
    rows: Sequence[int],
    costs: Mapping[str, Array],
    methods: Mapping[str, View],
    label: str = "",
) -> dict[str, Any]:
    """Some starts of a bank as the page shows them; `rows` are their positions.

    `costs` are (N, K) native costs by geometry. `label` names the kind of pools; without one, the
    bank's profile does.
    """
    if not rows:
        raise DjepaError("Name at least one start to inspect.")
    for row in rows:
        bank.row(row)
    at = np.asarray(rows, np.int64)
    ids = torch.from_numpy(np.ascontiguousarray(bank.decisions.candidate_ids[at]))
    picked = {name: _rows(bank, f"the cost of {name}", cost, at) for name, cost in costs.items()}
    views = {name: _Picked.of(bank, name, view, at, ids) for name, view in methods.items()}
    check_pools(ids, **{f"the cost of {name}": torch.from_numpy(c) for name, c in picked.items()})
    starts = []
    for n, row in enumerate(at.tolist()):
        start = _start(bank, row)
        order = np.argsort(ids[n].numpy())
        start["costs"] = [_numbers(cost[n, order]) for cost in picked.values()]
        start["methods"] = [view.start(n, order) for view in views.values()]
        starts.append(start)
    shape = bank.world().shape
    return {
        "label": label or bank.config.profile,
        "bank": bank.hash[:12],
        "rule": bank.config.rule,
        "shape": shape.name,
        "outline": outline(shape),
        "canvas": CANVAS,
        "radius": PUSHER_RADIUS,
        "angle": ANGLE,
        "stride": CONTEXT_STRIDE,
        "geometries": list(costs),
        "methods": list(methods),
        "starts": starts,
    }


def outline(shape: Shape) -> list[Point]:
    """The corners of the block in its own frame, once around: its parts without their seams.

    Parts are cut along each other's edges; what two cells share cancels, the rest is the rim.
    """
    corners = shape.vertices.reshape(-1, 2)
    xs, ys = sorted(set(corners[:, 0].tolist())), sorted(set(corners[:, 1].tolist()))
    edges: Counter[tuple[Point, Point]] = Counter()
    for x0, x1 in pairwise(xs):
        for y0, y1 in pairwise(ys):
            if _covers(shape, (x0 + x1) / 2, (y0 + y1) / 2):
                ring = ((x0, y0), (x1, y0), (x1, y1), (x0, y1), (x0, y0))
                edges.update(pairwise(ring))
    after = {a: b for a, b in edges if (b, a) not in edges}
    rim = [min(after)]
    while len(rim) < len(after):
        rim.append(after[rim[-1]])
    return [p for i, p in enumerate(rim) if not _straight(rim[i - 1], p, after[p])]


def _covers(shape: Shape, x: float, y: float) -> bool:
    low, high = shape.vertices.min(1), shape.vertices.max(1)  # (P, 2): parts are boxes
    return bool(((low < (x, y)) & ((x, y) < high)).all(1).any())


def _straight(a: Point, b: Point, c: Point) -> bool:
    return a[0] == b[0] == c[0] or a[1] == b[1] == c[1]


def _start(bank: Bank, row: int) -> dict[str, Any]:
    """What the bank knows of one start, and all of its executions."""
    known, seen, world = bank.decisions, bank.outcomes, bank.world()
    order = np.argsort(known.candidate_ids[row])
    ran, won = seen.observed[row, order], seen.success[row, order]
    states = world.execute(known.state[row], known.actions[row, order])  # (K, H + 1, 10)
    again, _ = world.judge(known.goal[row], states[:, -1])
    if (again != won)[ran].any():
        raise DjepaError(
            f"Start {row} does not end as recorded when it is executed again. {bank.path} was "
            f"made with {bank.manifest['versions']}; install those."
        )
    cost = np.where(ran, seen.cost[row, order], 0.0)
    frames = world.render(np.concatenate([known.context[row], known.goal[row][None]]), SIZE)
    return {
        "start": int(known.start_ids[row]),
        "identity": bytes(known.identities[row]).hex()[:16],
        "context": [_picture(frame) for frame in frames[:-1]],
        "goal": _picture(frames[-1]),
        "aim": _whole(known.goal[row]).tolist(),
        "ids": known.candidate_ids[row, order].tolist(),
        "origin": _origins(bank, row, order),
        "success": [int(w) if r else None for w, r in zip(won, ran, strict=True)],
        "task": [t if r else None for t, r in zip(_numbers(cost), ran, strict=True)],
        "states": [
            path if r else None
            for path, r in zip(_whole(states).reshape(len(order), -1).tolist(), ran, strict=True)
        ],
    }


def _origins(bank: Bank, row: int, order: Array) -> list[str]:
    """How every candidate was made, and around which centre where the pool has decoys."""
    made = bank.provenance
    families, centres = made.family[row, order].tolist(), made.centre_of[row, order].tolist()
    if max(centres) <= 0:
        return list(families)
    names = ["reference" if c == 0 else f"decoy {c}" if c > 0 else "" for c in centres]
    return [f"{f} · {name}" if name else f for f, name in zip(families, names, strict=True)]


def _whole(states: Array) -> npt.NDArray[np.int64]:
    """(..., 10) states -> (..., 5): pusher x y, block x y, angle in thousandths."""
    poses = np.asarray(states, np.float64)[..., :5] * (1, 1, 1, 1, ANGLE)
    return np.asarray(np.rint(poses).astype(np.int64))


def _picture(frame: Array) -> str:
    """(size, size, 3) -> a PNG as a data URI."""
    data = io.BytesIO()
    Image.fromarray(frame).save(data, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()


def _numbers(values: Array) -> list[float]:
    """Five significant digits: enough to read, and a third of the bytes."""
    return [float(f"{x:.5g}") for x in np.asarray(values, np.float64).tolist()]


def _rows(bank: Bank, what: str, values: Array, at: Array, wide: bool = True) -> Array:
    """Some rows of (N, K) or, not `wide`, (N,) values; anything else is refused."""
    array, shape = np.asarray(values), (len(bank), bank.candidates)[: 1 + wide]
    if array.shape != shape:
        raise DjepaError(f"{what} is {array.shape}; {bank.path} has {shape}.")
    return np.ascontiguousarray(array[at]).astype(np.float64)


@dataclass(frozen=True, eq=False)
class _Picked:
    """A view of the rows that are shown, checked and ranked."""

    ranks: Array  # (n, K) from 1
    chosen: Array  # (n,) candidate IDs
    base: Array | None  # (n, K)
    before: Array | None  # (n,) candidate IDs of the base choice
    correction: Array | None  # (n, K)
    opened: Array | None  # (n,)
    advantage: Array | None  # (n,)
    threshold: float | None

    @classmethod
    def of(cls, bank: Bank, name: str, view: View, at: Array, ids: torch.Tensor) -> "_Picked":
        score = _rows(bank, f"the score of {name}", view.score, at)
        chosen = _rows(bank, f"the choice of {name}", view.chosen, at, wide=False).astype(np.int64)
        if not ((chosen >= 0) & (chosen < bank.candidates)).all():
            raise DjepaError(f"{name} chose a candidate that no pool has; positions are expected.")
        check_pools(ids, **{f"the score of {name}": torch.from_numpy(score)})
        base = before = correction = None
        if view.base is not None:
            base = _rows(bank, f"the base score of {name}", view.base, at)
            check_pools(ids, **{f"the base score of {name}": torch.from_numpy(base)})
            first = best(torch.from_numpy(base), ids)[:, None]
            before, correction = ids.gather(1, first)[:, 0].numpy(), score - base
        opened, advantage = (
            None if x is None else _rows(bank, f"the gate of {name}", x, at, wide=False)
            for x in (view.opened, view.advantage)
        )
        return cls(
            ranks=strict_ranks(torch.from_numpy(score), ids).numpy() + 1,
            chosen=np.take_along_axis(ids.numpy(), chosen[:, None], 1)[:, 0],
            base=base,
            before=before,
            correction=correction,
            opened=opened,
            advantage=advantage,
            threshold=None if view.threshold is None else float(view.threshold),
        )

    def start(self, n: int, order: Array) -> dict[str, Any]:
        """One start, candidates in the given order; what is not known is None."""
        return {
            "ranks": self.ranks[n, order].tolist(),
            "chosen": int(self.chosen[n]),
            "base": None if self.base is None else _numbers(self.base[n, order]),
            "before": None if self.before is None else int(self.before[n]),
            "correction": None if self.correction is None else _numbers(self.correction[n, order]),
            "opened": None if self.opened is None else bool(self.opened[n]),
            "advantage": None if self.advantage is None else float(self.advantage[n]),
            "threshold": self.threshold,
        }
