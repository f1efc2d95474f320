"""Drivers on a layout: they follow (IDM), change lanes (MOBIL), yield and stop.

Legend: C cars, G lines, P points of a line.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from djepa.worlds.traffic.idm import FREE, Style, idm
from djepa.worlds.traffic.plane import Array, Mask, lengths
from djepa.worlds.traffic.roads import Layout
from djepa.worlds.traffic.scene import DT

SIGHT, ZIPPER = 100.0, 60.0  # m: range to leaders, to cars that will merge
HARDEST = 6.0  # m/s², braking
CAN_STOP = 3.5  # m/s², for a light that turns red
LATERAL = 2.5  # m/s² in bends
SHIFT = 1.2  # m/s sideways in a lane change
POLITE, GAIN, SAFE = 0.2, 0.3, 2.5  # MOBIL: share of others' loss, least gain, followers' braking
GREEN, CLEARING = 9.0, 3.0  # s


@dataclass
class Cars:
    """The cars, (C,) each."""

    line: NDArray[np.int64]
    s: Array
    v: Array
    d: Array  # m to the left of the line
    a: Array
    size: Array  # (C, 2)
    style: Style


class Traffic:
    """One layout with its cars, one step at a time."""

    def __init__(self, layout: Layout, cars: Cars, phase: float) -> None:
        self.layout, self.cars, self.time = layout, cars, phase
        most = max(len(line.points) for line in layout.lines)
        G = len(layout.lines)
        self.points = np.full((G, most, 2), 1e5)
        self.heading, self.far, self.cap = (np.zeros((G, most)) for _ in range(3))
        for g, line in enumerate(layout.lines):
            n, step = len(line.points), np.gradient(line.points, axis=0)
            self.points[g, :n], self.far[g, :n] = line.points, lengths(line.points)
            self.far[g, n:] = self.far[g, n - 1]
            self.heading[g, :n] = np.unwrap(np.arctan2(step[:, 1], step[:, 0]))
            self.cap[g] = _speed_cap(self.heading[g, :n], most)
        self.end = self.far[:, -1]
        lines = layout.lines
        self.stop, self.clear = (
            np.array([x.stop for x in lines]),
            np.array([x.clear for x in lines]),
        )
        self.merge = np.array([x.merge for x in lines])
        self.arm, self.entry = (
            np.array([x.arm for x in lines]),
            np.array([x.entry for x in lines]),
        )
        self.conflict = _conflicts(self.points, self.stop, self.clear, self.entry, self.far)
        self.granted: Mask = np.zeros(len(cars.s), bool)

    def poses(self) -> Array:
        """(C, 4) x, y, heading, speed; NaN once a car has left its line."""
        c = self.cars
        i = np.minimum(c.s.astype(int), self.points.shape[1] - 2)
        share = (c.s - self.far[c.line, i]) / np.maximum(
            self.far[c.line, i + 1] - self.far[c.line, i], 1e-6
        )
        heading = self.heading[c.line, i] * (1 - share) + self.heading[c.line, i + 1] * share
        xy = (
            self.points[c.line, i] * (1 - share)[:, None]
            + self.points[c.line, i + 1] * share[:, None]
        )
        xy = xy + c.d[:, None] * np.stack([-np.sin(heading), np.cos(heading)], 1)
        drift = np.where(np.abs(c.d) > 1e-3, -np.sign(c.d) * self._shift(), 0.0)
        result = np.concatenate(
            [xy, (heading + np.arctan2(drift, np.maximum(c.v, 1.0)))[:, None], c.v[:, None]], 1
        )
        result[c.s >= self.end[c.line] - 2] = np.nan
        return result

    def red(self) -> Mask:
        """(G,): lines that a red light closes; arms 0 and 2 take turns with 1 and 3."""
        if not self.layout.signals:
            return np.zeros(len(self.layout.lines), bool)
        turn, within = divmod(self.time, GREEN + CLEARING)
        return (self.arm % 2 != int(turn) % 2) | (within >= GREEN)

    def step(self, walkers: Array) -> None:
        """Advance by 0.1 s; `walkers` (W, 4) are pedestrians."""
        c, poses = self.cars, self.poses()
        along, offset = self._project(poses)
        gap, leader = self._leaders(poses, along, offset)
        self._grant()
        for distance in (self._junction(), self._crossing(walkers)):
            nearer = distance < gap
            gap, leader = np.where(nearer, distance, gap), np.where(nearer, 0.0, leader)
        wanted = np.minimum(c.style.speed, self.cap[c.line, c.s.astype(int)])
        a = idm(replace(c.style, speed=wanted), c.v, gap, leader)
        c.a = np.clip(a, -HARDEST, None)
        if round(self.time / DT) % 5 == 0:
            self._change_lanes(along, offset, a)
        v = np.maximum(c.v + c.a * DT, 0.0)
        c.s = np.minimum(c.s + (c.v + v) / 2 * DT, self.end[c.line] - 1)
        c.d = np.sign(c.d) * np.maximum(np.abs(c.d) - self._shift() * DT, 0.0)
        c.v = v
        self.time += DT

    def _shift(self) -> Array:
        """Sideways speed: slow at both ends of a lane change, none when standing."""
        c = self.cars
        part = np.clip(np.abs(c.d) / 3.5, 0, 1)
        return SHIFT * np.minimum(0.25 + 4 * part * (1 - part), 1.0) * np.minimum(c.v / 5, 1.0)

    def _project(self, poses: Array) -> tuple[Array, Array]:
        """(C, 4) -> distances along and offsets from every line, (G, C) each."""
        xy = np.nan_to_num(poses[:, :2], nan=1e6)
        x, y = (xy[:, None, i] - self.points[:, None, ::2, i] for i in (0, 1))  # (G, C, P / 2)
        i = 2 * (x * x + y * y).argmin(2)
        g = np.arange(len(self.points))[:, None]
        h, rest = self.heading[g, i], poses[None, :, :2] - self.points[g, i]
        along = self.far[g, i] + rest[..., 0] * np.cos(h) + rest[..., 1] * np.sin(h)
        return along, rest[..., 1] * np.cos(h) - rest[..., 0] * np.sin(h)

    def _leaders(self, poses: Array, along: Array, offset: Array) -> tuple[Array, Array]:
        """(C,) gaps and speeds of the nearest car ahead, or of one that merges before this one."""
        c = self.cars
        s, d = along[c.line], offset[c.line]  # (C, C): row i in terms of its line
        wide = (c.size[:, None, 1] + c.size[None, :, 1]) / 2 + 0.3
        ahead = s - c.s[:, None]
        on_way = (np.abs(d) < wide) | ((np.abs(d - c.d[:, None]) < wide) & (ahead < 20))
        on_way |= c.line[:, None] == c.line[None]  # also cars still changing to this lane
        to_merge = (self.merge[c.line] - c.s)[:, None]
        zipper = (to_merge > 0) & (to_merge < ZIPPER) & (to_merge.T > 0) & (to_merge > to_merge.T)
        zipper &= self.entry[c.line][:, None] != self.entry[c.line][None]
        with np.errstate(invalid="ignore"):
            ahead = np.where(zipper & ~on_way, to_merge - to_merge.T, ahead)
        found = (on_way | zipper) & (ahead > 0) & (ahead < SIGHT) & np.isfinite(poses[None, :, 0])
        np.fill_diagonal(found, False)
        gap = np.where(found, ahead - (c.size[:, None, 0] + c.size[None, :, 0]) / 2, FREE)
        nearest = gap.argmin(1)
        rows = np.arange(len(gap))
        turn = np.cos(poses[nearest, 2] - poses[:, 2])
        speed = np.nan_to_num(np.maximum(c.v[nearest] * turn, 0.0))
        return np.maximum(gap[rows, nearest], 0.1), speed

    def _grant(self) -> None:
        """Let cars enter the junction: first come, first served, if no path in use is crossed."""
        c = self.cars
        left = self.stop[c.line] - c.s
        self.granted &= c.s - c.size[:, 0] / 2 < self.clear[c.line] + 1
        closed = self.red()[c.line]
        can_stop = c.v**2 / (2 * CAN_STOP) < left - 2
        self.granted &= ~(closed & can_stop & (left > 0))
        asking = ~self.granted & (left > 0) & (left < 30) & ~(closed & can_stop)
        rows = np.flatnonzero(asking)
        for i in rows[np.argsort((left / np.maximum(c.v, 2.0))[rows], kind="stable")].tolist():
            inside = self.granted
            if not self.conflict[c.line[i], c.line[inside]].any():
                self.granted[i] = True

    def _junction(self) -> Array:
        """(C,) distance to the stop line where a car has to stop there."""
        c = self.cars
        left = self.stop[c.line] - c.s
        return np.where((left > 0) & ~self.granted, left - c.size[:, 0] / 2, FREE)

    def _crossing(self, walkers: Array) -> Array:
        """(C,) distance to a crossing with a pedestrian on, or about to enter, this car's path."""
        c = self.cars
        result = np.full(len(c.s), FREE)
        if not len(walkers):
            return result
        along, offset = self._project(walkers)
        toward = np.sin(walkers[None, :, 2] - self._heading_at(along))  # to the left +
        near = np.abs(offset) < 2.2
        coming = (np.sign(offset) != np.sign(toward)) & (np.abs(offset) < 4.5)
        for w in range(len(walkers)):
            left = along[c.line, w] - c.s - c.size[:, 0] / 2 - 3.0
            can_stop = left > c.v**2 / (2 * HARDEST)
            yields = (near | coming)[c.line, w] & can_stop & (left > -1)
            result = np.where(yields, np.minimum(result, np.maximum(left, 0.1)), result)
        return result

    def _heading_at(self, along: Array) -> Array:
        i = np.clip(along.astype(int), 0, self.points.shape[1] - 1)
        return self.heading[np.arange(len(along))[:, None], i]

    def _change_lanes(self, along: Array, offset: Array, a: Array) -> None:
        """MOBIL: change lane if the own gain outweighs the loss of the new follower."""
        c, lines = self.cars, self.layout.lines
        for i in np.flatnonzero((np.abs(c.d) < 0.05) & (c.v > 3)).tolist():
            for to in (lines[c.line[i]].left, lines[c.line[i]].right):
                if to is None or lines[to].merge - along[to, i] < ZIPPER:
                    continue
                s, there = along[to], (np.abs(offset[to]) < 1.8) | (c.line == to)
                there &= np.isfinite(s) & (c.s < self.end[c.line] - 2)
                there[i] = False
                gap = s - s[i]
                room = (c.size[:, 0] + c.size[i, 0]) / 2
                ahead, behind = (
                    np.where(there & m, np.abs(gap) - room, FREE) for m in (gap >= 0, gap < 0)
                )
                lead, follow = int(ahead.argmin()), int(behind.argmin())
                if min(ahead[lead], behind[follow]) < 2:
                    continue
                mine = _one(c.style, i, c.v[i], ahead[lead], c.v[lead])
                theirs = _one(c.style, follow, c.v[follow], behind[follow], c.v[i])
                cost = a[follow] - theirs if behind[follow] < FREE else 0.0
                if (behind[follow] == FREE or theirs > -SAFE) and mine - a[
                    i
                ] - POLITE * cost > GAIN:
                    c.line[i], c.s[i], c.d[i] = to, s[i], offset[to, i]
                    break


