"""How good a geometry is at choosing, on starts it has never seen.

Legend: N starts, K candidates, B blocks of five controls, D latent.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from djepa.bank.read import Bank
from djepa.evaluate.correlation import spearman
from djepa.evaluate.intervals import markdown_table, wilson
from djepa.models.predict import encode_states, predict
from djepa.models.protocol import Geometry
from djepa.tasks.task import PLAIN

Floats = npt.NDArray[np.floating[Any]]
SHORTLISTS = (63, 32, 16, 8, 4)


@dataclass(frozen=True)
class Quality:
    """Shares of starts on which a chooser succeeds, and how predictions compare with execution."""

    geometry: str
    starts: int
    candidates: int
    native: float  # choice by predicted cost
    native_interval: tuple[float, float]  # Wilson 95 %
    realised: float  # choice by the cost of what execution showed, in the same latent space
    random: float
    oracle: float
    tied: float  # share of starts whose lowest predicted cost several candidates share
    spearman: dict[
        int, float
    ]  # shortlist size -> mean within-start correlation, predicted : realised
    error_first: float  # mean squared latent error of the first predicted block
    error_last: float  # of the last one
    latent_variance: float  # of the realised latents, to read the errors against
    picks: tuple[bool, ...]  # start by start: did the native choice succeed

    def as_dict(self, picks: bool = False) -> dict[str, Any]:
        """For JSON; the start-by-start column only on demand."""
        entry = asdict(self)
        if not picks:
            entry.pop("picks")
        return entry


def quality(
    geometry: Geometry, bank: Bank, device: str = "cpu", look: str = PLAIN, batch: int = 32
) -> Quality:
    """Predict every candidate, encode what execution showed, compare."""
    decisions, outcomes, scene = bank.decisions, bank.outcomes, bank.scene(look)
    predicted, realised, first, last, spread = [], [], [], [], []
    for begin in range(0, len(bank), batch):
        rows = slice(begin, min(begin + batch, len(bank)))
        p = predict(geometry, scene, decisions, rows, device)
        ends = torch.from_numpy(outcomes.states[rows][:, :, [0, -1]]).to(device)
        z = encode_states(geometry, scene, ends)  # (n, K, 2, D)
        predicted.append(p.cost)
        realised.append(geometry.native_cost(z[:, :, 1:], p.goal).float())
        first.append(_error(p.futures[:, :, 0], z[:, :, 0]))
        last.append(_error(p.futures[:, :, -1], z[:, :, 1]))
        spread.append(z[:, :, 1].float().var(dim=(0, 1)).mean().item())
    return summarise(
        geometry.name,
        torch.cat(predicted).cpu().numpy(),
        torch.cat(realised).cpu().numpy(),
        outcomes.success,
        decisions.candidate_ids,
        (float(np.mean(first)), float(np.mean(last)), float(np.mean(spread))),
    )


def summarise(
    name: str,
    predicted: Floats,
    realised: Floats,
    success: npt.NDArray[np.bool_],
    ids: npt.NDArray[np.int64],
    errors: tuple[float, float, float],
) -> Quality:
    """(N, K) costs, outcomes and IDs -> the summary."""
    N, K = success.shape
    picks = success[np.arange(N), choose(predicted, ids)]
    return Quality(
        geometry=name,
        starts=N,
        candidates=K,
        native=float(picks.mean()),
        native_interval=wilson(int(picks.sum()), N),
        realised=float(success[np.arange(N), choose(realised, ids)].mean()),
        random=float(success.mean()),
        oracle=float(success.any(1).mean()),
        tied=float(((predicted == predicted.min(1, keepdims=True)).sum(1) > 1).mean()),
        spearman={
            k: within_start_spearman(predicted, realised, ids, k) for k in SHORTLISTS if k <= K
        },
        error_first=errors[0],
        error_last=errors[1],
        latent_variance=errors[2],
        picks=tuple(bool(pick) for pick in picks),
    )


def choose(cost: Floats, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """(N, K) costs -> (N,) positions of the cheapest candidates, ties to the smaller ID."""
    return np.asarray(np.lexsort((ids, cost), axis=1)[:, 0])


def within_start_spearman(
    predicted: Floats, realised: Floats, ids: npt.NDArray[np.int64], shortlist: int
) -> float:
    """Mean over starts of the Spearman correlation among the `shortlist` lowest predicted costs."""
    order = np.lexsort((ids, predicted), axis=1)[:, :shortlist]
    a, b = (np.take_along_axis(of, order, 1) for of in (predicted, realised))
    return float(np.nanmean(spearman(a, b)))


def _error(predicted: Tensor, realised: Tensor) -> float:
    return float((predicted.float() - realised.float()).square().mean())


def joint_failures(results: list[Quality]) -> Floats:
    """(M, M) share of starts on which both geometries choose a failure; its own on the diagonal."""
    failed = ~np.array([result.picks for result in results])
    return np.asarray((failed[:, None] & failed[None]).mean(-1))


def quality_markdown(results: list[Quality]) -> str:
    """Two tables: the geometries, and on which share of starts two of them fail together."""
    names = [result.geometry for result in results]
    matrix = joint_failures(results)
    shared = [dict(zip(names, map(_percent, row), strict=True)) for row in matrix]
    columns = [_column(result) for result in results]
    return (
        markdown_table("success by", names, columns)
        + "\n"
        + markdown_table("both fail", names, shared)
    )


def _column(result: Quality) -> dict[str, str]:
    low, high = result.native_interval
    return {
        "starts × candidates": f"{result.starts} × {result.candidates}",
        "native cost": f"{_percent(result.native)} ({100 * low:.1f}-{100 * high:.1f})",
        "realised latent cost": _percent(result.realised),
        "random choice": _percent(result.random),
        "oracle": _percent(result.oracle),
        "tied for the lowest cost": _percent(result.tied),
        **{f"Spearman, best {k}": f"{rho:.2f}" for k, rho in result.spearman.items()},
        "latent error, block 1": f"{result.error_first:.3f}",
        "latent error, last block": f"{result.error_last:.3f}",
        "latent variance": f"{result.latent_variance:.2f}",
    }


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
