"""Single decisions as data for the page: who chose which candidate, and what executing it showed.

Everything is plain JSON. Candidates stand in order of their ID; how states are drawn is the world's
`Sketch`, and a world without one is shown without replays.

Legend: N starts of the bank, K candidates, H horizon, M methods.
"""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from djepa.align.methods import Choice
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.evidence.ranks import best, check_pools, strict_ranks
from djepa.tasks.task import PLAIN
from djepa.worlds.sketch import ANGLE, Sketch

Array = npt.NDArray[Any]
SIZE = 128  # px of a frame


def inspect(
    bank: Bank,
    rows: Sequence[int],
    costs: Mapping[str, Array],
    methods: Mapping[str, Choice],
    label: str = "",
    look: str = PLAIN,
) -> dict[str, Any]:
    """Some starts of a bank as the page shows them; `rows` are their positions.

    `costs` are (N, K) native costs by geometry. `label` names the kind of pools; without one, the
    bank's profile does. Frames have the look in which the geometries saw them.
    """
    if not rows:
        raise DjepaError("Name at least one start to inspect.")
    for row in rows:
        bank.row(row)
    ids = torch.from_numpy(np.ascontiguousarray(bank.decisions.candidate_ids))
    for name, cost in costs.items():
        if cost.shape != tuple(ids.shape):
            raise DjepaError(f"the cost of {name} is {cost.shape}; {bank.path} has {ids.shape}.")
    starts = []
    sketch = bank.config.task.sketch(bank.world())
    for row in rows:
        start, order = _start(bank, row, sketch, look), np.argsort(ids[row].numpy())
        start["costs"] = [_numbers(cost[row, order]) for cost in costs.values()]
        start["methods"] = [_method(n, choice, row, ids, order) for n, choice in methods.items()]
        starts.append(start)
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


def _start(bank: Bank, row: int, sketch: Sketch, look: str) -> dict[str, Any]:
    """What the bank knows of one start, and all of its executions."""
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
        "context": [_picture(frame) for frame in frames[:-1]],
        "goal": _picture(frames[-1]),
        "aim": aim.tolist(),
        "ids": known.candidate_ids[row, order].tolist(),
        "origin": _origins(bank, row, order),
        "success": [int(w) if r else None for w, r in zip(won, ran, strict=True)],
        "task": [t if r else None for t, r in zip(_numbers(cost), ran, strict=True)],
        "states": [path if r else None for path, r in zip(drawn.tolist(), ran, strict=True)],
    }


def _origins(bank: Bank, row: int, order: Array) -> list[str]:
    """How every candidate was made, and around which centre where the pool has decoys."""
    made = bank.provenance
    families, centres = made.family[row, order].tolist(), made.centre_of[row, order].tolist()
    if max(centres) <= 0:
        return list(families)
    names = ["reference" if c == 0 else f"decoy {c}" if c > 0 else "" for c in centres]
    return [f"{f} · {name}" if name else f for f, name in zip(families, names, strict=True)]


def _frames(bank: Bank, states: Array, look: str) -> Array:
    """(T, S) states as they are seen: (T, SIZE, SIZE, 3)."""
    if look == PLAIN:
        return np.asarray(bank.world().render(states, SIZE))
    return np.asarray(bank.scene(look).observe(torch.from_numpy(states), SIZE)[0].numpy())


def _picture(frame: Array) -> str:
    """(size, size, 3) -> a PNG as a data URI."""
    data = io.BytesIO()
    Image.fromarray(frame).save(data, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()


def _numbers(values: Array) -> list[float]:
    """Five significant digits: enough to read, and a third of the bytes."""
    return [float(f"{x:.5g}") for x in np.asarray(values, np.float64).tolist()]


def _method(name: str, choice: Choice, row: int, ids: Tensor, order: Array) -> dict[str, Any]:
    """What a method made of one start: candidates in the given order; what is not known is None."""
    (N, K), own = ids.shape, ids[row : row + 1]
    for x in (choice.score, choice.base):
        if x is not None and x.shape != ids.shape:
            raise DjepaError(f"The score of {name} is {tuple(x.shape)}; there are {N} x {K}.")
    if not 0 <= int(choice.position[row]) < K:
        raise DjepaError(f"{name} chose a candidate that no pool has; positions are expected.")
    score = choice.score[row : row + 1].double().cpu()
    check_pools(own, **{f"the score of {name}": score})
    known: dict[str, Any] = dict.fromkeys(("base", "before", "correction"))
    if choice.base is not None:
        base = choice.base[row : row + 1].double().cpu()
        known["base"] = _numbers(base[0, order].numpy())
        known["before"] = int(own[0, best(base, own)])
        known["correction"] = _numbers((score - base)[0, order].numpy())
    return {
        "ranks": (strict_ranks(score, own)[0, order] + 1).tolist(),
        "chosen": int(own[0, choice.position[row]]),
        **known,
        "opened": None if choice.opened is None else bool(choice.opened[row]),
        "advantage": None if choice.advantage is None else float(choice.advantage[row]),
        "threshold": None if choice.threshold is None else float(choice.threshold),
    }
