"""The reference driver for progress: the proposals and the choice of PDM-Closed.

Fifteen drives along the route: three offsets from its centre line times five speeds, each by the
intelligent driver model, behind traffic that is forecast at constant velocity. They are executed
and judged in that forecast; the progress of the best one in the recorded traffic is the reference.

Legend: R drives, T tracks.
"""

import numpy as np

from djepa.worlds.traffic.execute import follow
from djepa.worlds.traffic.idm import FREE, Style, idm
from djepa.worlds.traffic.judge import judge_states, locate, pdms, relative_progress
from djepa.worlds.traffic.plane import Array, along_line, project, to_frame, unit
from djepa.worlds.traffic.scene import DT, EVERY, FRONT, STEPS, WIDTH, H, Scene, V

OFFSETS, FRACTIONS = (0.0, -1.0, 1.0), (0.2, 0.4, 0.6, 0.8, 1.0)
FALLBACK = 15.0  # m/s, where the route has no speed limit
RANGE = 100.0  # m, range of the search for a leader


def reference_progress(scene: Scene, traffic: Array) -> float:
    """Metres of the chosen drive; 0 if it collides or leaves the road in the recorded traffic."""
    return progress_of(scene, traffic, reference_drive(scene, traffic))


def reference_drive(scene: Scene, traffic: Array) -> Array:
    """(1, 41, 6) states of the chosen drive, which depends on the present traffic alone."""
    states = follow(scene.ego, drives(scene))
    where = locate(scene, states)
    seen = judge_states(scene, constant_velocity(traffic), states, 0.0, where)
    most = np.full(len(states), seen.progress.max())
    ep = relative_progress(seen.progress, most, seen.nc * seen.dac)
    best = int(pdms(seen.nc, seen.dac, seen.ttc, ep, seen.comfort).argmax())
    return states[best : best + 1]


def progress_of(scene: Scene, traffic: Array, states: Array) -> float:
    """Progress of one drive in the given traffic, in m."""
    return float(judge_states(scene, traffic, states, 0.0).progress[0])


def constant_velocity(traffic: Array) -> Array:
    """(T, 51, 4): every present track continues at constant velocity."""
    now, steps = traffic[:, :1], np.arange(traffic.shape[1])[None, :, None]
    forecast = np.repeat(now, traffic.shape[1], 1)
    forecast[..., :2] += unit(now[..., H]) * now[..., V, None] * DT * steps
    return forecast


def drives(scene: Scene) -> Array:
    """(15, 41, 3) poses of the rear axle, in the frame of the ego car."""
    s0, _ = project(scene.ego[:2], scene.path)
    limit = scene.lanes[scene.route[0]].limit
    target = (limit if np.isfinite(limit) else FALLBACK) * np.tile(FRACTIONS, len(OFFSETS))
    side = np.repeat(OFFSETS, len(FRACTIONS))
    s, v = np.full(15, float(s0)), np.full(15, scene.ego[V])
    rear, front, speed = _occupied(scene, side)
    style, travelled = Style(speed=target), [s]
    for _ in range(STEPS):
        t = len(travelled) - 1
        gap, leader = _leader(s, rear[t // EVERY], front[t // EVERY], speed)
        v = np.maximum(v + np.maximum(idm(style, v, gap, leader), -8.0) * DT, 0.0)
        s = s + v * DT
        travelled.append(s)
    along = np.stack(travelled, 1)
    return to_frame(scene.ego[:3], along_line(scene.path, along, side[:, None]))


def _occupied(scene: Scene, side: Array) -> tuple[Array, Array, Array]:
    """Where forecast traffic blocks the path of each drive.

    (9, R, T) distances of its near and far ends along the path, every half second, infinite where
    it does not block, and (T,) speeds. A red light is a standing obstacle at the start of the lane
    it closes.
    """
    here = np.isfinite(scene.future[:, 0]).all(1)
    moved = constant_velocity(scene.future[here])[:, : STEPS + 1 : EVERY]  # (T, 9, 4)
    along, offset = project(moved[..., :2], scene.path)
    turn = moved[..., H] - along_line(scene.path, along)[..., 2]
    long, wide = scene.size[here].T[..., None] / 2
    c, s = np.abs(np.cos(turn)), np.abs(np.sin(turn))
    reach, spread = (long * c + wide * s)[..., None], (long * s + wide * c)[..., None]
    in_way = np.abs(offset[..., None] - side) < spread + WIDTH / 2  # (T, 9, R)
    near, far = along[..., None] - reach, along[..., None] + reach
    rear = np.where(in_way, near, np.inf).transpose(1, 2, 0)
    front = np.where(in_way, far, np.inf).transpose(1, 2, 0)
    speed = moved[:, 0, V]
    for i in scene.red:
        if i in scene.route:
            start, off = project(scene.lanes[i].centre[0], scene.path)
            at = np.full((*rear.shape[:2], 1), start if abs(off) < WIDTH / 2 else np.inf)
            rear, front = np.concatenate([rear, at], 2), np.concatenate([front, at], 2)
            speed = np.append(speed, 0.0)
    return rear, front, speed


def _leader(s: Array, rear: Array, front: Array, speed: Array) -> tuple[Array, Array]:
    """(R,) rear axles along the path, (R, T) ends of obstacles -> gap and speed of the nearest."""
    if not len(speed):
        return np.full(len(s), FREE), np.zeros(len(s))
    bumper = s[:, None] + FRONT
    ahead = (front > bumper) & (rear < bumper + RANGE)
    gap = np.where(ahead, np.maximum(rear - bumper, 0.0), FREE)
    nearest = gap.argmin(1)
    found = gap[np.arange(len(s)), nearest]
    return found, np.where(found < FREE, speed[nearest], 0.0)
