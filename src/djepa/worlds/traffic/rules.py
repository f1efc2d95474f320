"""Sampled forecasts: vehicles follow the rules of the road, along several possible paths.

Each sample draws for every vehicle a path and a driving style (wanted speed, headway, gap,
acceleration); of a few draws the one that best explains its present acceleration is kept. Drivers
follow (IDM), slow down for bends, red lights and pedestrians ahead, let others merge, and enter a
junction in order of arrival. The ego car drives along its route, since others react to it. Only the
past and the map are used.

Legend: R samples, C vehicles (the ego car is the last), W ways, P points of a way, M others.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from djepa.seeds import generator
from djepa.worlds.traffic.idm import FREE, Style, idm
from djepa.worlds.traffic.plane import Array, Mask, project, wrap
from djepa.worlds.traffic.route import lanes_of
from djepa.worlds.traffic.scene import (
    AHEAD,
    BEHIND,
    DT,
    EGO_SIZE,
    EVERY,
    H,
    Kind,
    Scene,
    V,
    ego_centre,
)
from djepa.worlds.traffic.ways import BEFORE, POINTS, Way, Ways, route_way, ways_of

SAMPLES, DRAWS = 8, 4
NEAR, SEEN = 60.0, 110.0  # m from the car: vehicles that follow rules, tracks that they see
LOOK = 3  # steps between two updates of leaders
HARDEST, CAN_STOP = -6.0, 3.5  # m/s², braking; most braking for a red light
FADING = 1.0  # s in which a driver's deviation from the rules falls to 1/e
APART = 3.0  # m/s², largest deviation
ASIDE, CHANGING = 1.2, 0.3  # m/s sideways: to the middle of a lane; threshold of a lane change
ZIPPER, ASKING = 60.0, 30.0  # m to a merge, to a junction
PACES, UNKNOWN = (0.7, 1.15), 14.0  # shares of the speed limit; m/s without a limit
ROOM = 0.3  # m, lateral clearance to moving road users; standing ones are passed closer
JITTER = 0.5  # s, of arrivals at a junction
GREEN, CLEARING = 9.0, 3.0  # s, of traffic lights
PEOPLE = (2.2, 4.5, 3.0)  # m aside that block a path, also if approaching; m kept before them


def by_rules(scene: Scene, fixed: Array, samples: int = SAMPLES) -> Array:
    """(T, 51, 4) future at constant velocity -> (R, T, 51, 4) with near vehicles by the rules."""
    future = np.repeat(fixed[None], samples, 0)
    rows = _drivers(scene)
    if len(rows):
        future[:, rows] = _Traffic(scene, rows, fixed, samples).run()
    return future


def _drivers(scene: Scene) -> NDArray[np.intp]:
    """Vehicles near the car that move, have just moved, or stand in the middle of a lane."""
    now = scene.past[:, BEHIND]
    away = np.hypot(*(now[:, :2] - scene.ego[:2]).T)
    near = (scene.kind == Kind.VEHICLE) & (np.nan_to_num(away, nan=np.inf) < NEAR)
    moved = np.nanmax(np.nan_to_num(scene.past[..., V]), 1, initial=0.0) > 0.1
    return np.flatnonzero(near & moved & np.isfinite(now).all(1))


class _Traffic:
    """Vehicles of R samples, one step at a time."""

    def __init__(self, scene: Scene, rows: NDArray[np.intp], fixed: Array, samples: int) -> None:
        self.scene, self.rows, self.R = scene, rows, samples
        self.rng = generator("traffic", "rules", scene.name)
        now = np.concatenate([scene.past[rows, BEHIND], scene.ego[None, :4]])
        now[-1, :2] = ego_centre(scene.ego)
        self.size = np.concatenate([scene.size[rows], EGO_SIZE[None]])
        self.gap = self.leader = np.zeros(0)
        self._other(fixed)
        self._roads(now)
        self._draw(now)

    def _other(self, fixed: Array) -> None:
        """Set up all other tracks, which do not react."""
        scene = self.scene
        away = np.hypot(*(fixed[:, 0, :2] - scene.ego[:2]).T)
        rest = np.setdiff1d(np.flatnonzero(np.nan_to_num(away, nan=np.inf) < SEEN), self.rows)
        self.fixed, self.fixed_size = fixed[rest], scene.size[rest]
        self.people = scene.kind[rest] == Kind.PEDESTRIAN

    def _roads(self, now: Array) -> None:
        scene, ways = self.scene, list[Way]()
        past = np.concatenate([scene.past[self.rows], np.full((1, BEHIND + 1, 4), np.nan)])
        self.choices = list[list[int]]()
        for i, own in enumerate(lanes_of(scene.lanes, now)):
            own = _changing(scene, now[i], past[i], own)
            found = ways_of(scene.lanes, now[i], own) if i < len(self.rows) else [route_way(scene)]
            self.choices.append(list(range(len(ways), len(ways) + len(found))))
            ways += found
        self.ways = Ways.of(ways, scene.lanes)
        before = past[:, BEHIND - EVERY, V]
        self.accel = np.clip((now[:, V] - before) / (EVERY * DT), HARDEST, APART)
        self.accel[-1] = scene.ego[4]

    def _draw(self, now: Array) -> None:
        """Draw paths, styles and times; keep the one of DRAWS that best explains the present."""
        rng, shape = self.rng, (self.R * DRAWS, len(now))
        self.way = np.stack([rng.choice(own, shape[0]) for own in self.choices], 1)
        self.s, self.v = np.full(shape, float(BEFORE)), np.tile(now[:, V], (shape[0], 1))
        self.d = self.ways.offset[self.way]
        limit = self.ways.limit[self.way]  # an unknown limit is at least the present speed
        limit = np.where(np.isfinite(limit), limit, np.maximum(UNKNOWN, self.v))
        self.style = Style(
            speed=np.maximum(limit * rng.uniform(*PACES, shape), 0.9 * self.v),
            gap=rng.uniform(1.5, 2.5, shape),
            headway=rng.uniform(0.9, 1.8, shape),
            accel=rng.uniform(1.0, 2.0, shape),
            brake=rng.uniform(1.5, 3.0, shape),
            power=4.0,
        )
        self.jitter = rng.uniform(-JITTER, JITTER, shape)
        self.switch = np.repeat(rng.uniform(0, GREEN + CLEARING, self.R), DRAWS)
        self.granted = np.zeros(shape, bool)
        self._look(0)
        self._solve_pace(limit)
        apart = np.nan_to_num(self.accel - self._wanted())
        k = np.abs(apart).reshape(self.R, DRAWS, -1).argmin(1)  # (R, C)
        at = np.arange(self.R)[:, None] * DRAWS + k, np.arange(shape[1])
        for name in ("way", "s", "v", "d", "jitter"):
            setattr(self, name, getattr(self, name)[at])
        parts = {
            n: getattr(self.style, n)[at] for n in ("speed", "gap", "headway", "accel", "brake")
        }
        self.style, self.switch = replace(self.style, **parts), self.switch[::DRAWS]
        self.granted = np.zeros((self.R, shape[1]), bool)
        self._look(0)
        self.apart = np.clip(np.nan_to_num(self.accel - self._wanted()), -APART, APART)

    def _solve_pace(self, limit: Array) -> None:
        """The wanted speed that explains the present acceleration, if a driver may want it.

        (v / v_0)^p = 1 - (g* / g)² - a / a_max
        """
        accel, power = np.asarray(self.style.accel), self.style.power
        following = idm(replace(self.style, speed=1e9), self.v, self.gap, self.leader)
        share = (following - self.accel) / accel
        with np.errstate(invalid="ignore", divide="ignore"):
            solved = self.v / np.maximum(share, 1e-3) ** (1 / power)
        low, high = (pace * limit for pace in PACES)
        pace = np.clip(solved, low, np.maximum(high, self.v))
        known = np.isfinite(self.accel) & (self.v > 0.5) & (share > 1e-3)
        self.style = replace(self.style, speed=np.where(known, pace, self.style.speed))

    def run(self) -> Array:
        """(R, C - 1, 51, 4) states, without the ego car."""
        history = [self._poses()]
        for t in range(1, AHEAD + 1):
            if t % LOOK == 1:
                self._look(t - 1)
            a = self._wanted() + self.apart * np.exp(-DT * t / FADING)
            new = np.maximum(self.v + DT * np.maximum(a, HARDEST), 0.0)
            mean = (self.v + new) / 2
            self.s, self.gap, self.v = self.s + DT * mean, self.gap + DT * (self.leader - mean), new
            aside = ASIDE * DT * np.minimum(new / 5, 1.0)
            self.d = np.sign(self.d) * np.maximum(np.abs(self.d) - aside, 0.0)
            history.append(self._poses())
        return np.stack(history, 2)[:, :-1]

    def _wanted(self) -> Array:
        """(R, C) accelerations by the rules."""
        cap = self.ways.cap[self.way, np.clip(self.s, 0, POINTS - 1).astype(int)]
        style = replace(self.style, speed=np.minimum(self.style.speed, cap))
        return np.maximum(idm(style, self.v, self.gap, self.leader), HARDEST)

    def _poses(self) -> Array:
        """(R, C, 4) present poses and speeds."""
        i = np.clip(self.s.astype(int), 0, POINTS - 2)
        a, b = (self.ways.poses[self.way, i + k] for k in (0, 1))
        share = (self.s - i)[..., None]
        turn = wrap(b[..., H] - a[..., H])
        heading = a[..., H] + np.clip(share[..., 0], 0, 1) * turn
        aside = np.stack([-np.sin(heading), np.cos(heading)], -1) * self.d[..., None]
        xy = a[..., :2] + share * (b[..., :2] - a[..., :2]) + aside
        return np.concatenate([xy, heading[..., None], self.v[..., None]], -1)

    def _look(self, t: int) -> None:
        """Update what each vehicle has to follow or to stop for."""
        self._grant(t)
        poses = self._poses()
        gap, leader = self._leaders(poses, t)
        left = self.ways.stop[self.way] - self.s
        stop = np.where((left > 0) & ~self.granted, left - self.size[:, 0] / 2, FREE)
        nearer = stop < gap
        self.gap = np.maximum(np.where(nearer, stop, gap), 0.1)
        self.leader = np.where(nearer, 0.0, leader)

    def _leaders(self, poses: Array, t: int) -> tuple[Array, Array]:
        """(R, C) gaps and speeds of the nearest vehicle ahead, or of one that merges before."""
        R, C, M = *self.s.shape, len(self.fixed)
        fixed = np.nan_to_num(self.fixed[:, t], nan=1e6)
        speeds = np.concatenate([poses[..., V], np.broadcast_to(fixed[:, V], (R, M))], 1)
        sizes = np.concatenate([self.size, self.fixed_size])
        moving = _project(self.ways.poses[self.way], poses)
        still = (x[0][self.way] for x in _project(self.ways.poses[None], fixed[None]))
        along, offset, turn = (np.concatenate(x, 2) for x in zip(moving, still, strict=True))
        margin = np.where(np.arange(len(sizes)) < C, ROOM, -ROOM)
        wide = (self.size[:, None, 1] + sizes[None, :, 1]) / 2 + margin
        ahead = along - self.s[..., None]
        own = np.abs(offset - self.d[..., None]) < wide
        on_way = (np.abs(offset) < wide) | (own & (ahead < 20))
        people = np.concatenate([np.zeros(C, bool), self.people])
        coming = np.sign(offset) != np.sign(np.sin(turn))
        blocks = (np.abs(offset) < PEOPLE[0]) | (coming & (np.abs(offset) < PEOPLE[1]))
        on_way = np.where(people, blocks, on_way)
        room = (self.size[:, None, 0] + sizes[None, :, 0]) / 2 + PEOPLE[2] * people
        merge = self.ways.merge[self.way[:, :, None], self.way[:, None]] - self.s[..., None]
        other = merge.swapaxes(1, 2)
        with np.errstate(invalid="ignore"):
            zipper = (merge > 0) & (merge < ZIPPER) & (other > 0) & (other < merge)
            zipper &= ~on_way[..., :C]
            ahead[..., :C] = np.where(zipper, merge - other, ahead[..., :C])
        on_way[..., :C] |= zipper
        found = on_way & (ahead > 0) & (along < POINTS - 1)
        found[:, np.arange(C), np.arange(C)] = False
        gap = np.where(found, ahead - room, FREE)
        j = gap.argmin(2)
        gap = np.take_along_axis(gap, j[..., None], 2)[..., 0]
        turned = np.take_along_axis(turn, j[..., None], 2)[..., 0]
        speed = np.take_along_axis(speeds, j, 1) * np.cos(turned)
        return np.maximum(gap, 0.1), np.where(people[j], 0.0, np.maximum(speed, 0.0))

    def _grant(self, t: int) -> None:
        """Let vehicles enter a junction: first come, first served, if no path in use is crossed."""
        ways, v = self.ways, self.v
        left = ways.stop[self.way] - self.s
        inside = (left <= 0) & (self.s - self.size[:, 0] / 2 < ways.clear[self.way])
        can_stop = v**2 / (2 * CAN_STOP) < left - 2
        closed = self._closed(t) & can_stop & (left > 0)
        ahead = self.s - self.size[:, 0] / 2 < ways.clear[self.way] + 1
        self.granted = (self.granted & ahead & ~closed) | inside
        asking = ~self.granted & (left > 0) & (left < ASKING) & ~closed
        arrival = np.where(asking, left / np.maximum(v, 2.0) + self.jitter, np.inf)
        arrival = np.where(asking & ~can_stop, -1.0, arrival)
        order = arrival.argsort(1)
        each = np.arange(len(order))
        for i in order[:, : int(asking.sum(1).max(initial=0))].T:
            crossed = ways.conflict[self.way[each, i][:, None], self.way] & self.granted
            self.granted[each, i] |= asking[each, i] & ~crossed.any(1)

    def _closed(self, t: int) -> Mask:
        """(R, C) whether a red light closes the way. Lights change once, with all red between."""
        if not self.scene.red:
            return np.zeros(self.way.shape, bool)
        red = np.isin(self.ways.connector, self.scene.red)[self.way]
        since = t * DT - self.switch[:, None]
        return np.where(since < 0, red, np.where(since < CLEARING, True, ~red))


def _project(ways: Array, poses: Array) -> tuple[Array, Array, Array]:
    """(R, C, P, 3) ways, (R, M, 4) poses -> along, offset from and angle to each, (R, C, M)."""
    way = ways[:, :, ::2]
    x, y = (poses[:, None, :, None, i] - way[:, :, None, :, i] for i in (0, 1))
    i = (x * x + y * y).argmin(-1)
    near = np.take_along_axis(way, i[..., None], 2)
    h = near[..., H]
    dx, dy = (poses[:, None, :, k] - near[..., k] for k in (0, 1))
    along = 2 * i + dx * np.cos(h) + dy * np.sin(h)
    return along, dy * np.cos(h) - dx * np.sin(h), wrap(poses[:, None, :, H] - h)


def _changing(scene: Scene, now: Array, past: Array, own: int | None) -> int | None:
    """The adjacent lane to which a vehicle is changing, if any."""
    before = past[BEHIND - EVERY]
    if own is None or not scene.lanes[own].beside or not np.isfinite(before).all():
        return own
    _, (then, offset) = project(np.stack([before, now])[:, :2], scene.lanes[own].centre)
    drift = (offset - then) / (EVERY * DT)
    if abs(drift) < CHANGING or abs(offset) < CHANGING or drift * offset < 0:
        return own
    beside = {i: project(now[:2], scene.lanes[i].centre)[1] for i in scene.lanes[own].beside}
    there = [i for i, d in beside.items() if d * offset < 0]
    return min(there, key=lambda i: abs(beside[i]), default=own)
