"""Log mixtures: by hand, free of units, likeliest, blind to outcomes that nobody saw."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from djepa.align.fit import AlignConfig, Alignment
from djepa.align.mixture import RIDGE, fit_logs, likeliest
from djepa.align.outcomes import Outcomes
from djepa.align.store import load_alignment, save_alignment
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence
from djepa.evidence.logs import TEMPERATURE, LogMixture, mix, mixture_inputs
from djepa.evidence.ranks import best
from djepa.evidence.tokens import Tokens

LN2, LN3 = math.log(2), math.log(3)


def evidence(
    costs: dict[str, Any], ends: Any = None, ids: Any = None, split: str = "s"
) -> Evidence:
    """Costs name -> (N, K); ends of the geometry 'a'."""
    given_costs = {name: torch.as_tensor(c).double() for name, c in costs.items()}
    N, K = next(iter(given_costs.values())).shape
    pools = torch.arange(K).expand(N, K) if ids is None else torch.as_tensor(ids)
    latents, goals = {}, {}
    if ends is not None:
        latents["a"] = torch.as_tensor(ends).float()
        goals["a"] = torch.zeros(N, latents["a"].shape[-1])
    names = [f"{split}-{n}" for n in range(N)]
    return Evidence.from_arrays(
        start_ids=names, candidate_ids=pools, costs=given_costs, latents=latents, goals=goals
    )


def drawn(seed: int, N: int = 40, K: int = 7, split: str = "s") -> tuple[Evidence, Tensor, Tensor]:
    """Costs that say a little of success, ends that say nothing; outcomes, two thirds seen."""
    rng = np.random.default_rng([seed, len(split)])
    success = rng.random((N, K)) < 0.35
    costs = {
        name: np.exp(rng.normal(size=(N, K)) + hint * ~success)
        for name, hint in (("a", 1.0), ("b", 0.4), ("c", 0.0))
    }
    ids = rng.random((N, K)).argsort(1) + 3
    seen = rng.random((N, K)) < 0.67
    seen[:, 0] = True
    e = evidence(costs, rng.normal(size=(N, K, 3)), ids, split)
    return e, torch.from_numpy(success), torch.from_numpy(seen)


# ---------------------------------------------------------------------------------- by hand


def test_inputs_by_hand() -> None:
    # Mean distances to the two neighbours of 0, 1 and 10 are 5.5, 5 and 9.5.
    e = evidence({"a": [[1.0, 2.0, 4.0]], "b": [[9.0, 3.0, 3.0]]}, [[[0.0], [1.0], [10.0]]])
    inputs = mixture_inputs(e, ["b", "a"], ["a"])
    by_hand = [[LN3, 0.0, math.log(1.1)], [0.0, LN2, 0.0], [0.0, 2 * LN2, math.log(1.9)]]
    torch.testing.assert_close(inputs[0], torch.tensor(by_hand).double(), atol=1e-7, rtol=0)
    assert inputs.dtype == torch.float64


def test_the_mixture_by_hand() -> None:
    e = evidence({"a": [[1.0, 2.0, 4.0]], "b": [[9.0, 3.0, 3.0]]})
    score = LogMixture(("a", "b"), (), (1.0, 0.5), 0, 0)(e)
    by_hand = [0.05 * 0.5 * LN3, 0.05 * LN2, 0.05 * 2 * LN2]
    assert score[0].tolist() == pytest.approx(by_hand, abs=1e-12)
    # What the operator's objective reads of it: odds are ratios of costs, to the weights' powers.
    odds = (-score[0] / TEMPERATURE).softmax(0)
    powers = torch.tensor([1 / 1 / 9**0.5, 1 / 2 / 3**0.5, 1 / 4 / 3**0.5]).double()
    torch.testing.assert_close(odds, powers / powers.sum())


def test_the_likeliest_weight_by_hand() -> None:
    """Of four pairs three are won by the half as dear: odds 2^w = 3."""
    inputs = torch.tensor([[0.0, LN2]]).double().expand(4, 2)[..., None]
    success = torch.tensor([[True, False]] * 3 + [[False, True]])
    (weight,) = likeliest(inputs, success, torch.ones_like(success))
    assert weight == pytest.approx(math.log2(3), rel=5e-3)  # a little less, by the ridge
    assert weight < math.log2(3)


def test_products_that_tie_go_to_the_smaller_id() -> None:
    """2·3, 3·2, 6·1 and 1·6 are the same product, whatever their logarithms round to."""
    costs = {"a": [[2.0, 3.0, 6.0, 1.0, 7.0]], "b": [[3.0, 2.0, 1.0, 6.0, 1.0]]}
    for ids, winner in (([[8, 4, 6, 5, 1]], 1), ([[4, 8, 6, 5, 1]], 0), ([[5, 8, 6, 4, 1]], 3)):
        e = evidence(costs, ids=ids)
        score = LogMixture(("a", "b"), (), (0.7, 0.7), 0, 0)(e)
        assert len(score[0, :4].unique()) == 1
        assert best(score, e.ids).tolist() == [winner]
    divisors = torch.tensor([[d for d in range(1, 361) if 360 % d == 0]]).double()
    many = evidence({"a": divisors, "b": 360 / divisors})
    for weight in (0.1, 0.3, 0.7, 1.9):
        assert len(LogMixture(("a", "b"), (), (weight, weight), 0, 0)(many).unique()) == 1


# ----------------------------------------------------------------------- what must not matter


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.floats(-30, 30), min_size=3, max_size=3),
    st.booleans(),
)
def test_costs_have_no_unit(seed: int, tens: list[float], zero: bool) -> None:
    e, success, seen = drawn(seed, N=12)
    costs = e.costs.clone()
    if zero:
        costs[:, 2, 0] = 0.0
    e = replace(e, costs=costs)
    other = replace(e, costs=costs * torch.tensor([10.0**t for t in tens]).double())
    names = ("a", "b", "c")
    torch.testing.assert_close(
        mixture_inputs(other, names), mixture_inputs(e, names), atol=1e-10, rtol=0
    )
    mixture = LogMixture(names, ("a",), (1.0, 2.0, 0.3, 0.1), 0, 0)
    torch.testing.assert_close(mixture(other), mixture(e), atol=1e-10, rtol=0)
    assert torch.equal(best(mixture(other), e.ids), best(mixture(e), e.ids))
    tokens = Tokens((), tuple(names), ("log",))
    torch.testing.assert_close(tokens(other), tokens(e), atol=1e-6, rtol=1e-6)
    one, two = (fit_logs(x, success, seen, names) for x in (e, other))
    assert two.weights == pytest.approx(one.weights, abs=1e-4)


def test_costs_of_zero_are_no_infinity() -> None:
    e = evidence({"a": [[0.0, 0.0, 0.0], [0.0, 1.0, 2.0]], "b": [[1.0, 2.0, 3.0]] * 2})
    inputs = mixture_inputs(e, ["a", "b"])
    assert inputs[0, :, 0].tolist() == [0.0, 0.0, 0.0]  # all costs are equal
    assert inputs.isfinite().all()
    assert inputs[1, 0, 0] == 0
    assert (inputs[1, 1:, 0] > 20).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 40), st.booleans())
def test_candidate_order_changes_no_bit(seed: int, K: int, ties: bool) -> None:
    e, _, _ = drawn(seed, N=3, K=K)
    if ties:
        e = replace(e, costs=e.costs.mul(2).ceil())
    p = torch.from_numpy(np.random.default_rng(seed).random((3, K)).argsort(1))
    mixed = e.columns(p)
    mixture = LogMixture(("c", "a", "b"), ("a",), (1.3, 0.0, 0.71, 0.2), 0, 0)
    assert torch.equal(mixture(mixed), mixture(e).gather(1, p))
    winner = mixed.ids.gather(1, best(mixture(mixed), mixed.ids)[:, None])
    assert torch.equal(winner, e.ids.gather(1, best(mixture(e), e.ids)[:, None]))


def test_start_order_and_company_change_no_score() -> None:
    e, _, _ = drawn(0)
    mixture = LogMixture(("a", "b"), ("a",), (1.3, 0.71, 0.2), 0, 0)
    p = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    assert torch.equal(mixture(e.rows(p)), mixture(e)[p])
    assert torch.equal(mixture(e.rows([7])), mixture(e)[7:8])


@pytest.mark.parametrize("seed", range(5))
def test_unobserved_outcomes_change_no_bit(seed: int) -> None:
    e, success, seen = drawn(seed)
    inputs = mixture_inputs(e, ("a", "b", "c"), ("a",))
    flipped = success ^ ~seen
    assert not torch.equal(flipped, success)
    assert likeliest(inputs, flipped, seen) == likeliest(inputs, success, seen)
    given_to = (e, success, seen, ("a", "b", "c"), ("a",))
    assert fit_logs(e, flipped, *given_to[2:]) == fit_logs(*given_to)
    # Seen ones do matter.
    assert likeliest(inputs, success ^ seen, seen) != likeliest(inputs, success, seen)


def test_starts_of_one_class_teach_nothing() -> None:
    e, success, seen = drawn(3)
    success[:5], success[5:9] = False, True
    inputs = mixture_inputs(e, ("a", "b"))
    assert likeliest(inputs[:9], success[:9], seen[:9]) == (1.0, 1.0)
    assert likeliest(inputs[9:], success[9:], seen[9:]) == likeliest(inputs, success, seen)
    nothing = fit_logs(e.rows(range(9)), success[:9], seen[:9], ("a", "b"))
    assert (nothing.weights, nothing.density) == ((1.0, 1.0), ())
    # One class among those seen is one class.
    alone = success[9:] & seen[9:]
    assert likeliest(inputs[9:], success[9:], alone) == (1.0, 1.0)


# ------------------------------------------------------------------------------- likeliest


def loss_of(w: list[float], inputs: Tensor, success: Tensor, seen: Tensor) -> float:
    """The objective, start by start."""
    found = []
    for x, y, o in zip(inputs.tolist(), success.tolist(), seen.tolist(), strict=True):
        odds = [math.exp(-sum(a * b for a, b in zip(w, v, strict=True))) for v in x]
        good = sum(p for p, won, here in zip(odds, y, o, strict=True) if won and here)
        bad = sum(p for p, won, here in zip(odds, y, o, strict=True) if not won and here)
        if good and bad:
            found.append(-math.log(good / (good + bad)))
    return sum(found) / len(found) + RIDGE * sum(a * a for a in w)


@pytest.mark.parametrize("seed", range(4))
def test_no_slope_is_left_at_the_optimum(seed: int) -> None:
    e, success, seen = drawn(seed)
    contrary = replace(e, costs=torch.cat([e.costs[..., :2], 1 / e.costs[..., :1]], dim=-1))
    case = (mixture_inputs(contrary, ("a", "b", "c"), ("a",)), success, seen)
    w = list(likeliest(*case))
    assert min(w) >= 0
    assert w[2] == 0  # it says the opposite of the first
    step = 1e-5
    for m in range(4):
        ahead, behind = ([*w[:m], w[m] + s, *w[m + 1 :]] for s in (step, -step))
        slope = (loss_of(ahead, *case) - loss_of(behind, *case)) / (2 * step)
        assert slope > -1e-4
        assert w[m] == 0 or slope < 1e-4
    rng = np.random.default_rng(seed)
    for _ in range(5):  # convex: whatever is elsewhere is higher
        other = np.abs(w + rng.normal(size=4) * 0.3).tolist()
        assert loss_of(other, *case) > loss_of(w, *case)


def test_known_weights_are_found_again() -> None:
    rng = np.random.default_rng(5)
    known = np.array([2.0, 0.6, 0.0])
    N, K = 4000, 6
    inputs = rng.normal(size=(N, K, 3))
    inputs -= inputs.min(axis=1, keepdims=True)
    noise = rng.gumbel(size=(N, K))  # argmax of logits and such noise is a draw of their softmax
    winner = (noise - inputs @ known).argmax(1)
    success = torch.from_numpy(np.arange(K) == winner[:, None])
    found = likeliest(torch.from_numpy(inputs), success, torch.ones_like(success))
    assert found == pytest.approx(known.tolist(), abs=0.1)


# ---------------------------------------------------------------------------- folds, the density


def folds_by_hand(
    e: Evidence, success: Tensor, seen: Tensor, names: Any, density: Any = ()
) -> tuple[int, int]:
    """Successes of the fitting starts, and of each by weights of the other folds."""
    inputs, hits = mixture_inputs(e, names, density), []
    for k in range(6):
        fitted = [n for n in range(len(e)) if n % 5 != k]
        judged = [n for n in range(len(e)) if n % 5 == k or k == 5]
        score = mix(inputs, likeliest(inputs[fitted], success[fitted], seen[fitted]))
        wins = 0
        for n in judged:
            open_to = [i for i in range(e.candidates) if seen[n, i]]
            winner = min(open_to, key=lambda i: (float(score[n, i]), int(e.ids[n, i])))
            wins += bool(success[n, winner])
        hits.append(wins)
    return hits[5], sum(hits[:5])


@pytest.mark.parametrize("seed", range(3))
def test_successes_and_folds_are_those_of_a_loop(seed: int) -> None:
    e, success, seen = drawn(seed, N=23)
    fitted = fit_logs(e, success, seen, ("a", "b"))
    assert (fitted.successes, fitted.held_out) == folds_by_hand(e, success, seen, ("a", "b"))
    assert fitted.weights == likeliest(mixture_inputs(e, ("a", "b")), success, seen)
    one = slice(0, 1)  # one start: no fold is left to judge by
    assert fit_logs(e.rows([0]), success[one], seen[one], ("a",)).held_out == 0


def dense(seed: int, telling: str) -> tuple[Evidence, Tensor]:
    """Successes are either the cheap ones or those that end together."""
    rng = np.random.default_rng(seed)
    N, K = 30, 24
    success = rng.random((N, K)).argsort(1) < 12  # more than a candidate has neighbours
    costs, ends = rng.random((N, K)) + 1, rng.normal(size=(N, K, 3))
    if telling == "costs":
        costs = np.where(success, costs, 4 * costs)
    else:
        ends = np.where(success[..., None], 0.01 * ends, ends)
    return evidence({"a": costs}, ends), torch.from_numpy(success)


def test_density_is_an_input_where_folds_gain_by_it() -> None:
    e, success = dense(0, "ends")
    seen = torch.ones_like(success)
    fitted = fit_logs(e, success, seen, ["a"], ["a"])
    assert fitted.density == ("a",)
    assert fitted.held_out == 30 > fit_logs(e, success, seen, ["a"]).held_out
    assert fitted.weights[1] > fitted.weights[0]
    assert success.gather(1, best(fitted(e), e.ids)[:, None]).all()


def test_density_is_no_input_where_folds_gain_nothing() -> None:
    e, success = dense(0, "costs")
    seen = torch.ones_like(success)
    fitted = fit_logs(e, success, seen, ["a"], ["a"])
    assert (fitted.density, len(fitted.weights), fitted.held_out) == ((), 1, 30)
    # A density that cannot tell candidates apart is as good: the first, without it, stays.
    e, success, seen = drawn(0)
    flat = replace(e, latents={"a": torch.zeros_like(e.latents["a"])})
    fitted = fit_logs(flat, success, seen, ("a", "b"), ("a",))
    assert fitted == fit_logs(flat, success, seen, ("a", "b"))


def test_what_density_gains_on_the_starts_it_was_fitted_on_does_not_count() -> None:
    e, success, seen = drawn(115, N=20)  # a seed for which it does
    without, with_it = (folds_by_hand(e, success, seen, ("b",), c) for c in ((), ("a",)))
    assert with_it[0] > without[0]
    assert with_it[1] < without[1]
    assert fit_logs(e, success, seen, ("b",), ("a",)).density == ()


# ------------------------------------------------------------------------------------ errors


def test_negative_costs_are_refused() -> None:
    e = evidence({"a": [[1.0, 2.0]], "b": [[1.0, -1e-9]]})
    with pytest.raises(DjepaError, match=r"not negative\. Mix ranks instead"):
        mixture_inputs(e, ("a", "b"))
    with pytest.raises(DjepaError, match="not negative"):
        fit_logs(e, torch.tensor([[True, False]]), torch.ones(1, 2).bool(), ("b",))
    mixture_inputs(e, ("a",))  # one that is no input may be


def test_a_density_belongs_to_a_log_mixture() -> None:
    with pytest.raises(DjepaError, match="set mixture to log"):
        AlignConfig(density=("lewm",))
    with pytest.raises(DjepaError, match="set mixture to log"):
        AlignConfig(density=("lewm",), mixture="ranks")
    with pytest.raises(DjepaError, match="Did you mean 'log'"):
        AlignConfig(mixture="logs")  # type: ignore[arg-type]
    assert AlignConfig(density=("lewm",), mixture="log").latents == ("lewm", "tdjepa")


# --------------------------------------------------------------------------------- alignment


@pytest.mark.parametrize("telling", ["costs", "ends"])
def test_an_alignment_with_a_log_mixture_comes_back_as_it_was(telling: str, tmp_path: Path) -> None:
    e, success = dense(1, telling)
    outcomes = Outcomes(e.identities, success, torch.ones_like(success))
    config = AlignConfig(
        dense=(), ranked=("a",), base=("a",), mixture="log", density=("a",), updates=4, rate=1e-2
    )
    first, last = torch.arange(20), torch.arange(20, 30)
    alignment = Alignment(config).fit(e.rows(first), outcomes.rows(first))
    alignment.calibrate(e.rows(last), outcomes.rows(last))
    fusion = alignment.report.fusion  # type: ignore[union-attr]
    assert isinstance(fusion, LogMixture)
    assert fusion.density == (("a",) if telling == "ends" else ())
    save_alignment(alignment, tmp_path / "a", {})
    again = load_alignment(tmp_path / "a")
    assert (again.config, again.gate, again.report) == (config, alignment.gate, alignment.report)
    new, _ = dense(2, telling)
    before, after = alignment.decide(new), again.decide(new)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert torch.equal(after.base, fusion(new))
