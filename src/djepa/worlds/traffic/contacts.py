"""Collisions and near collisions of executed candidates with traffic that does not react.

After its first contact that is not the ego's fault a track is ignored; for time to collision, after
its first near contact that is no failure. As in NAVSIM the two lists are separate. So the first
contact of each kind of a candidate with a track decides, and all are tested at once.

Legend: K candidates, 41 executed states each, T tracks, E contacts.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from djepa.worlds.traffic.plane import (
    Array,
    Mask,
    boxes_meet,
    corners,
    segment_meets_box,
    unit,
    wrap,
)
from djepa.worlds.traffic.scene import (
    DT,
    EGO_SIZE,
    H,
    Kind,
    Scene,
    V,
    X,
    Y,
    ego_centre,
    ego_corners,
)

STANDING, TTC_STANDING = 0.05, 0.005  # m/s
OFFSETS = (0, 3, 6, 9)  # steps that time to collision looks ahead
AHEAD, BEHIND = np.deg2rad(30), np.deg2rad(150)
SAMPLE = 5  # steps between the samples of traffic that are used: 2 Hz
Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Where:
    """On which areas and lanes the ego car is, (K, 41) each."""

    several_lanes: Mask
    off_road: Mask
    off_route: Mask
    intersection: Mask


def at_two_hertz(states: Array) -> Array:
    """(T, 51, 4) -> (T, 51, 4): every fifth row is used, the rows between are interpolated.

    A track exists from its first to its last sample; one with a single sample stands still.
    """
    result = np.full(states.shape, np.nan)
    samples = np.arange(0, states.shape[1], SAMPLE)
    for row, track in zip(result, states, strict=True):
        seen = samples[np.isfinite(track[samples]).all(1)]
        if len(seen) == 1:
            row[:] = track[seen[0]]
        elif len(seen):
            inner = np.arange(seen[0], seen[-1] + 1)
            columns = (track[seen, 0], track[seen, 1], np.unwrap(track[seen, 2]), track[seen, 3])
            row[inner] = np.stack([np.interp(inner, seen, c) for c in columns], 1)
    return result


def collisions(scene: Scene, traffic: Array, states: Array, where: Where) -> tuple[Array, Array]:
    """NC and TTC, (K,) each, of (K, 41, 6) states in (T, 51, 4) traffic."""
    nc, ttc = np.ones(len(states)), np.ones(len(states))
    near = _near(traffic, states, scene.size)
    boxes, size, kind = traffic[near], scene.size[near], scene.kind[near]
    shape = corners(boxes[..., :2], boxes[..., H], size[:, None])  # (n, 51, 4, 2)
    contacts = _contacts(states, boxes, shape, size)
    k, t, _, j = _first(contacts[contacts[:, 2] == 0])
    at_fault = _at_fault(states, boxes, shape, kind, where, k, t, j)
    cost = np.where(kind[j] == Kind.STATIC, 0.5, 0.0)
    np.minimum.at(nc, k[at_fault], cost[at_fault])

    k, t = contacts[:, 0], contacts[:, 1]
    k, t, o, j = _first(contacts[np.abs(states[k, t, V]) >= TTC_STANDING])
    bearing = _bearing(states[k, t], boxes[j, t + o])
    loose = (where.several_lanes | where.off_road | where.intersection)[k, t]
    ttc[k[(bearing < AHEAD) | (loose & (bearing <= BEHIND))]] = 0.0
    return nc, ttc


def _near(traffic: Array, states: Array, size: Array) -> Rows:
    """Rows of tracks that may come near any candidate at all."""
    if not len(traffic):
        return np.zeros(0, np.intp)
    ego = states[..., :2].reshape(-1, 2)
    reach = np.hypot(*size.T)[:, None, None] / 2 + 10 + np.abs(states[..., V]).max()
    xy = traffic[..., :2]
    low, high = ego.min(0) - reach, ego.max(0) + reach
    return np.flatnonzero(((xy > low) & (xy < high)).all(2).any(1))


def _contacts(states: Array, boxes: Array, shape: Array, size: Array) -> Rows:
    """(E, 4) candidate k, step t, steps o ahead, track j; in the order of time for each pair.

    The ego box at t + o is the one at t moved along its heading at its speed.
    """
    steps, ahead = np.arange(states.shape[1]), np.array(OFFSETS)
    far = np.abs(states[..., V, None]) * ahead * DT
    shift = unit(states[..., H])[:, :, None] * far[..., None]
    ego = ego_centre(states)[:, :, None] + shift  # (K, 41, O, 2)
    others = boxes[:, steps[:, None] + ahead, :2]  # (n, 41, O, 2)
    reach = (np.hypot(*EGO_SIZE) + np.hypot(*size.T)) / 2
    x, y = (np.moveaxis(others[..., i], 0, -1) - ego[..., i, None] for i in (0, 1))
    close = x * x + y * y <= reach**2  # (K, 41, O, n); an absent track is NaN: False
    k, t, i, j = np.nonzero(close)
    car = ego_corners(states)[k, t] + shift[k, t, i][:, None]
    met = boxes_meet(car, shape[j, t + ahead[i]])
    return np.stack([k, t, ahead[i], j], 1)[met]


def _first(contacts: Rows) -> Rows:
    """(E, 4) -> (4, e): the first contact of each candidate with each track."""
    pair = contacts[:, 0] * (contacts[:, 3].max(initial=0) + 1) + contacts[:, 3]
    _, first = np.unique(pair, return_index=True)
    return contacts[first].T


def _at_fault(
    states: Array, boxes: Array, shape: Array, kind: NDArray[np.int64], where: Where, *at: Rows
) -> Mask:
    """(E,): is the ego to blame for the contact of candidate k with track j at step t?"""
    k, t, j = at
    ego, track = states[k, t], boxes[j, t]
    seen = np.isfinite(boxes[..., V]).argmax(1)
    standing = (kind == Kind.STATIC) | (np.abs(boxes[np.arange(len(boxes)), seen, V]) <= STANDING)
    rear = _bearing(ego, track) > BEHIND
    bumper = ego_corners(ego)
    front = segment_meets_box(bumper[:, 0], bumper[:, 3], shape[j, t])
    beside = (where.several_lanes | where.off_road)[k, t]
    return (np.abs(ego[:, V]) > STANDING) & (standing[j] | (~rear & (front | beside)))


def _bearing(ego: Array, track: Array) -> Array:
    """(E,) angle in [0, π] between the heading and the line from the rear axle to the track."""
    way = np.arctan2(track[:, Y] - ego[:, Y], track[:, X] - ego[:, X])
    return np.abs(wrap(way - ego[:, H]))
