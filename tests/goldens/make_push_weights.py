"""What the shipped push models make of four starts: latents and native costs, before any choice.

The starts are stored with the results, so physics and draws may change; frames are drawn anew.

    python tests/goldens/make_push_weights.py          # writes push_weights.safetensors beside it

Legend: N starts, K candidates, D latent, of which SHOWN numbers are kept.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file

from djepa.align.presets import FOUR
from djepa.bank.collect import collect
from djepa.models.predict import encode_states
from djepa.models.weights import load_geometry
from djepa.rollout.engine import LocalEngine
from djepa.rollout.execute import CollectConfig
from djepa.tasks.task import Scene

FILE = Path(__file__).with_name("push_weights.safetensors")
GIVEN = ("context", "goal", "history", "actions")
EVERY, SHOWN = 8, 128  # of candidates every eighth
Arrays = dict[str, np.ndarray]


def starts() -> Arrays:
    """Four starts and eight candidates of each."""
    with tempfile.TemporaryDirectory() as folder:
        config = CollectConfig(split="goldens", starts=4, block=4)
        d = collect(Path(folder) / "bank", config, LocalEngine(1)).decisions
        found = {name: np.array(getattr(d, name)) for name in GIVEN}
    found["actions"] = np.ascontiguousarray(found["actions"][:, ::EVERY])
    return found


@torch.inference_mode()
def results(geometry: str, given: Arrays) -> Arrays:
    """Name -> latents of the goal (N, SHOWN) and of last futures (N, K, SHOWN), costs (N, K)."""
    model, scene = load_geometry(geometry), Scene("push", "T")
    states = {name: torch.from_numpy(given[name]).double() for name in GIVEN[:2]}
    taken = [torch.from_numpy(given[name]).float() for name in GIVEN[2:]]
    context, goal = (encode_states(model, scene, states[name]) for name in GIVEN[:2])
    futures = model.rollout(context, *map(scene.controls, taken))
    cost = model.native_cost(futures, goal)
    found = {"goal": goal, "last": futures[:, :, -1]}
    step = {name: max(1, z.shape[-1] // SHOWN) for name, z in found.items()}
    kept = {name: z[..., :: step[name]][..., :SHOWN] for name, z in found.items()} | {"cost": cost}
    return {
        f"{geometry}.{name}": np.ascontiguousarray(x.float().numpy()) for name, x in kept.items()
    }


if __name__ == "__main__":
    given = starts()
    stored = {f"given.{name}": of for name, of in given.items()}
    for name in FOUR:
        stored |= results(name, given)
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    save_file(stored, out)
    print(f"{out}: {out.stat().st_size:,} bytes")
