"""Calibrated composition: the published numbers, and what holds for any."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from djepa.align.compose import PUBLISHED, Pair, calibrate_composition, compose
from djepa.align.gates import NEVER
from djepa.align.outcomes import Outcomes
from djepa.errors import DjepaError

BASE, REFINED = [[0.4, 0.2, 0.3]], [[0.1, 0.3, 0.4]]


def pair(proposals: list[float], base: list[list[float]] = BASE, winner: int = 0) -> Pair:
    N = len(base)
    return Pair(
        torch.tensor([[1, 2, 3]]).expand(N, 3),
        torch.tensor(base, dtype=torch.float64),
        torch.tensor(REFINED, dtype=torch.float64).expand(N, 3),
        torch.full((N,), winner),
        torch.tensor([proposals], dtype=torch.float64).expand(N, 3),
    )


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    N, K = draw(st.integers(1, 4)), draw(st.integers(2, 6))
    seed = draw(st.integers(0, 2**31))
    rng = torch.Generator().manual_seed(seed)
    # Few values: ties are common.
    base, refined, proposals = (torch.randint(0, 6, (N, K), generator=rng) / 5 for _ in range(3))
    ids = torch.stack([torch.randperm(9, generator=rng)[:K] for _ in range(N)])
    return Pair(ids, base, refined, torch.randint(0, K, (N,), generator=rng), proposals)


def outcomes_of(success: Tensor, observed: Tensor | None = None) -> Outcomes:
    seen = torch.ones_like(success) if observed is None else observed
    return Outcomes(tuple(map(str, range(len(success)))), success, seen)


def test_published_examples() -> None:
    assert PUBLISHED == 0.0065339543
    assert compose(pair([0.3, 0.2, 0.095]), PUBLISHED).choice.tolist() == [1]
    moved = compose(pair([0.3, 0.2, 0.01]), PUBLISHED)
    assert (moved.choice.tolist(), moved.position.tolist(), moved.opened.tolist()) == (
        [3],
        [2],
        [True],
    )


def test_the_default_is_below_every_base_score() -> None:
    assert pair([0, 0, 0]).default().tolist() == [[0.1, 0.2, 0.3]]
    # Refined .3 at the winner is above the best base score: just below that one instead.
    assert pair([0, 0, 0], winner=1).default()[0].tolist() == [0.4, 0.2 - 1e-6, 0.3]


def test_the_threshold_is_strict() -> None:
    proposals = pair([1.0, 1.0, 0.0625], base=[[0.5, 0.125, 0.5]], winner=1)
    gain = float(proposals.default()[0, 1] - 0.0625)
    assert compose(proposals, gain).choice.tolist() == [2]
    assert compose(proposals, gain - 1e-12).choice.tolist() == [3]


@given(pairs())
def test_never_keeps_the_relational_choice(given_pair: Pair) -> None:
    kept = compose(given_pair, NEVER)
    assert torch.equal(kept.position, given_pair.relational)
    assert not kept.opened.any()
    assert torch.equal(compose(given_pair).choice, kept.choice)


@given(pairs())
def test_always_takes_the_proposal(given_pair: Pair) -> None:
    taken = compose(given_pair, -10.0)
    low = given_pair.proposals.amin(1)
    assert torch.equal(given_pair.proposals.gather(1, taken.position[:, None])[:, 0], low)


@given(pairs(), st.floats(-1, 1), st.randoms(use_true_random=False))
def test_the_order_of_candidates_changes_nothing(
    given_pair: Pair, threshold: float, random: object
) -> None:
    K = given_pair.ids.shape[1]
    shuffled = list(range(K))
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    at = torch.tensor(shuffled)
    place = at.argsort()  # where each candidate went
    moved = Pair(
        given_pair.ids[:, at],
        given_pair.base[:, at],
        given_pair.refined[:, at],
        place[given_pair.relational],
        given_pair.proposals[:, at],
    )
    one, other = compose(given_pair, threshold), compose(moved, threshold)
    assert torch.equal(one.choice, other.choice)
    assert torch.equal(place[one.position], other.position)


def test_calibration_is_permissive_among_equals() -> None:
    # Gains of the proposal (position 2): .2, .1, .05. It is right, indifferent, wrong.
    both = Pair(
        torch.tensor([[1, 2, 3]]).expand(3, 3),
        torch.ones(3, 3, dtype=torch.float64),
        torch.tensor([[0.3, 1, 1]]).double().expand(3, 3),
        torch.zeros(3, dtype=torch.int64),
        torch.tensor([[1, 1, 0.1], [1, 1, 0.2], [1, 1, 0.25]]).double(),
    )
    success = torch.tensor([[0, 0, 1], [1, 0, 1], [1, 0, 0]]).bool()
    threshold = calibrate_composition(both, outcomes_of(success))
    assert threshold == pytest.approx(0.075)
    assert compose(both, threshold).opened.tolist() == [True, True, False]


@given(pairs(), st.integers(0, 2**31))
def test_calibration_never_loses_a_success(given_pair: Pair, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    success = torch.rand(given_pair.ids.shape, generator=rng) < 0.5
    threshold = calibrate_composition(given_pair, outcomes_of(success))
    hits = [
        int(success.gather(1, compose(given_pair, tau).position[:, None]).sum())
        for tau in (threshold, NEVER, -10.0)
    ]
    assert hits[0] == max(hits)


def test_winners_that_were_not_executed_do_not_calibrate() -> None:
    both = pair([1.0, 1.0, 0.0], base=BASE * 2)
    success = torch.tensor([[False, False, True], [True, False, False]])
    seen = torch.tensor([[True, True, True], [False, True, True]])
    # The second start would speak against the proposal, had its relational winner been executed.
    assert compose(both, calibrate_composition(both, outcomes_of(success, seen))).opened.all()
    with pytest.raises(DjepaError, match="executed"):
        calibrate_composition(both, outcomes_of(success, torch.tensor([[False, True, True]] * 2)))


def test_what_has_no_order_is_refused() -> None:
    good = pair([0.3, 0.2, 0.1])
    with pytest.raises(DjepaError, match="positions"):
        Pair(good.ids, good.base, good.refined, torch.tensor([3]), good.proposals)
    with pytest.raises(DjepaError, match="positions"):
        Pair(good.ids, good.base, good.refined, torch.tensor([0, 1]), good.proposals)
    with pytest.raises(DjepaError, match="proposals"):
        Pair(good.ids, good.base, good.refined, good.relational, good.proposals[:, :2])
    with pytest.raises(DjepaError, match="Outcomes"):
        calibrate_composition(good, outcomes_of(torch.ones(1, 2, dtype=torch.bool)))
