"""Success rules of the tasks, modelled on RoboTwin's.

    grab roller        roller above 0.80, both grippers closed around it (< 0.6)
    handover block     block on the pad: 0.03 in x and y, 0.01 in z; right gripper open (> 0.8)
    bread to skillet   bread within 0.035 of the pan's middle in x and y; both above 0.76;
                       left gripper open (> 0.9), which RoboTwin does not require
    object to drawer   object within 0.05 of the drawer's middle, 0.007 to 0.12 above where it lay
                       on the table; left gripper open (> 0.8)

Each task measures numbers of a state that saturate where the rule holds, so that all states that
satisfy it have the same numbers. Cost is the largest difference from the goal's numbers, each in
units of its tolerance.
"""

from typing import TYPE_CHECKING

import numpy as np

from djepa.worlds.bimanual.scene import BLOCK, DRAWER, OBJECT, PAD, ROLLER, TABLE
from djepa.worlds.protocol import Floats

if TYPE_CHECKING:
    from djepa.worlds.bimanual.world import BimanualWorld

RULES = ("bimanual.v1",)
LIFTED, ABOVE = 0.80, 0.76  # m
CLOSED, RELEASED, OPEN = 0.6, 0.9, 0.8  # openings; closed around a roller of 3.6 of 7 cm is 0.51
FINE = 0.001  # tolerance where a rule is a plain inequality
HEIGHTS = (0.007, 0.12)
UP = np.array([0.0, 0.0, 1.0])


def task_cost(world: "BimanualWorld", goal: Floats, states: Floats) -> Floats:
    """(...) largest difference from the goal, in units of the tolerances."""
    wanted, tolerance = measure(world, goal)
    found, _ = measure(world, states)
    return np.asarray((np.abs(found - wanted) / tolerance).max(-1))


def measure(world: "BimanualWorld", states: Floats) -> tuple[Floats, Floats]:
    """(..., F) numbers of states, and their (F,) tolerances."""
    rule = {
        "grab roller": _roller,
        "handover block": _handover,
        "bread to skillet": _skillet,
        "object to drawer": _drawer,
    }[world.variant]
    numbers, tolerances = rule(world, states)
    return np.stack(np.broadcast_arrays(*numbers), -1), np.array(tolerances)


Found = tuple[list[Floats], list[float]]


def _above(height: Floats, least: float) -> Floats:
    """The height, saturated one tolerance above the least one."""
    return np.minimum(height, least + FINE)


def _roller(world: "BimanualWorld", states: Floats) -> Found:
    height = world.place(states, "roller")[..., 2]
    closed = np.maximum(world.opening(states), CLOSED)
    return [_above(height, LIFTED), closed[..., 0], closed[..., 1]], [FINE, FINE, FINE]


def _handover(world: "BimanualWorld", states: Floats) -> Found:
    block, pad = world.place(states, "block"), world.place(states, "pad")
    gap = block[..., :3] - pad[..., :3] - (0, 0, BLOCK[2] + PAD[2])
    opened = np.minimum(world.opening(states)[..., 1], OPEN)
    return [*np.moveaxis(gap, -1, 0), opened], [0.03, 0.03, 0.01, FINE]


def _skillet(world: "BimanualWorld", states: Floats) -> Found:
    bread, pan = world.place(states, "bread"), world.place(states, "skillet")
    gap = bread[..., :2] - pan[..., :2]
    heights = [_above(x[..., 2], ABOVE) for x in (bread, pan)]
    opened = np.minimum(world.opening(states)[..., 0], RELEASED)
    return [*np.moveaxis(gap, -1, 0), *heights, opened], [0.035, 0.035, FINE, FINE, FINE]


def _drawer(world: "BimanualWorld", states: Floats) -> Found:
    gap = world.place(states, "object")[..., :3] - drawer_place(world, states)
    gain = world.place(states, "object")[..., 2] - TABLE - OBJECT[2]
    outside = np.maximum(np.maximum(HEIGHTS[0] - gain, gain - HEIGHTS[1]), 0)
    opened = np.minimum(world.opening(states)[..., 0], OPEN)
    return [gap[..., 0], gap[..., 1], outside, opened], [0.05, 0.05, FINE, FINE]


def drawer_place(world: "BimanualWorld", states: Floats) -> Floats:
    """(..., 3) the middle of the drawer; the cabinet hardly turns."""
    slide = world.place(states, "drawer")[..., 0]
    where = world.place(states, "cabinet")[..., :3].copy()
    where[..., 1] -= slide
    return where


def goal_state(world: "BimanualWorld", start: Floats) -> Floats:
    """The start with every object placed as the rule requires; not a physically stable state."""
    goal = start.copy()
    fingers = np.arange(16).reshape(2, 8)[:, 6:]

    def put(name: str, where: Floats) -> None:
        at = int(world._model.joint(name).qposadr[0])
        goal[at : at + len(where)] = where

    if world.variant == "grab roller":
        put("roller", np.append(world.place(start, "roller")[:2], LIFTED + 0.05))
        goal[fingers.ravel()] = ROLLER[0]
    if world.variant == "handover block":
        put("block", world.place(start, "pad")[:3] + (BLOCK[2] + PAD[2]) * UP)
    if world.variant == "bread to skillet":
        raised = world.place(start, "skillet")[:3] + 0.05 * UP
        put("skillet", raised)
        put("bread", raised + 0.02 * UP)
    if world.variant == "object to drawer":
        put("drawer", np.array([0.12]))
        put("object", drawer_place(world, goal) - (DRAWER[2] - OBJECT[2] - 0.003) * UP)
    return goal
