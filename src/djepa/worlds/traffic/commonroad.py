"""Reader of CommonRoad scenarios (XML, versions 2018b and 2020a).

A log is a place: all scenarios whose names begin with the same country and place are one log, so
USA_US101-5_1_T-1 and USA_US101-15_1_T-1 are of the log USA_US101. A file has no recording time, and
the numbers do not imply one: NGSIM scenarios with different maps, or different configurations on a
map, show the same cars at the same time. Intervals resample whole logs: counting two recordings as
one makes them wider, counting one as two would make them too narrow. A name of another form is a
log of its own.

A shape turns about its own centre, as in commonroad-io. Polygons, and several shapes together,
become the smallest box along the heading. A stationary obstacle is a static object (a building, a
pillar, a median, an unknown type) unless its type is that of a road user.
"""

import re
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np

from djepa.errors import DjepaError
from djepa.worlds.traffic.lanes import lane_between, mark_crossings, widened
from djepa.worlds.traffic.plane import Array, corners, cross, unit
from djepa.worlds.traffic.reading import KINDS, check_extent, reading
from djepa.worlds.traffic.recording import Recording
from djepa.worlds.traffic.scene import DT, Kind, Lane

OBSTACLES = ("obstacle", "dynamicObstacle", "staticObstacle")
SHAPES = ("rectangle", "circle", "polygon")
DRIVEN = {
    *("car", "truck", "bus", "taxi", "motorcycle", "train", "priorityvehicle", "parkedvehicle"),
}
NAME = re.compile(r"(?:C-)?([A-Z]{3}_[A-Za-z0-9]+)-\d+(?:_.+)?")  # country, place, map, the rest


def read_commonroad(path: Path) -> Recording:
    """One recording; errors name the file."""
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


def log_of(name: str) -> str:
    """The log to which a scenario of this name belongs."""
    found = NAME.fullmatch(name)
    return found[1] if found else name


def _recording(root: Element, name: str) -> Recording:
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
        log=log_of(name),
        name=name,
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
    """States by step, whether it is stationary, length and width, kind."""
    still = node.tag == "staticObstacle" or node.findtext("role") == "static"
    states = [_child(node, "initialState"), *node.findall("trajectory/state")]
    pivot, arm, turn, size = _shape(_child(node, "shape"))
    rows = {}
    for state in states:
        step = 0 if still else int(_number(_child(state, "time")))
        if step < 0:
            raise DjepaError("a state is before step 0")
        heading = _number(_child(state, "orientation"))
        ahead = unit(np.array(heading))
        aside = np.array([-ahead[1], ahead[0]])
        centre = _point(_child(state, "position/point")) + pivot + arm[0] * ahead + arm[1] * aside
        speed = state.find("velocity")
        rows[step] = [*centre, heading + turn, 0.0 if speed is None else _number(speed)]
    word = (node.findtext("type") or "").lower()
    other = Kind.STATIC if still and word not in DRIVEN else Kind.VEHICLE
    return rows, still, size, KINDS.get(word, other)


def _shape(shape: Element) -> tuple[Array, Array, float, Array]:
    """The box of a shape: its pivot, the offset from there to its centre (both (2,), in the frame
    of the obstacle), its own rotation, and (2,) length and width.
    """
    parts = [part for part in shape if part.tag in SHAPES]
    if not parts:
        raise DjepaError(f"a shape is none of {', '.join(SHAPES)}")
    if len(parts) == 1 and parts[0].tag == "rectangle":
        return _middle(parts[0]), np.zeros(2), _turn(parts[0]), _sides(parts[0])
    outline = np.concatenate([_outline(part) for part in parts])
    low, high = outline.min(0), outline.max(0)
    middle = (low + high) / 2
    one = len(parts) == 1 and parts[0].tag == "polygon"
    pivot = _centroid(outline) if one else middle
    return pivot, middle - pivot, 0.0, high - low


def _outline(part: Element) -> Array:
    """(P, 2) points around a shape."""
    if part.tag == "polygon":
        points = _points(part)
        if len(points) < 3:
            raise DjepaError("a polygon has fewer than three points")
        return points
    turn = _turn(part) if part.tag == "rectangle" else 0.0
    return corners(_middle(part), np.array(turn), _sides(part))


def _sides(part: Element) -> Array:
    """(2,) length and width of a rectangle or circle."""
    if part.tag == "circle":
        return np.full(2, 2 * float(part.findtext("radius", "nan")))
    return np.array([float(part.findtext(side, "nan")) for side in ("length", "width")])


def _middle(part: Element) -> Array:
    centre = part.find("center")
    return np.zeros(2) if centre is None else _point(centre)


def _turn(part: Element) -> float:
    return float(part.findtext("orientation", "0"))


def _centroid(outline: Array) -> Array:
    """(2,) centroid of a polygon (P, 2)."""
    origin = outline[0]
    here, after = outline - origin, np.roll(outline - origin, -1, 0)
    twice = cross(here, after)
    if abs(twice.sum()) < 1e-9:
        return outline.mean(0)
    return origin + ((here + after) * twice[:, None]).sum(0) / (3 * twice.sum())


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


def _points(line: Element) -> Array:
    """(P, 2) the points of a line."""
    return np.array([_point(p) for p in line.findall("point")], float).reshape(-1, 2)


def _point(node: Element) -> Array:
    return np.array([float(node.findtext(axis, "nan")) for axis in "xy"])
