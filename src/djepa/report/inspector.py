"""Single decisions as data for the page: choices of methods, and outcomes of the candidates.

Everything is plain JSON. Candidates are in order of ID; the world's `Sketch` defines how states are
drawn, and a world without one is shown without replays.

Legend: N starts of the bank, K candidates, H horizon, M methods.
"""

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.evidence.ranks import best, check_pools, strict_ranks
from djepa.tasks.task import PLAIN
from djepa.worlds.sketch import ANGLE, Sketch

Array = npt.NDArray[Any]
SIZE = 128  # px of a frame


@dataclass(frozen=True, eq=False)
class View:
    """One method's view of every start of a bank."""

    score: Array  # (N, K), lower is better
    chosen: Array  # (N,) positions
    base: Array | None = None  # (N, K) scores before the correction
    opened: Array | None = None  # (N,) bool: the gate took the corrected choice
    advantage: Array | None = None  # (N,) compared with the gate's threshold
    threshold: float | None = None


def inspect(
    bank: Bank,
    rows: Sequence[int],
    costs: Mapping[str, Array],
    methods: Mapping[str, View],
    label: str = "",
    look: str = PLAIN,
) -> dict[str, Any]:
    """Data of some starts of a bank for the page; `rows` are their positions.

    `costs` are (N, K) native costs by geometry. `label` names the kind of pools; without one, the
    bank's profile does. Frames have the look in which the geometries saw them.
    """
    if not rows:
        raise DjepaError("Name at least one start to inspect.")
    for row in rows:
        bank.row(row)
    sketch = bank.config.task.sketch(bank.world())
    whole = Pools(bank.decisions.candidate_ids, str(bank.path))
    starts = seen(whole, rows, costs, methods, lambda row: _start(bank, row, sketch, look))
    return {
        "label": label or bank.config.profile,
        "bank": bank.hash[:12],
        "rule": bank.config.rule,
        "shape": bank.config.shape,
        "side": sketch.side,
        "parts": [asdict(part) for part in sketch.parts],
        "pace": sketch.pace,
        "angle": ANGLE,
        "stride": bank.config.task.stride,
        "geometries": list(costs),
        "methods": list(methods),
        "starts": starts,
    }


def seen(
    pools: "Pools",
    rows: Sequence[int],
    costs: Mapping[str, Array],
    methods: Mapping[str, View],
    start: Callable[[int], dict[str, Any]],
) -> list[dict[str, Any]]:
    """The data that `start` gives for each row, with costs and the methods' views."""
    at = np.asarray(rows, np.int64)
    ids = torch.from_numpy(np.ascontiguousarray(pools.ids[at]))
    picked = {name: _rows(pools, f"the cost of {name}", cost, at) for name, cost in costs.items()}
    views = {name: _Picked.of(pools, name, view, at, ids) for name, view in methods.items()}
    check_pools(ids, **{f"the cost of {name}": torch.from_numpy(c) for name, c in picked.items()})
    starts = []
    for n, row in enumerate(at.tolist()):
        one = start(row)
        order = np.argsort(ids[n].numpy())
        one["costs"] = [numbers(cost[n, order]) for cost in picked.values()]
        one["methods"] = [view.start(n, order) for view in views.values()]
        starts.append(one)
    return starts


class Pools(NamedTuple):
    """Candidate IDs of all starts, and the path of their bank."""

    ids: Array  # (N, K)
    path: str


def _start(bank: Bank, row: int, sketch: Sketch, look: str) -> dict[str, Any]:
    """Data of one start in the bank, with all of its executions."""
    known, seen, world = bank.decisions, bank.outcomes, bank.world()
    order = np.argsort(known.candidate_ids[row])
    ran, won = seen.observed[row, order], seen.success[row, order]
    controls = known.actions[row, order]
    states = world.execute(known.state[row], controls)  # (K, H + 1, S)
    again, _ = world.judge(known.goal[row], states[:, -1])
    if (again != won)[ran].any():
        raise DjepaError(
            f"Start {row} does not end as recorded when it is executed again. {bank.path} was "
            f"made with {bank.manifest['versions']}; install those."
        )
    cost = np.where(ran, seen.cost[row, order], 0.0)
    frames = _frames(bank, np.concatenate([known.context[row], known.goal[row][None]]), look)
    drawn = sketch.draw(states, controls).reshape(len(order), -1)
    aim = sketch.draw(known.goal[row][None], controls[0, :0])[0]
    return {
        "start": int(known.start_ids[row]),
        "identity": bytes(known.identities[row]).hex()[:16],
        "context": [picture(frame) for frame in frames[:-1]],
        "goal": picture(frames[-1]),
        "aim": aim.tolist(),
        "ids": known.candidate_ids[row, order].tolist(),
        "origin": _origins(bank, row, order),
        "success": [int(w) if r else None for w, r in zip(won, ran, strict=True)],
        "task": [t if r else None for t, r in zip(numbers(cost), ran, strict=True)],
        "states": [path if r else None for path, r in zip(drawn.tolist(), ran, strict=True)],
    }


