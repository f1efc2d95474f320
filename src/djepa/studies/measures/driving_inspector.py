"""Single driving decisions for the inspector of the page. Nothing is counted on them.

Lengths are whole centimetres on a square table; the car starts at (20, 40) m and drives to the
right.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from djepa.align.registry import label
from djepa.report.inspector import Pools, picture, seen
from djepa.studies.design import Case, Measure
from djepa.studies.measures.decisions import view_of
from djepa.studies.measures.driving import NATIVE, chosen_parts
from djepa.studies.measures.driving_views import bank_of, chosen_rows, drawn
from djepa.studies.stages import Say
from djepa.studies.study import Study
from djepa.worlds.sketch import ANGLE, Part, whole
from djepa.worlds.traffic.plane import Array
from djepa.worlds.traffic.scene import EVERY, FRONT, REAR, WIDTH

SIDE, CM = 80, 100  # m of the table, centimetres in a metre
OTHERS = {(9.0, 2.5): 4, (4.6, 1.9): 12, (0.8, 0.8): 6}  # length and width in m: how many are drawn
LONG, SMALL = 6.5, 2.2  # m; between them it is drawn as a car
AWAY = -500 * CM  # where absent ones are drawn, out of view
EGO = tuple((CM * x, CM * y) for x, y in (
    (FRONT, WIDTH / 2), (-REAR, WIDTH / 2), (-REAR, -WIDTH / 2), (FRONT, -WIDTH / 2)))  # fmt: skip


def inspector(methods: Sequence[str], many: tuple[int, int, int]) -> Measure:
    """Scenes on which ours and the native choice differ.

    `many`: numbers of scenes in which only the native choice collides, only ours, and in which
    ours gains ten points.
    """

    def run(study: Study, case: Case, say: Say) -> dict[str, Any]:
        test, choices = study.decided(case)
        e, bank = test.evidence, bank_of(study, case)
        at = [row for row, _ in chosen_rows(study, case)]
        views = {label(name): view_of(choices[name]) for name in methods if name in choices}
        costs = {name: e.cost(name).cpu().numpy() for name in e.names}
        starts = seen(
            Pools(e.ids.cpu().numpy(), str(bank.path)),
            _rows(study, case, many),
            costs,
            views,
            lambda row: _scene(study, case, row, at[row]),
        )
        return {
            "label": case.name,
            "bank": bank.hash[:12],
            "rule": bank.config.rule,
            "shape": bank.config.shape,
            "side": SIDE * CM,
            "parts": [asdict(part) for part in _parts()],
            "pace": 2.0,  # states per second: one per 0.5 s of the scene
            "angle": ANGLE,
            "stride": 1,
            "geometries": list(costs),
            "methods": list(views),
            "starts": starts,
        }

    return Measure("inspector", "Single decisions", run=run)


def _rows(study: Study, case: Case, many: tuple[int, int, int]) -> list[int]:
    parts = chosen_parts(study, case)
    ours, theirs = parts[study.design.ours], parts[NATIVE]
    a, b = ours["nc"] < 1, theirs["nc"] < 1
    kinds = (b & ~a, a & ~b, ours["pdms"] > theirs["pdms"] + 0.1)
    found = [np.flatnonzero(kind)[:most] for kind, most in zip(kinds, many, strict=True)]
    return sorted({0, *np.concatenate(found).tolist()})


def _parts() -> list[Part]:
    """The other road users, above them the car."""
    shapes = [_box(*size) for size, many in OTHERS.items() for _ in range(many)]
    places = [(3 * i, 3 * i + 1, 3 * i + 2) for i in range(len(shapes) + 1)]
    others = [
        Part("polygon", "others", "block", at, corners=box)
        for at, box in zip(places[1:], shapes, strict=True)
    ]
    return [*others, Part("polygon", "ego car", "pusher", places[0], corners=EGO, trail=True)]


def _scene(study: Study, case: Case, row: int, at: int) -> dict[str, Any]:
    """Data of one scene for the page: success is a PDMS near the best, cost is 1 - PDMS."""
    bank, scene = bank_of(study, case), drawn(study, case, at)
    paths = np.array(scene["paths"])[:, ::EVERY]  # (K, 9, 3)
    K, around = len(paths), _others(scene)
    states = np.concatenate([_placed(paths), np.broadcast_to(around, (K, *around.shape))], -1)
    frame = bank.known.frame[at].astype(np.int64)
    layers = np.stack([frame[0] // 2 + frame[2] // 2, frame[1] // 2, frame[3]], -1)[::-1]
    image = picture(np.clip(layers, 0, 255).astype(np.uint8).repeat(2, 0).repeat(2, 1))
    end = _placed(np.array(scene["end"]))
    pdms = np.array(scene["pdms"])
    return {
        "start": row,
        "identity": bank.known.names[at].replace("@", "")[:16],
        "context": [image],
        "goal": image,
        "aim": [*end.tolist(), *([AWAY] * 3 * sum(OTHERS.values()))],
        "ground": [_flat(np.array(polygon)).tolist() for polygon in scene["road"]],
        "ids": list(range(K)),
        "origin": scene["why"],
        "success": (pdms >= pdms.max() - 0.05).astype(int).tolist(),
        "task": [round(float(1 - x), 4) for x in pdms],
        "states": states.reshape(K, -1).tolist(),
    }


def _others(scene: Mapping[str, Any]) -> Any:
    """(9, 66) integers: of each size the road users nearest to the car's start."""
    paths = [one[::EVERY] for one in scene["others"]]
    found = np.full((9, sum(OTHERS.values()), 3), AWAY)
    away = [min((np.hypot(*p[:2]) for p in one if p is not None), default=np.inf) for one in paths]
    kinds = [0 if size[0] > LONG else 1 if size[0] > SMALL else 2 for size in scene["sizes"]]
    place = 0
    for kind, many in enumerate(OTHERS.values()):
        of = [i for i in np.argsort(away, kind="stable").tolist() if kinds[i] == kind][:many]
        for at, i in enumerate(of, place):
            for step, pose in enumerate(paths[i]):
                if pose is not None:
                    found[step, at] = _placed(np.array(pose))
        place += many
    return found.reshape(len(found), -1)


def _box(length: float, width: float) -> tuple[tuple[float, float], ...]:
    """Corners in centimetres."""
    x, y = CM * length / 2, CM * width / 2
    return (x, y), (-x, y), (-x, -y), (x, -y)


def _flat(points: Array) -> Any:
    """(..., 2) metres in the frame of the car -> whole centimetres on the table, y down."""
    return whole(CM * (np.array([20.0, SIDE / 2]) + points * (1, -1)))


def _placed(poses: Array) -> Any:
    """(..., 3) poses -> poses on the table, angles in thousandths of a radian."""
    return np.concatenate([_flat(poses[..., :2]), whole(-ANGLE * poses[..., 2:])], -1)
