"""Ranks beside log costs: by hand, chosen by folds, kept on disk."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from djepa.align.fit import AlignConfig, Alignment
from djepa.align.mixture import fit_logs, likeliest
from djepa.align.outcomes import Outcomes
from djepa.align.presets import careful, mixed
from djepa.align.store import load_alignment, save_alignment
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence
from djepa.evidence.logs import LogMixture, mix, mixture_inputs

LN2, LN3 = math.log(2), math.log(3)


def skewed(seed: int, split: str = "s", N: int = 150, K: int = 12) -> tuple[Evidence, Tensor]:
    """Order is right, size misleads: costs of an input spread most in the pools where it is wrong.

    Both inputs order candidates by merit and noise; where the noise is large, so are the ratios of
    their costs, and a mixture of logarithms follows the larger spread.
    """
    rng = np.random.default_rng([seed, len(split)])
    merit = rng.normal(size=(N, K))
    success = merit.argsort(1).argsort(1) < 2
    costs = {}
    for name in ("a", "b"):
        wide = rng.random((N, 1)) < 0.5
        ranks = (merit + np.where(wide, 1.5, 0.5) * rng.normal(size=(N, K))).argsort(1).argsort(1)
        costs[name] = np.exp(ranks * np.where(wide, 3.0, 0.003))
    ids = np.broadcast_to(np.arange(K), (N, K)).copy()
    names = [f"{split}-{n}" for n in range(N)]
    ends = {"a": rng.normal(size=(N, K, 3)).astype(np.float32)}
    e = Evidence.from_arrays(
        start_ids=names,
        candidate_ids=ids,
        costs=costs,
        latents=ends,
        goals={"a": np.zeros((N, 3), np.float32)},
    )
    return e, torch.from_numpy(success)


def seen(success: Tensor) -> Tensor:
    return torch.ones_like(success)


def test_ranked_inputs_by_hand() -> None:
    """Costs 1 2 4 and 9 3 3; of the tie the smaller ID has the lower rank."""
    ids = np.array([[0, 1, 2]])
    costs = {"a": np.array([[1.0, 2.0, 4.0]]), "b": np.array([[9.0, 3.0, 3.0]])}
    e = Evidence.from_arrays(start_ids=["one"], candidate_ids=ids, costs=costs)
    inputs = mixture_inputs(e, ["a", "b"], ranked=True)[0]
    by_hand = [[0.0, LN3, 0.0, 1.0], [LN2, 0.0, 0.5, 0.0], [2 * LN2, 0.0, 1.0, 0.5]]
    torch.testing.assert_close(
        inputs, torch.tensor(by_hand, dtype=torch.float64), atol=1e-12, rtol=0
    )
    score = LogMixture(("a", "b"), (), (1.0, 0.0, 0.0, 2.0), 0, 0, ranked=True)(e)[0]
    assert score.tolist() == pytest.approx([0.1, 0.05 * LN2, 0.05 * (2 * LN2 + 1)], abs=1e-12)


def test_inputs_have_names() -> None:
    plain = LogMixture(("a", "b"), ("a",), (1.0, 1.0, 1.0), 0, 0)
    assert plain.inputs == ("a", "b", "density of a")
    both = LogMixture(("a",), ("a",), (1.0,) * 4, 0, 0, ranked=True)
    assert both.inputs == ("a", "density of a", "rank by a", "rank by density of a")


def test_ranks_are_inputs_where_sizes_mislead_and_only_if_asked() -> None:
    e, success = skewed(2)
    plain, both = (fit_logs(e, success, seen(success), ("a", "b"), (), too) for too in (0, 1))
    assert (plain.ranked, both.ranked) == (False, True)
    assert both.held_out > plain.held_out + 5
    assert both.weights == likeliest(
        mixture_inputs(e, ("a", "b"), (), True), success, seen(success)
    )
    other, truth = skewed(1, "other", N=400)
    solved = [truth.gather(1, one(other).argmin(1)[:, None]).sum() for one in (plain, both)]
    assert solved[1] > solved[0]


def test_without_a_gain_by_folds_the_simpler_inputs_stay() -> None:
    """Costs that are their own ranks: the first of equals is taken, neither ranks nor density."""
    K, N = 9, 25
    ids = np.broadcast_to(np.arange(K), (N, K)).copy()
    cost = np.random.default_rng(3).random((N, K)).argsort(1).argsort(1) + 1.0
    ends = np.random.default_rng(4).normal(size=(N, K, 2)).astype(np.float32)
    goal = {"a": np.zeros((N, 2), np.float32)}
    e = Evidence.from_arrays(
        start_ids=[f"s-{n}" for n in range(N)],
        candidate_ids=ids,
        costs={"a": cost},
        latents={"a": ends},
        goals=goal,
    )
    success = torch.from_numpy(cost == 1)
    found = fit_logs(e, success, seen(success), ("a",), ("a",), ranked=True)
    assert (found.ranked, found.density, found.held_out) == (False, (), N)


def test_a_score_does_not_depend_on_the_order_of_the_pool() -> None:
    e, _ = skewed(2)
    mixture = LogMixture(("b", "a"), ("a",), (0.3, 1.7, 0.2, 4.0, 0.9, 2.2), 0, 0, ranked=True)
    at = torch.rand(len(e), e.candidates, generator=torch.Generator().manual_seed(5)).argsort(1)
    assert torch.equal(mixture(e.columns(at)), mixture(e).gather(1, at))
    inputs = mixture_inputs(e, ("b", "a"), ("a",), True)
    assert torch.equal(mix(inputs, mixture.weights), mixture(e))


def test_an_alignment_over_such_a_mixture_is_kept_whole(tmp_path: Path) -> None:
    (e, success), (c, truth) = skewed(2), skewed(1, "calibration", N=20)
    alignment = Alignment(mixed(("a", "b"), ("a",)))
    alignment.fit(e, Outcomes(e.identities, success, seen(success), None))
    alignment.calibrate(c, Outcomes(c.identities, truth, seen(truth), None))
    save_alignment(alignment, tmp_path / "kept", {})
    again = load_alignment(tmp_path / "kept")
    assert again.report is not None
    assert isinstance(again.report.fusion, LogMixture)
    assert again.report.fusion == alignment.report.fusion
    assert again.report.fusion.ranked
    other, _ = skewed(2, "other", N=30)
    assert torch.equal(again.decide(other).final, alignment.decide(other).final)


def test_the_careful_one_only_adds_an_operator() -> None:
    few, many = mixed(("a", "b"), ("a",)), careful(("a", "b"), ("a",))
    assert (few.mixture, few.updates) == ("log+ranks", 0)
    assert (many.mixture, many.updates, many.policy) == ("log+ranks", 1000, "careful")
    assert (few.base, few.density, few.ranked) == (many.base, many.density, many.ranked)


def test_an_unknown_mixture_is_named() -> None:
    with pytest.raises(DjepaError, match="log"):
        AlignConfig(mixture="logs")  # type: ignore[arg-type]
    with pytest.raises(DjepaError, match="A density is an input of a log mixture"):
        AlignConfig(density=("lewm",))