def _one(style: Style, i: int, v: float, gap: float, leader: float) -> float:
    """IDM acceleration of one driver."""
    parts = (style.speed, style.gap, style.headway, style.accel, style.brake)
    speed, least, headway, accel, brake = (np.asarray(part)[i] for part in parts)
    one = Style(speed, least, headway, accel, brake, style.power)
    return float(idm(one, np.asarray(v), np.asarray(gap), np.asarray(leader)))


def _speed_cap(heading: Array, count: int) -> Array:
    """(P,) highest speed at each metre: slow enough for the bends ahead."""
    bend = np.abs(np.gradient(heading)) + 1e-4
    bend = np.convolve(np.pad(bend, 2, mode="edge"), np.full(5, 0.2), "valid")
    cap = np.sqrt(LATERAL / bend)
    for i in range(len(cap) - 2, -1, -1):
        cap[i] = min(cap[i], np.sqrt(cap[i + 1] ** 2 + 2 * 1.5))
    return np.pad(cap, (0, count - len(cap)), mode="edge")


def _conflicts(points: Array, stop: Array, clear: Array, entry: Array, far: Array) -> Mask:
    """(G, G): lines of different entries that come closer than 3 m in the junction."""
    G = len(points)
    result = np.zeros((G, G), bool)
    for g in range(G):
        for h in range(g):
            if np.isinf(stop[g]) or np.isinf(stop[h]) or entry[g] == entry[h]:
                continue
            a, b = (points[i][(far[i] > stop[i]) & (far[i] < clear[i])] for i in (g, h))
            close = np.hypot(*np.moveaxis(a[:, None] - b, -1, 0)).min() < 3.0
            result[g, h] = result[h, g] = close
    return result
