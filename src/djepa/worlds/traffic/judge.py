"""Judgement: PDMS of NAVSIM v1.

    PDMS = NC · DAC · (5 EP + 5 TTC + 2 C + 0 DDC) / 12             higher is better

NC no collision at fault {0, ½, 1}, DAC on the drivable area {0, 1}, TTC time to collision {0, 1},
EP progress along the route [0, 1], C comfort {0, 1}, DDC driving direction {0, ½, 1}.

Legend: K candidates, 41 executed states each, T tracks.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from djepa.worlds.traffic.comfort import comfortable
from djepa.worlds.traffic.contacts import Where, at_two_hertz, collisions
from djepa.worlds.traffic.execute import execute
from djepa.worlds.traffic.plane import Array, project
from djepa.worlds.traffic.scene import Scene, ego_centre, ego_corners

RULE = "pdms.v1.2"  # of NAVSIM v1; the last number is the version of our implementation
LEAST_PROGRESS = 5.0  # m; below it progress counts in full
SECOND = 10  # steps
WRONG_WAY = (2.0, 6.0)  # m in a second outside the route's lanes: half, none


@dataclass(frozen=True)
class Judgement:
    """The parts of PDMS, (K,) each, in [0, 1]."""

    nc: Array
    dac: Array
    ttc: Array
    ep: Array
    comfort: Array
    ddc: Array
    progress: Array  # m along the route; 0 where nc · dac is

    @property
    def pdms(self) -> Array:
        """(K,) in [0, 1]."""
        return pdms(self.nc, self.dac, self.ttc, self.ep, self.comfort)


def pdms(nc: Array, dac: Array, ttc: Array, ep: Array, comfort: Array) -> Array:
    """NC · DAC · (5 EP + 5 TTC + 2 C) / 12."""
    return nc * dac * (5 * ep + 5 * ttc + 2 * comfort) / 12


class Judge:
    """Executes and judges candidates of one scene, each as if it were alone."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.traffic = at_two_hertz(scene.future)  # (T, 51, 4)

    def __call__(self, candidates: Array) -> Judgement:
        """(K, 8, 3) poses in the frame of the ego car -> their judgement."""
        return self.of_states(execute(self.scene.ego, candidates))

    def of_states(self, states: Array, where: Where | None = None) -> Judgement:
        """(K, 41, 6) executed states -> their judgement; `where` is computed if not given."""
        return judge_states(self.scene, self.traffic, states, self.reference, where)

    @cached_property
    def reference(self) -> float:
        """Progress of a rule-based driver in m: the scale of EP."""
        from djepa.worlds.traffic.reference import reference_progress

        return reference_progress(self.scene, self.traffic)


def judge_states(
    scene: Scene, traffic: Array, states: Array, reference: float, where: Where | None = None
) -> Judgement:
    """(T, 51, 4) traffic, (K, 41, 6) executed states, m of the reference -> judgement."""
    where = where or locate(scene, states)
    nc, ttc = collisions(scene, traffic, states, where)
    dac = (~where.off_road.any(1)).astype(float)
    progress = nc * dac * route_progress(scene, states)
    return Judgement(
        nc,
        dac,
        ttc,
        relative_progress(progress, np.maximum(progress, reference), nc * dac),
        comfortable(states).astype(float),
        direction(states, where),
        progress,
    )


def relative_progress(progress: Array, most: Array, alive: Array) -> Array:
    """EP: progress as a share of the larger one; 1 if neither made 5 m; 0 if nc · dac is 0."""
    share = np.where(most > LEAST_PROGRESS, progress / np.maximum(most, LEAST_PROGRESS), 1.0)
    return np.where(alive > 0, share, 0.0)


def route_progress(scene: Scene, states: Array) -> Array:
    """(K,) metres of the box's centre along the route's centre line, never negative."""
    along, _ = project(ego_centre(states[:, [0, -1]]), scene.path)
    return np.maximum(along[:, 1] - along[:, 0], 0.0)


def locate(scene: Scene, states: Array) -> Where:
    """The lanes and areas under the corners, centre and rear axle of the ego car."""
    points = np.concatenate(
        [ego_corners(states), ego_centre(states)[..., None, :], states[..., None, :2]], -2
    )
    under = scene.lane_areas.under(points)  # (K, 41, 6, L)
    used = np.flatnonzero(under.any((0, 1, 2)))  # few of many lanes
    lanes = under[..., used]
    touched = lanes[..., :4, :]
    several = (touched.any(-2).sum(-1) > 1) & ~touched.all(-2).any(-1)
    # A lane is drivable; other areas are tested only outside lanes.
    on_road = np.asarray(touched.any(-1))
    on_road[~on_road] = scene.drivable_areas.under(points[..., :4, :][~on_road]).any(-1)
    route = np.isin(used, scene.route)
    crossing = np.array([scene.lanes[i].intersection for i in used], bool)
    return Where(
        several,
        ~np.asarray(on_road.all(-1)),
        ~np.asarray(lanes[..., 4, route].any(-1)),
        np.asarray(lanes[..., 5, crossing].any(-1)),
    )


def direction(states: Array, where: Where) -> Array:
    """DDC, from the metres outside the route's lanes in any second of the motion."""
    moved = np.hypot(*np.moveaxis(np.diff(ego_centre(states), axis=1), -1, 0))
    wrong = np.concatenate([np.zeros((len(states), 1)), moved], 1) * where.off_route
    sums = np.cumsum(np.pad(wrong, ((0, 0), (SECOND, 0))), 1)
    most = (sums[:, SECOND:] - sums[:, :-SECOND]).max(1)
    return np.where(most < WRONG_WAY[0], 1.0, np.where(most < WRONG_WAY[1], 0.5, 0.0))
