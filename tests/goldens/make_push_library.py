"""Record trajectories of stable-worldmodel's own PushT, and compare ours with them bit for bit.

Not a test: it needs an environment with stable-worldmodel 0.1.1 (and pygame, opencv, shapely, the
pinned pymunk), which the project does not depend on.

    python tests/goldens/make_push_library.py 1000 tests/goldens/push_library.safetensors
"""

import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from stable_worldmodel.envs.pusht.env import PushT

from djepa.worlds.push import PushWorld
from djepa.worlds.shapes import SHAPES

NAMES = {"small-T": "small_tee"}  # theirs, where it differs
KEPT = {"T": 240}  # trajectories kept in the file; 24 of the others


def library(shape: str) -> PushT:
    """Their environment with this block, bodies entering the space where they do by default."""
    env = PushT()
    env.reset(seed=0, options={"variation": []})
    number = env.shapes.index(NAMES.get(shape, shape))
    env.variation_space["block"]["shape"]._value = np.int64(number)
    return env


def rollout(env: PushT, start: np.ndarray, controls: np.ndarray) -> np.ndarray:
    """Ten numbers set on a fresh space, then (H, 2) controls: (H, 10) states."""
    env._setup()
    s = start.tolist()
    env.agent.velocity, env.agent.position = (s[5], s[6]), (s[0], s[1])
    env.block.angle, env.block.position = s[4], (s[2], s[3])
    env.block.velocity, env.block.angular_velocity = (s[7], s[8]), s[9]
    states = []
    for control in controls:
        env.step(control)
        a, b = env.agent, env.block
        states.append(
            (*a.position, *b.position, b.angle, *a.velocity, *b.velocity, b.angular_velocity)
        )
    return np.array(states)


def draw(rng: np.random.Generator, moving: bool) -> tuple[np.ndarray, np.ndarray]:
    """A start and 25 controls; every other one aims at the block and begins in motion."""
    start = np.concatenate(
        [
            rng.uniform(60, 450, 2),
            rng.uniform(120, 390, 2),
            rng.uniform(-7, 7, 1),
            rng.normal(0, 60, 2),
            rng.normal(0, 40, 2) * moving,
            rng.normal(0, 1, 1) * moving,
        ]
    )
    controls = rng.uniform(-1, 1, (25, 2))
    if moving:
        aimed = rng.normal(0, 0.3, (25, 2)) + (start[2:4] - start[:2]) / 300
        controls = np.clip(aimed, -1, 1)
    return start, controls


def main(count: int, out: Path) -> None:
    """Compare `count` rollouts per shape; keep some."""
    kept = {}
    for shape in SHAPES:
        env, world, rng = library(shape), PushWorld(shape), np.random.default_rng(1)
        starts, sequences, theirs, equal = [], [], [], 0
        for k in range(count):
            start, controls = draw(rng, bool(k % 2))
            states = rollout(env, start, controls)
            equal += np.array_equal(world.execute(start, controls[None])[0, 1:], states)
            starts.append(start)
            sequences.append(controls)
            theirs.append(states)
        print(f"{shape}: {equal} of {count} rollouts equal to the last bit")
        first = slice(KEPT.get(shape, 24))
        kept[f"{shape}.start"] = np.array(starts[first])
        kept[f"{shape}.controls"] = np.array(sequences[first])
        kept[f"{shape}.states"] = np.array(theirs[first])
    save_file(kept, out)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
