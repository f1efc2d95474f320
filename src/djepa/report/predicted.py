"""Predictions of a geometry for the pool of one start, as numbers to draw.

Legend: K candidates, B blocks of five controls, D latent, E executed frames.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.models.predict import encode_states, predict
from djepa.models.protocol import Geometry

Array = npt.NDArray[Any]
SHORTLIST, ROWS = 8, 4


@dataclass(frozen=True, eq=False)
class Predicted:
    """One geometry's predictions for one pool. Frame k * B + b is block b of candidate k.

    For candidates that were not executed, `realised` and values from it are meaningless.
    """

    title: str
    futures: Tensor  # (K, B, D) predicted
    realised: Tensor  # (K, B, D) encoded from the executed frames
    cost: Array  # (K,) native cost of the prediction
    realised_cost: Array  # (K,) native cost of the executed latents
    ranking: Array  # (K,) positions by native cost, ties to the smaller ID
    executed: Array  # (E,) numbers of executed frames, by candidate ID, then block
    drift: Array  # (K, B) distance of predicted and executed latent, over the spread of the latents

    def nearest(self, k: int) -> Array:
        """(B,) the executed frame whose latent is nearest to each prediction.

        Candidates that share controls share frames: ties go to the candidate's own, else to the
        smaller ID.
        """
        frames = self.realised.flatten(0, 1)[torch.from_numpy(self.executed)]
        # The faster way by matrix products is inaccurate for nearly equal frames.
        exact = "donot_use_mm_for_euclid_dist"
        far = torch.cdist(self.futures[k], frames, compute_mode=exact).numpy()  # (B, E)
        found, own = self.executed[far.argmin(1)], self.own(k)
        if not len(own):
            return np.asarray(found)
        columns = np.flatnonzero(np.isin(self.executed, own))
        return np.where(far[np.arange(len(own)), columns] <= far.min(1), own, found)

    def own(self, k: int) -> Array:
        """(B,) executed frames of the candidate; none if it was not executed."""
        return np.asarray(self.executed[self.executed // self.drift.shape[1] == k])


@torch.inference_mode()
def predict_pool(
    bank: Bank, start_id: int, title: str, geometry: Geometry, device: str = "cpu"
) -> Predicted:
    """Predict the start's pool, and encode every executed state."""
    row, scene = bank.row(start_id), bank.scene()
    ids, ran = bank.decisions.candidate_ids[row], bank.outcomes.observed[row]
    if not ran.any():
        raise DjepaError(
            f"No candidate of start {start_id} was executed, so there is nothing to "
            "compare a prediction with. Choose another start."
        )
    p = predict(geometry, scene, bank.decisions, slice(row, row + 1), device)
    # Candidates that were not executed have no states; any will do, since they are not used.
    states = np.where(ran[:, None, None], bank.outcomes.states[row], bank.decisions.state[row])
    z = encode_states(geometry, scene, torch.from_numpy(states).to(device))
    cost, after = (c[0].cpu().numpy() for c in (p.cost, geometry.native_cost(z[None], p.goal)))
    futures, realised = p.futures[0].float().cpu(), z.float().cpu()
    order, B = np.argsort(ids), states.shape[1]
    return Predicted(
        title=title,
        futures=futures,
        realised=realised,
        cost=cost,
        realised_cost=after,
        ranking=np.lexsort((ids, cost)),
        executed=(order[ran[order], None] * B + np.arange(B)).ravel(),
        drift=(futures - realised).norm(dim=-1).numpy() / _spread(realised[torch.from_numpy(ran)]),
    )


def _spread(latents: Tensor) -> float:
    """(k, B, D) -> root mean square distance to the mean: the drift of a constant prediction."""
    off = latents - latents.mean((0, 1))
    return max(off.square().sum(-1).mean().sqrt().item(), 1e-12)


def worth_seeing(bank: Bank, start_id: int, predicted: Predicted) -> dict[int, str]:
    """Positions to show, by native cost, with the reason: the native choice, the best executed
    one, the first of the shortlist with the other outcome than the native choice, the cheapest.
    """
    row, ranking = bank.row(start_id), predicted.ranking.tolist()
    seen, ids = bank.outcomes, bank.decisions.candidate_ids[row]
    ran, won = seen.observed[row], seen.success[row]
    first, best = ranking[0], int(np.lexsort((ids, np.where(ran, seen.cost[row], np.inf)))[0])
    short = ranking[:SHORTLIST]
    other = [k for k in short if ran[k] and ran[first] and won[k] != won[first]]
    rows = dict.fromkeys([first, best, *other[:1], *short], f"from the shortlist of {SHORTLIST}")
    rows[best] = "best executed"
    rows[first] = "native choice and best executed" if best == first else "native choice"
    return {k: rows[k] for k in sorted(list(rows)[:ROWS], key=ranking.index)}


def named(bank: Bank, start_id: int, candidates: Sequence[int]) -> dict[int, str]:
    """Positions of the candidates with these IDs, with the reason that they were requested."""
    ids = bank.decisions.candidate_ids[bank.row(start_id)].tolist()
    for candidate in candidates:
        if candidate not in ids:
            raise DjepaError(
                f"Start {start_id} of {bank.path} has no candidate {candidate}; "
                f"it has {len(ids)}, from {min(ids)} to {max(ids)}."
            )
    return {ids.index(candidate): "as asked" for candidate in candidates}
