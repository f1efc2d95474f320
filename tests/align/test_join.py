"""Several populations as one, and few executed candidates of many."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from djepa.align.fit import AlignConfig, Alignment
from djepa.align.methods import Population
from djepa.align.outcomes import Outcomes
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence, join
from djepa.studies.populations import thinned

MakeProblem = Callable[..., tuple[Evidence, Outcomes]]


@pytest.fixture
def parts(problem: MakeProblem) -> list[Population]:
    """Three, five and one starts."""
    sizes = {"T": 3, "L": 5, "Z": 1}
    return [Population(*problem(split, N=n, observed=0.6)) for split, n in sizes.items()]


def marked(part: Evidence, look: str) -> Evidence:
    return replace(part, identities=tuple(f"{name}@{look}" for name in part.identities))


# --------------------------------------------------------------------------- joined


def test_rows_stay_in_order(parts: list[Population]) -> None:
    whole = Population.join(parts)
    evidence, outcomes = whole.evidence, whole.outcomes
    assert evidence.identities == (*(f"T-{n}" for n in range(3)), *(f"L-{n}" for n in range(5)),
                                   "Z-0")  # fmt: skip
    assert outcomes.identities == evidence.identities
    outcomes.check(evidence)
    assert (evidence.names, list(evidence.latents)) == (("a", "b", "c"), ["a"])
    first = 0
    for part in parts:
        rows = torch.arange(first, first + len(part.evidence))
        some = whole.rows(rows)
        assert some.evidence.identities == part.evidence.identities
        for what in ("ids", "costs"):
            assert torch.equal(getattr(some.evidence, what), getattr(part.evidence, what))
        for what in ("latents", "goals"):
            held, given = (getattr(of.evidence, what)["a"] for of in (some, part))
            assert torch.equal(held, given)
        for what in ("success", "observed", "cost"):
            assert torch.equal(getattr(some.outcomes, what), getattr(part.outcomes, what))
        first += len(rows)
    assert len(evidence) == first == 9


def test_one_population_is_itself(parts: list[Population]) -> None:
    alone = Population.join(parts[:1])
    assert alone.evidence.identities == parts[0].evidence.identities
    assert torch.equal(alone.evidence.costs, parts[0].evidence.costs)
    assert torch.equal(alone.outcomes.success, parts[0].outcomes.success)


def test_the_order_is_the_one_that_is_given(parts: list[Population]) -> None:
    back = Population.join(parts[::-1])
    assert [name[0] for name in back.evidence.identities] == list("ZLLLLLTTT")
    again = back.rows(torch.tensor([6, 7, 8, 1, 2, 3, 4, 5, 0]))
    whole = Population.join(parts)
    assert again.evidence.identities == whole.evidence.identities
    assert torch.equal(again.evidence.costs, whole.evidence.costs)
    assert torch.equal(again.outcomes.observed, whole.outcomes.observed)


def test_a_start_stands_once(parts: list[Population]) -> None:
    first = parts[0].evidence
    with pytest.raises(DjepaError, match="A start ID stands twice"):
        join([first, parts[1].evidence, first])
    with pytest.raises(DjepaError, match="A start ID stands twice"):
        Population.join([parts[0], parts[0].rows(torch.tensor([2]))])
    looks = join([marked(first, "clean"), marked(first, "dark")])  # two looks are two rows
    assert looks.identities[:4] == ("T-0@clean", "T-1@clean", "T-2@clean", "T-0@dark")


def test_geometries_are_the_same(parts: list[Population]) -> None:
    """By name, in order; and those whose latents are known."""
    one, other = parts[0].evidence, parts[1].evidence
    fewer = replace(other, names=("a", "b"), costs=other.costs[..., :2])
    turned = replace(other, names=("b", "a", "c"), costs=other.costs[..., [1, 0, 2]])
    blind = replace(other, latents={}, goals={})
    for odd in (fewer, turned, blind):
        for both in ([one, odd], [odd, one]):
            with pytest.raises(DjepaError, match="different geometries cannot be joined"):
                join(both)
    with pytest.raises(DjepaError, match="different geometries cannot be joined"):
        Population.join([parts[0], replace(parts[1], evidence=fewer)])


def test_costs_are_kept_where_all_have_them(parts: list[Population]) -> None:
    bare = replace(parts[1], outcomes=replace(parts[1].outcomes, cost=None))
    assert Population.join([parts[0], bare]).outcomes.cost is None
    assert Population.join([bare]).outcomes.cost is None
    whole = Population.join(parts[:2]).outcomes.cost
    assert whole is not None
    assert whole.shape == (8, 12)


def test_a_fit_on_joined_parts_is_the_fit_on_all_of_them(problem: MakeProblem) -> None:
    """What a join leaves is a population like any other."""
    evidence, outcomes = problem("fit", N=16)
    whole = Population(evidence, outcomes)
    halves = [whole.rows(torch.arange(0, 9)), whole.rows(torch.arange(9, 16))]
    config = AlignConfig(dense=("a",), ranked=("a", "b"), base=("a", "b"), updates=3, every=1)
    joined = Population.join(halves)
    found = [
        Alignment(config).fit(of.evidence, of.outcomes).scores(evidence) for of in (whole, joined)
    ]
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


# --------------------------------------------------------------------------- thinned

K = 63


def outcomes(names: list[str], seen: float = 1.1) -> Outcomes:
    rng = np.random.default_rng(3)
    success, observed = (
        torch.from_numpy(rng.random((len(names), K)) < share) for share in (0.4, seen)
    )
    return Outcomes(tuple(names), success, observed, torch.from_numpy(rng.random((len(names), K))))


def drawn(of: Outcomes) -> dict[str, tuple[int, ...]]:
    """Identity -> which candidates count as executed."""
    return {
        name: tuple(row.nonzero().flatten().tolist())
        for name, row in zip(of.identities, of.observed, strict=True)
    }


NAMES = [f"{n:064x}" for n in range(40)]


@pytest.mark.parametrize("few", [1, 16, 62, 63, 100])
def test_so_many_are_executed_of_every_start(few: int) -> None:
    whole = outcomes(NAMES)
    part = thinned(whole, few)
    assert part.observed.sum(1).tolist() == [min(few, K)] * 40
    assert part.identities == whole.identities
    assert part.cost is not None
    assert whole.cost is not None
    assert torch.equal(part.success, whole.success)  # outcomes are those of before
    assert torch.equal(part.cost, whole.cost)
    assert whole.observed.all()  # which stay as they were


def test_every_start_draws_for_itself() -> None:
    found = drawn(thinned(outcomes(NAMES), 16))
    assert len(set(found.values())) == 40
    counts = np.bincount([k for row in found.values() for k in row], minlength=K)
    assert counts.min() > 0  # 10 expected of each candidate
    assert counts.max() < 24


def test_what_was_never_executed_is_not_drawn_instead() -> None:
    whole = outcomes(NAMES, seen=0.5)
    part, full = thinned(whole, 16), thinned(outcomes(NAMES), 16)
    assert torch.equal(part.observed, full.observed & whole.observed)
    assert part.observed.sum() < 16 * 40


def test_every_look_of_a_start_has_the_same_executed_candidates() -> None:
    plain = drawn(thinned(outcomes(NAMES), 16))
    for look in ("clean", "dark"):
        seen = drawn(thinned(outcomes([f"{name}@{look}" for name in NAMES]), 16))
        assert seen == {f"{name}@{look}": of for name, of in plain.items()}


@settings(max_examples=20, deadline=None)
@given(order=st.permutations(NAMES[:12]), count=st.integers(1, 12), few=st.integers(1, K))
def test_draws_depend_on_the_start_alone(order: list[str], count: int, few: int) -> None:
    """Not on which others there are, nor on the order in which they come."""
    whole = drawn(thinned(outcomes(NAMES), few))
    part = drawn(thinned(outcomes(order[:count]), few))
    assert part == {name: whole[name] for name in order[:count]}


def test_fewer_are_among_more() -> None:
    few, many = (drawn(thinned(outcomes(NAMES), n)) for n in (8, 16))
    assert all(set(few[name]) < set(many[name]) for name in NAMES)
