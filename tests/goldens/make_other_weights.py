"""What the shipped models of other worlds and shapes make of two starts, before any choice.

The starts are stored with the results, so physics and draws may change; frames are drawn anew.

    python tests/goldens/make_other_weights.py         # writes other_weights.safetensors beside it

Legend: N starts, K candidates, D latent, of which SHOWN numbers are kept.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file

from djepa.bank.collect import collect
from djepa.models.predict import encode_states
from djepa.models.weights import load_geometry
from djepa.rollout.engine import LocalEngine
from djepa.rollout.execute import CollectConfig
from djepa.tasks.task import Scene, get_task

FILE = Path(__file__).with_name("other_weights.safetensors")
GIVEN = ("context", "goal", "history", "actions")
KEPT, SHOWN = 4, 96  # candidates, numbers of a latent
ARM, GRAINS, CUBE = (
    Scene("reacher", "arm"),
    Scene("granular", "grains-100"),
    Scene("cube", "single"),
)
SCENES = {  # what each was trained on
    "reacher-lewm": ARM,
    "reacher-tdjepa": ARM,
    "reacher-jepawm": ARM,
    "granular-dinowm": Scene("granular", "grains-100"),
    "cube-lewm": CUBE,
    "cube-tdjepa": CUBE,
    "shapes-jepawm": Scene("push", "L", "clean"),
}
Arrays = dict[str, np.ndarray]


def starts(scene: Scene) -> Arrays:
    """Two starts of a world and four candidates of each."""
    decoys = "decoy" in get_task(scene.world).profiles
    pool = {"profile": "decoy", "candidates": 16, "centres": 2} if decoys else {}
    with tempfile.TemporaryDirectory() as folder:
        config = CollectConfig(scene.world, scene.shape, split="goldens", starts=2, block=2, **pool)
        d = collect(Path(folder) / "bank", config, LocalEngine(1)).decisions
        found = {name: np.array(getattr(d, name)) for name in GIVEN}
    every = found["actions"].shape[1] // KEPT
    found["actions"] = np.ascontiguousarray(found["actions"][:, ::every][:, :KEPT])
    return found


@torch.inference_mode()
def results(name: str, given: Arrays) -> Arrays:
    """Name -> latents of the goal (N, SHOWN) and of last futures (N, K, SHOWN), costs (N, K)."""
    model, scene = load_geometry(name), SCENES[name]
    states = {kind: torch.from_numpy(given[kind]).double() for kind in GIVEN[:2]}
    taken = [torch.from_numpy(given[kind]).float() for kind in GIVEN[2:]]
    context, goal = (encode_states(model, scene, states[kind]) for kind in GIVEN[:2])
    futures = model.rollout(context, *map(scene.controls, taken))
    cost = model.native_cost(futures, goal)
    found = {"goal": goal, "last": futures[:, :, -1]}
    step = {kind: max(1, z.shape[-1] // SHOWN) for kind, z in found.items()}
    kept = {kind: z[..., :: step[kind]][..., :SHOWN] for kind, z in found.items()} | {"cost": cost}
    return {f"{name}.{kind}": np.ascontiguousarray(x.float().numpy()) for kind, x in kept.items()}


if __name__ == "__main__":
    stored = Arrays()
    for scene in dict.fromkeys(SCENES.values()):
        given = starts(scene)
        stored |= {f"given.{scene.world}.{kind}": of for kind, of in given.items()}
        for name in (name for name, of in SCENES.items() if of == scene):
            stored |= results(name, given)
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    save_file(stored, out)
    print(f"{out}: {out.stat().st_size:,} bytes")
