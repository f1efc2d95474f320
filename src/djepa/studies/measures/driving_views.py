"""Driving scenes for figures and the inspector. They illustrate; nothing is counted on them.

Each figure shows the first scene of a case, in the order of the bank, that satisfies its rule.

Legend: N scenes, K candidates, T road users.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.align.registry import label
from djepa.bank.driving import TrafficBank
from djepa.report.driving import comfort, fan, film, pair, strips
from djepa.report.sheet import save_animation
from djepa.studies.design import Case, Measure
from djepa.studies.measures.driving import NATIVE, chosen_parts
from djepa.studies.results import Results
from djepa.studies.stages import Say
from djepa.studies.study import Study
from djepa.worlds.traffic.execute import execute
from djepa.worlds.traffic.plane import Array, to_frame
from djepa.worlds.traffic.scene import STEPS, TO_CENTRE, H, Scene, V

Mask = npt.NDArray[np.bool_]
Parts = Mapping[str, npt.NDArray[np.float64]]
TURNS, BEND = ("comfort",), 0.3  # rad that the native choice turns
SEEN = 70.0  # m around the car that are drawn
FILMED = ("avoided", "harmed")  # figures that are also films
TOUCH = "A ring is around the car while it touches another, whoever is at fault."
RULES: dict[str, tuple[str, Callable[[Parts, Parts], Mask]]] = {
    "fan": (
        "All 32 candidates as executed. The first scene in which the choice gains 30 points.",
        lambda a, b: a["pdms"] > b["pdms"] + 0.3,
    ),
    "avoided": (
        "The first scene in which the native choice collides and the aligned one does not.",
        lambda a, b: (b["nc"] < 1) & (a["nc"] == 1),
    ),
    "harmed": (
        "The reverse: the first scene in which only the aligned choice collides, and the native "
        "one stays on the road.",
        lambda a, b: (a["nc"] < 1) & (b["nc"] == 1) & (b["dac"] == 1),
    ),
    "clearance": (
        "The first scene in which the native choice comes too near to somebody, without a "
        "collision, and the aligned one does not. Both at the moment at which it is nearest.",
        lambda a, b: (b["nc"] == 1) & (b["dac"] == 1) & (b["ttc"] < 1) & (a["ttc"] == 1),
    ),
    "comfort": (
        "The first scene in which the native choice is uncomfortable alone and the aligned one is "
        "not, second by second; one in which the car turns, if there is one.",
        lambda a, b: (
            (b["nc"] * b["dac"] * b["ttc"] == 1)
            & (b["comfort"] < a["comfort"])
            & (a["pdms"] > b["pdms"] + 0.1)
        ),
    ),
    "progress": (
        "Key frames of the first scene in which both choices are safe and the aligned one gets a "
        "third farther along the route.",
        lambda a, b: (
            (b["nc"] * b["dac"] * b["ttc"] == 1)
            & (a["nc"] * a["dac"] * a["ttc"] == 1)
            & (a["ep"] > b["ep"] + 1 / 3)
        ),
    ),
}


def views(rules: Mapping[str, tuple[str, Callable[[Parts, Parts], Mask]]] = RULES) -> Measure:
    """The scenes of all rules of a case, each with the choices of the native model and ours."""

    def run(study: Study, case: Case, say: Say) -> dict[str, Any]:
        parts, found = chosen_parts(study, case), {}
        chosen, poses = chosen_rows(study, case), bank_of(study, case).known.poses
        turn = [abs(float(poses[at, of[NATIVE], -1, H])) for at, of in chosen]
        for name, (_, rule) in rules.items():
            rows = np.flatnonzero(rule(parts[study.design.ours], parts[NATIVE])).tolist()
            if name in TURNS:
                rows.sort(key=lambda row: turn[row] < BEND)  # stable: the first that turns
            if rows:
                at, picks = chosen[rows[0]]
                found[name] = drawn(study, case, at) | {"start": rows[0], "chosen": picks}
        return found

    return Measure(
        name="views",
        title="What the choices lead to",
        text=(
            "Scenes from above; the native choice beside ours. Light blue: lanes of the route. "
            "Grey: vehicles, purple: pedestrians, orange: cones.",
        ),
        run=run,
        figures=_figures,
    )


def chosen_rows(study: Study, case: Case) -> list[tuple[int, dict[str, int]]]:
    """For every scene of the rows: its row in the bank, and the IDs that two methods chose."""
    bank = bank_of(study, case)
    rows = {name: i for i, name in enumerate(bank.known.names)}
    at = [rows[name] for name in study.population("confirmation", case).evidence.identities]
    picks: list[dict[str, int]] = [{} for _ in at]
    for row in study.rows(case.name):
        if row.method in (NATIVE, study.design.ours):
            picks[row.start][row.method] = row.chosen
    order = (NATIVE, study.design.ours)
    return [(i, {name: of[name] for name in order}) for i, of in zip(at, picks, strict=True)]


def drawn(study: Study, case: Case, row: int) -> dict[str, Any]:
    """One scene in the frame of its ego car, with all executed candidates, as plain numbers."""
    bank = bank_of(study, case)
    parts = {name: x[row] for name, x in bank.parts.items()}
    return from_above(bank.scene(row, study.place.recorded), bank.known.poses[row], parts)


def from_above(scene: Scene, poses: Array, parts: Parts) -> dict[str, Any]:
    """`drawn` for (K, 8, 3) candidates of a scene and (K,) parts of their PDMS."""
    states = execute(scene.ego, poses)
    local = to_frame(scene.ego[:3], states[..., :3])
    near = _near(scene)
    others = to_frame(scene.ego[:3], scene.future[near, : STEPS + 1, :3])
    return {
        "road": _local(scene, [*scene.drivable, *(lane.polygon for lane in scene.lanes)]),
        "route": _local(scene, [scene.lanes[i].polygon for i in scene.route]),
        "centres": _local(scene, [lane.centre for lane in scene.lanes]),
        "red": _local(scene, [scene.lanes[i].polygon for i in scene.red]),
        "paths": _short(local, 4),
        "speed": _short(states[..., V]),
        "pdms": _short(parts["pdms"], 4),
        "why": [_lacks({name: x[k] for name, x in parts.items()}) for k in range(len(states))],
        "others": [[None if p != p else _short([p, q, h]) for p, q, h in one] for one in others],
        "sizes": _short(scene.size[near]),
        "kinds": scene.kind[near].tolist(),
        "end": _short(local[0, 0] if scene.driven is None else scene.driven[-1]),
    }


def _figures(results: Results, folder: Path) -> Iterator[tuple[str, str]]:
    for case, stored in results.measured("views").items():
        for name, (text, _) in RULES.items():
            if name not in stored:
                continue
            scene, stem = stored[name], folder / f"{name}-{case}"
            order = sorted(scene["chosen"], key=lambda method: method != NATIVE)
            chosen = {label(method): scene["chosen"][method] for method in order}
            if name == "fan":
                fan(stem, scene, chosen)
            elif name == "clearance":
                pair(stem, scene, chosen, _nearest(scene, next(iter(chosen.values()))))
            elif name == "comfort":
                comfort(stem, scene, chosen)
            else:
                strips(stem, scene, chosen)
            yield stem.name, f"{text} Scene {scene['start']}."
            if name in FILMED:
                moving = folder / f"film-{name}-{case}.gif"
                save_animation(moving, film(scene, chosen))
                yield moving.stem, f"The same scene in motion. {TOUCH}"


def _nearest(scene: Mapping[str, Any], k: int) -> int:
    """The step at which a drive is nearest to a road user that moves or stands ahead."""
    path = np.array(scene["paths"])[k]
    centre = path[:, :2] + TO_CENTRE * np.stack([np.cos(path[:, H]), np.sin(path[:, H])], 1)
    best, found = np.inf, STEPS
    for one in scene["others"]:
        for step, pose in enumerate(one):
            if pose is not None and (away := np.hypot(*(centre[step] - pose[:2]))) < best:
                best, found = away, step
    return found


def _lacks(parts: Mapping[str, float]) -> str:
    """The parts of PDMS that lose points, in words."""
    words = {"nc": "collision", "dac": "leaves the road", "ttc": "too near", "comfort": "rough"}
    found = [word for part, word in words.items() if parts[part] < 1]
    if parts["nc"] * parts["dac"] > 0 and parts["ep"] < 0.995:
        found.append(f"progress {100 * parts['ep']:.0f} %")
    return ", ".join(found) or "nothing lost"


def _near(scene: Scene) -> npt.NDArray[np.intp]:
    away = np.hypot(*np.moveaxis(scene.future[:, : STEPS + 1, :2] - scene.ego[:2], -1, 0))
    return np.flatnonzero((np.where(np.isfinite(away), away, np.inf) < SEEN).any(1))


def _local(scene: Scene, polygons: list[Array]) -> list[list[list[float]]]:
    found = []
    for points in polygons:
        moved = to_frame(scene.ego[:3], np.pad(points, ((0, 0), (0, 1))))[:, :2]
        if (np.abs(moved).min(0) < SEEN).all() or (moved.min(0) * moved.max(0) < 0).all():
            found.append(_short(moved))
    return found


def _short(values: Any, digits: int = 2) -> Any:
    return np.round(np.asarray(values, float), digits).tolist()


def bank_of(study: Study, case: Case) -> TrafficBank:
    """The bank of a case."""
    return TrafficBank(study.out / "banks" / case.folder)
