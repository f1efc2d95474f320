"""Tokens: their layout and extra coordinates; the pool density."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence
from djepa.evidence.tokens import NEIGHBOURS, Tokens, consensus

EXTRAS = ("log", "agreement")


def evidence(seed: int = 0, N: int = 4, K: int = 12, D: int = 6, ties: bool = False) -> Evidence:
    rng = np.random.default_rng(seed)
    ends = {name: rng.normal(size=(N, K, D)).astype(np.float32) for name in "ab"}
    costs = {name: rng.random((N, K)) for name in "abc"}
    if ties:  # many candidates with the same end and cost
        ends = {name: end[:, np.arange(K) // 3] for name, end in ends.items()}
        costs = {name: cost.round(1) for name, cost in costs.items()}
    ids = rng.random((N, K)).argsort(1) * 3
    goals = {name: rng.normal(size=(N, D)).astype(np.float32) for name in "ab"}
    return Evidence.from_arrays(
        start_ids=[f"{seed}-{n}" for n in range(N)],
        candidate_ids=ids,
        costs=costs,
        latents=ends,
        goals=goals,
    )


def test_published_layout() -> None:
    e = evidence()
    tokens = Tokens(("a", "b"), ("a", "b", "c"))(e)
    assert tokens.dtype == torch.float32
    parts = [e.directions("a"), e.directions("b"), e.ranks(["a", "b", "c"]).float()]
    assert torch.equal(tokens, torch.cat(parts, dim=-1))
    assert torch.equal(Tokens((), ("c",))(e), e.ranks(["c"]).float())


def test_raw_latents_enter_as_they_are() -> None:
    e = evidence()
    tokens = Tokens((), ("a",), (), ("b",))(e)
    assert torch.equal(tokens, torch.cat([e.ranks(["a"]).float(), e.latents["b"]], dim=-1))
    assert torch.equal(Tokens((), (), (), ("b",))(e), e.latents["b"])
    with pytest.raises(DjepaError, match="last latents of"):
        Tokens((), (), (), ("c",))(e)


def test_extras_by_hand() -> None:
    ends = [[[0.0], [1.0], [10.0]]]
    e = Evidence.from_arrays(
        start_ids=["s"],
        candidate_ids=[[1, 2, 3]],
        costs={"a": [[1.0, 2.0, 4.0]], "b": [[3.0, 1.0, 2.0]]},
        latents={"a": np.float32(ends)},
        goals={"a": [[0.0]]},
    )
    tokens = Tokens(("a",), ("a", "b"), EXTRAS)(e)[0, :, 1:]  # a direction of width 1 is 0
    # mean distance to the (two) neighbours: 5.5, 5, 9.5
    assert consensus(e, "a").tolist() == [[5.5, 5.0, 9.5]]
    expected = [
        # ranks a, b | log a, b | best, worst rank
        [0.0, 1.0, 0.0, np.log(3), 0.0, 1.0],
        [0.5, 0.0, np.log(2), 0.0, 0.0, 0.5],
        [1.0, 0.5, np.log(4), np.log(2), 0.5, 1.0],
    ]
    torch.testing.assert_close(tokens, torch.tensor(expected).float())


def test_neighbours_do_not_include_oneself() -> None:
    e = evidence(K=40)
    end = e.latents["a"].double()
    gaps = (end[:, :, None] - end[:, None]).square().sum(-1).sqrt()
    gaps += torch.diag(torch.full((40,), torch.inf))
    expected = gaps.sort(-1).values[..., :NEIGHBOURS].mean(-1)
    torch.testing.assert_close(consensus(e, "a"), expected, atol=1e-6, rtol=1e-5)


def test_far_from_the_origin_neighbours_still_differ() -> None:
    e = evidence(K=40)
    far = {"a": e.latents["a"] * 2**-10 + 64}
    moved = Evidence.from_arrays(
        start_ids=e.identities,
        candidate_ids=e.ids,
        costs={"a": e.costs[..., 0]},
        latents=far,
        goals=e.goals,
    )
    end = far["a"].double()
    gaps = (end[:, :, None] - end[:, None]).square().sum(-1).sqrt()
    expected = gaps.sort(-1).values[..., 1 : 1 + NEIGHBOURS].mean(-1)
    torch.testing.assert_close(consensus(moved, "a"), expected, atol=1e-8, rtol=1e-4)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 60), st.booleans())
def test_candidate_order_changes_nothing(seed: int, K: int, ties: bool) -> None:
    e = evidence(seed, N=2, K=K, ties=ties)
    tokens = Tokens(("a",), ("a", "b", "c"), EXTRAS)
    p = torch.from_numpy(np.random.default_rng(seed).permutation(K))
    mixed = tokens(e.columns(p.expand(2, K)))
    torch.testing.assert_close(mixed, tokens(e)[:, p], atol=1e-5, rtol=1e-5)


def test_names_and_numbers_that_make_no_token() -> None:
    e = evidence()
    with pytest.raises(DjepaError, match="Did you mean 'agreement'"):
        Tokens(("a",), ("a",), ("agrement",))
    with pytest.raises(DjepaError, match="geometry 'z'"):
        Tokens(("a",), ("z",))(e)
    with pytest.raises(DjepaError, match="last latents"):
        Tokens(("c",), ("a",))(e)
    with pytest.raises(DjepaError, match="at least one coordinate"):
        Tokens((), ())


def test_the_width_is_that_of_the_tokens() -> None:
    """Latents that are not asked for add no coordinate."""
    e = evidence()
    few = Evidence(e.identities, e.ids, e.names, e.costs, {"a": e.latents["a"]}, e.goals)
    tokens = Tokens(("a",), ("a", "b"), EXTRAS)
    assert torch.equal(tokens(e), tokens(few))


def test_many_starts_at_once_have_the_density_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    e = evidence(N=5)
    whole = consensus(e, "a")
    monkeypatch.setattr("djepa.evidence.tokens.AT_ONCE", 2 * 12**2)
    assert torch.equal(consensus(e, "a"), whole)
