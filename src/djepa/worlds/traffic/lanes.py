"""Lanes from map data: two bounds, or a centre line and a width."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from djepa.errors import DjepaError
from djepa.worlds.traffic.plane import Areas, Array, evenly, spaced, unit
from djepa.worlds.traffic.scene import Lane

MOST_LANES = 20_000  # of a map: overlaps are a table of all pairs
SHOULDER = 0.5  # m added to a lane's sides if a map has no drivable area


def lane_between(
    left: Array,
    right: Array,
    following: tuple[int, ...] = (),
    beside: tuple[int, ...] = (),
    intersection: bool = False,
    limit: float = float("nan"),
) -> Lane:
    """A lane between two bounds, each drawn in the driving direction."""
    if len(left) < 2 or len(right) < 2:
        raise DjepaError("a lane's bound has fewer than two points")
    count = max(len(left), len(right))
    if len(left) != len(right):
        left, right = (evenly(bound, count) for bound in (left, right))
    polygon = np.concatenate([left, right[::-1]])
    return Lane(polygon, (left + right) / 2, following, beside, intersection, limit)


def ribbon(centre: Array, width: float) -> tuple[Array, Array]:
    """(P, 2) centre line -> its left and right bounds."""
    step = np.gradient(centre, axis=0)
    aside = unit(np.arctan2(step[:, 1], step[:, 0]) + np.pi / 2) * width / 2
    return centre + aside, centre - aside


def widened(lanes: Sequence[Lane], by: float = SHOULDER) -> tuple[Array, ...]:
    """Polygons of lanes that were made between bounds, `by` wider at both sides and ends.

    Also closes the slivers between lanes whose bounds do not quite agree.
    """
    areas = []
    for lane in lanes:
        half = len(lane.polygon) // 2
        left, right = lane.polygon[:half], lane.polygon[half:][::-1]
        out = left - right
        out = by * out / np.maximum(np.hypot(*out.T), 1e-6)[:, None]
        left, right = (_longer(bound, by) for bound in (left + out, right - out))
        areas.append(np.concatenate([left, right[::-1]]))
    return tuple(areas)


def _longer(bound: Array, by: float) -> Array:
    ends = []
    for first, second in ((bound[0], bound[1]), (bound[-1], bound[-2])):
        away = first - second
        ends.append(first + by * away / max(float(np.hypot(*away)), 1e-6))
    return np.concatenate([[ends[0]], bound, [ends[1]]])


def mark_crossings(lanes: Sequence[Lane]) -> tuple[Lane, ...]:
    """Mark lanes that overlap a lane that is neither beside, before nor after them."""
    if len(lanes) > MOST_LANES:
        raise DjepaError(f"it has {len(lanes):,} lanes; {MOST_LANES:,} are the most that are read")
    inner = [spaced(lane.centre, 2.0)[1:-1] for lane in lanes]
    owner = np.repeat(np.arange(len(lanes)), [len(points) for points in inner])
    under = Areas.of([x.polygon for x in lanes]).under(np.concatenate([np.zeros((0, 2)), *inner]))
    shared = np.zeros((len(lanes), len(lanes)), bool)
    np.logical_or.at(shared, owner, under)
    for i, lane in enumerate(lanes):
        shared[i, [i, *lane.next, *lane.beside]] = False
        shared[list(lane.next), i] = False
    return tuple(
        replace(lane, intersection=lane.intersection or bool(row.any()))
        for lane, row in zip(lanes, shared, strict=True)
    )
