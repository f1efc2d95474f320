"""How severe the looks of `looks.v2` are: chosen on development starts, by a rule.

The aim of a condition is the native success that the paper reports under it, or that under clean
frames here if this is lower. The interval of severities from 0 to 1 is halved towards the aim
`HALVINGS` times, and of the middles tried the one whose success is nearest the aim is taken; of two
equally near ones the larger.

    python -m tools.severity runs/severity     # resumes; about 12 minutes of one core

Legend: N starts, K candidates.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.evaluate.paper import select
from djepa.files import to_json, write_atomically
from djepa.models.predict import predict
from djepa.models.weights import load_geometry
from djepa.rollout.engine import LocalEngine
from djepa.rollout.execute import CollectConfig
from djepa.tasks.task import Scene
from djepa.worlds.conditions import draw_condition
from djepa.worlds.looks import CLEAN, CONDITIONS
from djepa.worlds.shapes import get_shape

GEOMETRY, SPLIT, STARTS, HALVINGS = "shapes-jepawm", "dev-looks", 128, 4
PAPER = {key.case: of.value for key, of in select("appearance").items() if key.method == "native"}
Success = Callable[[float], float]  # severity -> native success, %


@dataclass(frozen=True)
class Severe(Scene):
    """The push world under a condition at any severity."""

    severity: float = 1.0

    def observe(self, states: Tensor, image: int) -> tuple[Tensor, Tensor]:
        """As a `Scene` does; what is felt does not depend on the look."""
        felt = super().observe(states, image)[1]
        flat = states.reshape(-1, states.shape[-1])
        frames = draw_condition(get_shape(self.shape), flat, image, self.look, self.severity)
        return frames.view(*states.shape[:-1], image, image, 3), felt


def choose(success: Success, aim: float) -> float:
    """The severity that the rule takes."""
    tried, low, high = dict[float, float](), 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        tried[middle] = success(middle)
        low, high = (middle, high) if tried[middle] >= aim else (low, middle)
    return min(tried, key=lambda severity: (abs(tried[severity] - aim), -severity))


@torch.inference_mode()
def native_success(bank: Bank, condition: str, severity: float) -> float:
    """% of starts on which the candidate of lowest native cost succeeds; ties to the smaller ID."""
    geometry, d = load_geometry(GEOMETRY), bank.decisions
    scene, chosen = Severe("push", bank.config.shape, condition, severity), list[int]()
    for first in range(0, len(bank), 16):
        cost = predict(geometry, scene, d, slice(first, first + 16)).cost.numpy()
        ids = d.candidate_ids[first : first + 16]
        chosen += [int(np.lexsort(row)[0]) for row in zip(ids, cost, strict=True)]
    return 100 * float(bank.outcomes.success[np.arange(len(bank)), chosen].mean())


def main(out: Path) -> None:
    """Try severities; every result is on disk at once, so that another run goes on from there."""
    config = CollectConfig(profile="visual-shape", split=SPLIT, starts=STARTS)
    bank, file = collect(out / "bank", config, LocalEngine()), out / "tried.json"
    tried: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}

    def success(condition: str, severity: float) -> float:
        if (key := f"{condition} {severity:g}") not in tried:
            tried[key] = native_success(bank, condition, severity)
            write_atomically(file, to_json(tried).encode())
            print(f"{key}: {tried[key]:.1f} %", flush=True)
        return tried[key]

    clean = success(CLEAN, 1.0)
    for condition in CONDITIONS[1:]:
        aim = min(PAPER[condition], clean)
        severity = choose(lambda s, of=condition: success(of, s), aim)  # type: ignore[misc]
        found = success(condition, severity)
        print(f"{condition}: severity {severity:g}, {found:.1f} % (aim {aim:.1f})", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/severity"))
