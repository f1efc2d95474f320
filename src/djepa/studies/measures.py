"""Measures beyond success: candidate budgets, learning curves, lifting, latency.

Legend: N starts, K candidates, B blocks of five controls, D latent.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from djepa.align.fit import Alignment
from djepa.align.methods import Choice, Chooser, Mixture, Population, aligned, fit_aligned
from djepa.align.presets import SUITE
from djepa.bank.read import Bank
from djepa.evidence.evidence import Evidence
from djepa.evidence.ranks import strict_ranks
from djepa.lift.ordinal import lift as write_order
from djepa.lift.ordinal import native_distance
from djepa.models.predictions import read_predictions
from djepa.models.protocol import CONTEXT, Geometry
from djepa.seeds import generator

SUBSETS, SEEDS = (8, 16, 32), tuple(range(9201, 9217))
CURVE = ("pointwise", "relational", "D-JEPA")
WARM, BATCH = 2, 16
Say = Callable[[str], None]


def budgets(
    choosers: Mapping[str, Chooser], test: Population, seeds: Sequence[int] = SEEDS
) -> dict[str, dict[int, list[float]]]:
    """Method -> number of candidates -> success by seed, on nested subsets that methods share.

    Ranks, tokens and corrections are computed anew within every subset; weights stay.
    """
    K = test.evidence.candidates
    sizes = [k for k in SUBSETS if k < K]
    found: dict[str, dict[int, list[float]]] = {n: {k: [] for k in sizes} for n in choosers}
    for seed in seeds:
        order = nested(test.evidence, seed)
        for k in sizes:
            part = smaller(test, order[:, :k])
            for name, choose in choosers.items():
                found[name][k].append(_share(choose(part.evidence), part))
    for name, choose in choosers.items():  # the whole pool is one subset
        found[name][K] = [_share(choose(test.evidence), test)]
    return found


def nested(evidence: Evidence, seed: int) -> Tensor:
    """(N, K) positions: a start's first k are its subset of k, by a draw of its own."""
    by_id = evidence.ids.argsort(dim=1).cpu().numpy()
    rows = [
        by_id[i][generator("budget", seed, identity).permutation(evidence.candidates)]
        for i, identity in enumerate(evidence.identities)
    ]
    return torch.from_numpy(np.stack(rows)).to(evidence.ids.device)


def smaller(test: Population, positions: Tensor) -> Population:
    """The same starts with some of their candidates, in the order of the pool."""
    at = positions.sort(dim=1).values
    return Population(test.evidence.columns(at), test.outcomes.columns(at))


def learning_curve(
    fit: Population,
    calibration: Population,
    test: Population,
    sizes: Sequence[int],
    say: Say,
) -> list[dict[str, Any]]:
    """Success by number of fitting starts. It describes; nothing is chosen by it."""
    rows = []
    for n in sizes:
        part = fit.rows(torch.arange(n, device=fit.evidence.ids.device))
        methods: dict[str, Chooser] = {
            "fusion, four": Mixture.fit(SUITE["D-JEPA"].base, part),
        }
        for name in CURVE:
            say(f"  {name} on {n} starts")
            methods[name] = aligned(fit_aligned(SUITE[name], part, calibration))
        for name, choose in methods.items():
            solved = _solved(choose(test.evidence), test)
            hits = int(solved.sum())
            rows.append({"method": name, "fit": n, "hits": hits, "of": len(solved)})
    return rows


def lifting(
    choice: Choice, evidence: Evidence, bank: Bank, name: str = "tdjepa"
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write a decision into stored futures and read it back by native distance alone.

    What was recovered, counted and not taken for granted; and arrays to draw: (N, K) ranks before,
    wanted and after, and the last latents (K, D) of the first start whose choice the lift changes,
    before and after, its goal.
    """
    held = read_predictions(bank, name)
    assert held.futures is not None
    futures, goal = torch.from_numpy(held.futures), torch.from_numpy(held.goal)
    score, ids = choice.score.cpu(), evidence.ids.cpu()
    wanted = strict_ranks(score, ids)
    parts = zip(*(x.split(64) for x in (futures, goal, score, ids)), strict=True)
    found = torch.cat(
        [strict_ranks(native_distance(write_order(*part)[0], part[1]), part[3]) for part in parts]
    )
    first = found.gather(1, choice.position.cpu()[:, None])[:, 0] == 0
    before = strict_ranks(native_distance(futures, goal), ids)
    changed = (before.argmin(1) != choice.position.cpu()).nonzero().flatten().tolist() or [0]
    at = slice(changed[0], changed[0] + 1)
    lifted = write_order(futures[at], goal[at], score[at], ids[at])[0][0, :, -1]
    few = slice(0, 256)
    drawn = {
        "before": before[few].numpy().astype(np.int32),
        "wanted": wanted[few].numpy().astype(np.int32),
        "after": found[few].numpy().astype(np.int32),
        "original": futures[at][0, :, -1].numpy(),
        "lifted": lifted.numpy(),
        "goal": goal[at][0].numpy(),
        "chosen": np.array([before[at].argmin(), choice.position[at].item()]),
    }
    return {
        "geometry": name,
        "precision": str(futures.dtype).removeprefix("torch."),
        "starts": len(ids),
        "ranks": ids.numel(),
        "ranks_recovered": int((found == wanted).sum()),
        "choices_recovered": int(first.sum()),
    }, drawn


def frames_of(bank: Bank, image: int, device: str) -> tuple[Tensor, ...]:
    """Frames, goal frame, proprioception, history, candidates and IDs of the first 16 starts."""
    d, scene = bank.decisions, bank.scene()
    states = np.concatenate([d.context[:BATCH], d.goal[:BATCH, None]], axis=1)
    frames, proprio = scene.observe(torch.from_numpy(states).to(device), image)
    arrays = (d.history, d.actions, d.candidate_ids)
    rest = [torch.from_numpy(np.ascontiguousarray(x[:BATCH])).to(device) for x in arrays]
    return (
        frames[:, :CONTEXT],
        frames[:, CONTEXT],
        proprio,
        rest[0].float(),
        rest[1].float(),
        rest[2],
    )


def latency(
    alignment: Alignment,
    geometries: Mapping[str, Geometry],
    bank: Bank,
    device: str,
    lift: bool,
    repeats: int,
) -> list[float]:
    """Milliseconds per start, frames to decision, of every repeat of a batch of 16."""
    from djepa.lift.planner import Planner

    planner = Planner(geometries, alignment, "tdjepa")
    image = next(iter(geometries.values())).image
    context, goal, proprio, history, actions, ids = frames_of(bank, image, device)
    times = []
    for _ in range(WARM + repeats):
        _wait(device)
        began = time.perf_counter()
        planner.plan(context, history, goal, actions, ids, proprio, lift=lift)
        _wait(device)
        times.append(1000 * (time.perf_counter() - began) / len(ids))
    return times[WARM:]


def _solved(choice: Choice, test: Population) -> Tensor:
    return test.outcomes.success.gather(1, choice.position[:, None])[:, 0]


def _share(choice: Choice, test: Population) -> float:
    return float(_solved(choice, test).double().mean())


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()
