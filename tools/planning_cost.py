"""Which part of TD-JEPA's planning cost chooses, by the stored futures of a bank.

    djepa collect reacher --starts 512 --split main-reacher-fit --out runs/bank
    djepa predict runs/bank --geometry reacher-tdjepa
    python -m tools.planning_cost runs/bank docs/results/reacher-cost.json

Legend: N starts, K candidates, B blocks, D latent.
"""

import sys
from itertools import product
from pathlib import Path
from typing import Any

import torch

from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.evaluate.intervals import rate_of
from djepa.evidence.ranks import best
from djepa.files import to_json, write_atomically
from djepa.models.predictions import read_predictions
from djepa.models.tdjepa import TDJEPA, PlanningCost
from djepa.models.weights import load_geometry

WEIGHTS, PART = "reacher-tdjepa", 64  # starts at a time
TERMINAL = (1.0, 0.3)  # weight of the last block's distance; the rest is the mean of all blocks


def measure(bank: Bank, weights: str = WEIGHTS) -> list[dict[str, Any]]:
    """Success of the native choice by either distance, at the end alone and over the way."""
    model, stored = load_geometry(weights), read_predictions(bank, "tdjepa")
    if not isinstance(model, TDJEPA) or stored.futures is None:
        raise DjepaError(f"Predict {bank.path} with {weights} first, futures stored.")
    futures = torch.from_numpy(stored.futures).split(PART)
    goal, success = torch.from_numpy(stored.goal).float(), torch.from_numpy(bank.outcomes.success)
    ids, rows = torch.from_numpy(bank.decisions.candidate_ids.copy()), []
    for blend, terminal in product((0.0, 1.0), TERMINAL):
        model.planned_by(PlanningCost(blend, terminal, model.planning.context))
        ends = zip(futures, goal.split(PART), strict=True)
        cost = torch.cat([model.native_cost(*part) for part in ends])
        hits = success.gather(1, best(cost, ids)[:, None])[:, 0]
        rate = rate_of(hits.numpy())
        distance = "latent" if blend else "learned"
        rows.append({"distance": distance, "terminal": terminal, "hits": rate.hits, "of": rate.of})
    return rows


@torch.inference_mode()
def main(bank: str, out: str) -> None:
    """Measure and store."""
    rows = measure(Bank(bank))
    write_atomically(Path(out), to_json({"bank": Bank(bank).hash, "rows": rows}).encode())
    print(to_json(rows))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: python -m tools.planning_cost BANK OUT\n{__doc__}")
    try:
        main(*sys.argv[1:])
    except DjepaError as error:
        sys.exit(f"error: {error}")
