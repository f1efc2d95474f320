"""Speed of fitting alignments, of decisions and of lifts."""

import time
from collections.abc import Iterator

import numpy as np
import torch

from djepa.align.fit import AlignConfig, Alignment
from djepa.align.outcomes import Outcomes
from djepa.align.presets import PAIR
from djepa.bench.measure import Options, Row, Say, figures, seconds_of
from djepa.evidence.evidence import Evidence
from djepa.lift.ordinal import realize
from djepa.seeds import generator

BLOCKS, LATENT = 5, 192
Problem = tuple[Evidence, Outcomes]


def bench_align(options: Options, say: Say) -> Iterator[Row]:
    """The published configuration on problems drawn from a generator."""
    N, K, device = options.fit, options.candidates, options.device
    sizes = {"fit": N, "cal": N // 7, "test": N}
    problems = {split: problem(split, n, K, device=device) for split, n in sizes.items()}
    say(f"measuring the fit of {N} starts ...")
    alignment, began = Alignment(AlignConfig(updates=options.updates)), time.perf_counter()
    alignment.fit(*problems["fit"])
    fitted = time.perf_counter() - began
    alignment.calibrate(*problems["cal"])
    seconds = time.perf_counter() - began
    note = f"{figures(seconds - fitted)} s of it calibration on {N // 7}"
    yield Row("fit", "s", seconds, None, f"{N} x {K}, {options.updates} updates; {note}")
    say("measuring decisions and lifts ...")
    evidence, _ = problems["test"]
    yield _decide(alignment, evidence, device)
    yield _lift(alignment, evidence, device)


def problem(
    split: str, starts: int, candidates: int, latent: int = LATENT, device: str = "cpu"
) -> Problem:
    """Two geometries that predict candidates nearer to or farther from the goal than they end.

    About one candidate in eight succeeds. Predicted ends of failures share a direction, which an
    operator can learn.
    """
    rng = generator("bench-align", split)
    shape, axis = (starts, candidates), (-1.0) ** np.arange(latent)
    error = rng.gamma(2.0, 1.0, shape)  # in units of some tolerance
    success = error < 0.6
    ids = np.argsort(rng.random(shape), axis=1)
    costs, ends, goals = {}, {}, {}
    for name in PAIR:
        goal = rng.normal(size=(starts, 1, latent))
        away = rng.normal(size=(*shape, latent)) + 0.1 * ~success[..., None] * axis
        predicted = error * np.exp(1.2 * rng.normal(size=shape))
        away *= (predicted / np.sqrt((away**2).mean(-1)))[..., None]
        costs[name] = (away**2).mean(-1)
        ends[name], goals[name] = (goal + away).astype(np.float16), goal[:, 0].astype(np.float16)
    names = [f"{split}-{start}" for start in range(starts)]
    evidence = Evidence.from_arrays(
        start_ids=names, candidate_ids=ids, costs=costs, latents=ends, goals=goals
    )
    outcome, seen = torch.from_numpy(success), torch.ones(shape, dtype=torch.bool)
    outcomes = Outcomes(evidence.identities, outcome, seen, torch.from_numpy(error))
    return evidence.to(device), outcomes.to(device)


def _decide(alignment: Alignment, evidence: Evidence, device: str) -> Row:
    """Decisions from given evidence: tokens, operator, gate, order."""
    (N, K), each = evidence.ids.shape, [evidence.rows([n]) for n in range(len(evidence))]
    ours = seconds_of(lambda: alignment.decide(evidence), device)
    plain = seconds_of(lambda: [alignment.decide(start) for start in each], device)
    note = f"{N} x {K} in {figures(ours)} s, against start by start"
    return Row("decide", "starts/s", N / ours, N / plain, note)


def _lift(alignment: Alignment, evidence: Evidence, device: str) -> Row:
    """Lift of futures (N, K, B, D), here straight lines to the ends that one geometry predicts."""
    end = evidence.latents[PAIR[0]]
    way = torch.linspace(1 / BLOCKS, 1, BLOCKS, device=end.device).to(end.dtype)
    futures, goal = end[:, :, None] * way[:, None], evidence.goals[PAIR[0]]
    given = (futures, goal, alignment.decide(evidence).final, evidence.ids)
    each = list(zip(*(x.split(1) for x in given), strict=True))
    ours = seconds_of(lambda: realize(*given), device)
    plain = seconds_of(lambda: [realize(*start) for start in each], device)
    N, K, B, D = futures.shape
    note = f"{N} x {K} x {B} x {D} in {figures(ours)} s, against start by start"
    return Row("ordinal lift", "starts/s", N / ours, N / plain, note)
