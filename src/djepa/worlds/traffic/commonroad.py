"""Reader of CommonRoad scenarios (XML, versions 2018b and 2020a)."""

from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np

from djepa.errors import DjepaError
from djepa.worlds.traffic.lanes import lane_between, mark_crossings, widened
from djepa.worlds.traffic.plane import Array
from djepa.worlds.traffic.reading import KINDS, check_extent, reading
from djepa.worlds.traffic.recording import Recording
from djepa.worlds.traffic.scene import DT, Kind, Lane

OBSTACLES = ("obstacle", "dynamicObstacle", "staticObstacle")


def read_commonroad(path: Path) -> Recording:
    """One recording; a file that is not one is refused by name."""
    with reading(path):
        text = path.read_bytes().decode("utf-8")
        if "<!DOCTYPE" in text or "<!ENTITY" in text:
            raise DjepaError("it declares entities, which no scenario needs")
        root = ElementTree.fromstring(text)
        if root.tag != "commonRoad":
            raise DjepaError(f"its root is <{root.tag[:40]}>, not <commonRoad>")
        if abs(float(root.attrib["timeStepSize"]) - DT) > 1e-6:
            raise DjepaError(f"its steps are {root.attrib['timeStepSize']} s, not {DT} s")
        return _recording(root, root.attrib.get("benchmarkID", path.stem))


def _recording(root: Element, log: str) -> Recording:
    lanes = mark_crossings(_lanes(root))
    found = [_track(node) for tag in OBSTACLES for node in root.iter(tag)]
    steps = 1 + max((step for rows, _, _, _ in found for step in rows), default=0)
    check_extent(len(found), steps)
    state = np.full((len(found), steps, 4), np.nan)
    for track, (rows, still, _, _) in zip(state, found, strict=True):
        if still:
            track[:] = next(iter(rows.values()))
        for step, row in rows.items():
            track[step] = row
    return Recording(
        log=log,
        lanes=lanes,
        drivable=widened(lanes),
        state=state,
        size=np.array([size for _, _, size, _ in found]).reshape(-1, 2),
        kind=np.array([kind for *_, kind in found], np.int64),
        ids=tuple(node.attrib.get("id", "") for tag in OBSTACLES for node in root.iter(tag)),
    )


def _lanes(root: Element) -> list[Lane]:
    nodes = root.findall("lanelet")
    row = {node.attrib["id"]: i for i, node in enumerate(nodes)}
    crossing = {
        node.attrib["ref"]
        for incoming in root.iter("incoming")
        for node in incoming
        if node.tag.startswith("successors")
    }
    lanes = []
    for node in nodes:
        after = tuple(row[x.attrib["ref"]] for x in node.findall("successor"))
        beside = tuple(
            row[x.attrib["ref"]]
            for side in ("adjacentLeft", "adjacentRight")
            for x in node.findall(side)
            if x.attrib.get("drivingDir", "same") == "same"
        )
        left, right = (_points(_child(node, side)) for side in ("leftBound", "rightBound"))
        limit = float(node.findtext("speedLimit", "nan"))
        lanes.append(lane_between(left, right, after, beside, node.attrib["id"] in crossing, limit))
    return lanes


def _track(node: Element) -> tuple[dict[int, list[float]], bool, Array, Kind]:
    """States by step, does it stand, length and width, kind."""
    still = node.tag == "staticObstacle" or node.findtext("role") == "static"
    states = [_child(node, "initialState"), *node.findall("trajectory/state")]
    rows = {}
    for state in states:
        point = _child(state, "position/point")
        step = 0 if still else int(_number(_child(state, "time")))
        if step < 0:
            raise DjepaError("a state is before step 0")
        speed = state.find("velocity")
        rows[step] = [
            float(point.findtext("x", "nan")),
            float(point.findtext("y", "nan")),
            _number(_child(state, "orientation")),
            0.0 if speed is None else _number(speed),
        ]
    box = node.find("shape/rectangle")
    if box is not None:
        size = [float(box.findtext(side, "nan")) for side in ("length", "width")]
    else:
        size = [2 * float(_child(node, "shape/circle").findtext("radius", "nan"))] * 2
    kind = KINDS.get((node.findtext("type") or "").lower(), Kind.VEHICLE)
    return rows, still, np.array(size), kind


def _child(node: Element, path: str) -> Element:
    found = node.find(path)
    if found is None:
        raise DjepaError(f"<{node.tag}> {node.attrib.get('id', '')} has no {path}")
    return found


def _number(node: Element) -> float:
    """An exact value, or the middle of an interval."""
    exact = node.findtext("exact")
    if exact is not None:
        return float(exact)
    ends = (node.findtext("intervalStart", "nan"), node.findtext("intervalEnd", "nan"))
    return sum(map(float, ends)) / 2


def _points(bound: Element) -> Array:
    rows = [[float(p.findtext(axis, "nan")) for axis in "xy"] for p in bound.findall("point")]
    return np.array(rows, float).reshape(-1, 2)