def _origins(bank: Bank, row: int, order: Array) -> list[str]:
    """Family of every candidate, and its centre if the pool has decoys."""
    made = bank.provenance
    families, centres = made.family[row, order].tolist(), made.centre_of[row, order].tolist()
    if max(centres) <= 0:
        return list(families)
    names = ["reference" if c == 0 else f"decoy {c}" if c > 0 else "" for c in centres]
    return [f"{f} · {name}" if name else f for f, name in zip(families, names, strict=True)]


def _frames(bank: Bank, states: Array, look: str) -> Array:
    """(T, S) states -> frames (T, SIZE, SIZE, 3) in the look."""
    if look == PLAIN:
        return np.asarray(bank.world().render(states, SIZE))
    return np.asarray(bank.scene(look).observe(torch.from_numpy(states), SIZE)[0].numpy())


def picture(frame: Array) -> str:
    """(size, size, 3) -> a PNG as a data URI."""
    data = io.BytesIO()
    Image.fromarray(frame).save(data, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()


def numbers(values: Array) -> list[float]:
    """Values rounded to five significant digits, which takes a third of the bytes."""
    return [float(f"{x:.5g}") for x in np.asarray(values, np.float64).tolist()]


def _rows(pools: Pools, what: str, values: Array, at: Array, wide: bool = True) -> Array:
    """Rows `at` of (N, K) or, if not `wide`, (N,) values; other shapes are refused."""
    array, shape = np.asarray(values), pools.ids.shape[: 1 + wide]
    if array.shape != shape:
        raise DjepaError(f"{what} is {array.shape}; {pools.path} has {shape}.")
    return np.ascontiguousarray(array[at]).astype(np.float64)


@dataclass(frozen=True, eq=False)
class _Picked:
    """A method's view of the shown rows, checked and ranked."""

    ranks: Array  # (n, K) from 1
    chosen: Array  # (n,) candidate IDs
    base: Array | None  # (n, K)
    before: Array | None  # (n,) candidate IDs of the base choice
    correction: Array | None  # (n, K)
    opened: Array | None  # (n,)
    advantage: Array | None  # (n,)
    threshold: float | None

    @classmethod
    def of(cls, pools: Pools, name: str, view: View, at: Array, ids: torch.Tensor) -> "_Picked":
        score = _rows(pools, f"the score of {name}", view.score, at)
        chosen = _rows(pools, f"the choice of {name}", view.chosen, at, wide=False).astype(np.int64)
        if not ((chosen >= 0) & (chosen < pools.ids.shape[1])).all():
            raise DjepaError(f"{name} chose a candidate that no pool has; positions are expected.")
        check_pools(ids, **{f"the score of {name}": torch.from_numpy(score)})
        base = before = correction = None
        if view.base is not None:
            base = _rows(pools, f"the base score of {name}", view.base, at)
            check_pools(ids, **{f"the base score of {name}": torch.from_numpy(base)})
            first = best(torch.from_numpy(base), ids)[:, None]
            before, correction = ids.gather(1, first)[:, 0].numpy(), score - base
        opened, advantage = (
            None if x is None else _rows(pools, f"the gate of {name}", x, at, wide=False)
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
        """One start, candidates in the given order; unknown values are None."""
        return {
            "ranks": self.ranks[n, order].tolist(),
            "chosen": int(self.chosen[n]),
            "base": None if self.base is None else numbers(self.base[n, order]),
            "before": None if self.before is None else int(self.before[n]),
            "correction": None if self.correction is None else numbers(self.correction[n, order]),
            "opened": None if self.opened is None else bool(self.opened[n]),
            "advantage": None if self.advantage is None else float(self.advantage[n]),
            "threshold": self.threshold,
        }
