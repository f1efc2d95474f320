"""Evidence of driving candidates: everything known before execution.

Costs are 1 - PDMS by the native score and in each forecast, and three parts of PDMS in the forecast
by the rules of the road. Latents are the queries of the native model, which give the pool density,
and one vector that describes a candidate.

Legend: N scenes, K candidates.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.bank.driving import Known, TrafficBank
from djepa.evidence.evidence import Evidence
from djepa.models.predictions import read_predictions
from djepa.models.traffic import PARTS as LOGITS
from djepa.models.traffic_predict import NAME
from djepa.rollout.driving import PARTS
from djepa.worlds.traffic.forecast import FORECASTS
from djepa.worlds.traffic.scene import V

Array = npt.NDArray[Any]
RULES = "rules"
EVERY = (NAME, *FORECASTS, RULES)
RISKS = {"collision": "nc", "near": "ttc", "progress": "ep"}  # parts of PDMS, forecast by rules
FLOOR = 0.2  # added to costs, so that ratios of two small costs do not decide
SHARES = PARTS.index("progress")  # parts that lie between 0 and 1 come first
LOGIT, FAR, FAST = 5.0, 30.0, 10.0  # scales of logits, poses (m) and motion (m/s, m/s²)


def traffic_evidence(bank: TrafficBank, look: str) -> Evidence:
    """Native score and forecast as costs; queries as latents, for the pool density."""
    native, known = read_predictions(bank, NAME), bank.known
    assert native.futures is not None  # the study stores them
    forecasts = {name: getattr(known, name)[..., PARTS.index("pdms")] for name in EVERY[1:]}
    forecasts |= {name: known.rules[..., PARTS.index(part)] for name, part in RISKS.items()}
    found = Evidence.from_arrays(
        start_ids=known.names,
        candidate_ids=known.ids,
        costs={NAME: native.cost + FLOOR, **{name: 1 + FLOOR - x for name, x in forecasts.items()}},
        latents={NAME: native.futures, RULES: _described(known, native.parts, native.cost)},
        goals={NAME: native.goal},
    )
    return replace(found, weights={NAME: native.weights})


def _described(known: Known, logits: Mapping[str, Array], cost: Array) -> Array:
    """(N, K, 55) float32, scaled to order 1: all that is known of a candidate before execution.

    Six logits and the score of the native model, parts of PDMS in every forecast, poses, and the
    present motion of the car.
    """
    N, K = known.ids.shape
    native = [logits[str(i)][..., None] / LOGIT for i in range(LOGITS)]
    judged = [getattr(known, name)[..., :SHARES] for name in EVERY[1:]]
    poses = known.poses.reshape(N, K, -1) / FAR
    moving = np.broadcast_to(known.ego[:, None, V:] / FAST, (N, K, known.ego.shape[1] - V))
    found = np.concatenate([*native, 1 - cost[..., None], *judged, poses, moving], -1)
    return found.astype(np.float32)
