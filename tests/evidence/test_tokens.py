"""Tokens: their layout, reduced directions, extra coordinates."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence
from djepa.evidence.tokens import EXTRAS, NEIGHBOURS, Tokens, consensus


def evidence(seed: int = 0, N: int = 4, K: int = 12, D: int = 6, ties: bool = False) -> Evidence:
    rng = np.random.default_rng(seed)
    ends = {name: rng.normal(size=(N, K, D)).astype(np.float32) for name in "ab"}
    costs = {name: rng.random((N, K)) for name in "abc"}
    if ties:  # many candidates with the same end and cost
        ends = {name: end[:, np.arange(K) // 3] for name, end in ends.items()}
        costs = {name: cost.round(1) for name, cost in costs.items()}
    ids = rng.random((N, K)).argsort(1) * 3
    goals = {name: rng.normal(size=(N, D)).astype(np.float32) for name in "ab"}
    return Evidence.from_arrays([f"{seed}-{n}" for n in range(N)], ids, costs, ends, goals)


def test_published_layout() -> None:
    e = evidence()
    tokens = Tokens.fit(e, ["a", "b"], ["a", "b", "c"])(e)
    assert tokens.dtype == torch.float32
    parts = [e.directions("a"), e.directions("b"), e.ranks(["a", "b", "c"]).float()]
    assert torch.equal(tokens, torch.cat(parts, dim=-1))
    assert torch.equal(Tokens.fit(e, [], ["c"])(e), e.ranks(["c"]).float())


def test_reduced_directions_are_principal() -> None:
    e = evidence(N=30)
    tokens = Tokens.fit(e, ["a"], [], reduce=2)
    d = e.directions("a").flatten(0, 1)
    _, _, v = torch.linalg.svd(d, full_matrices=False)
    kept = tokens.directions["a"]
    torch.testing.assert_close((kept.T @ v[:2].T).abs(), torch.eye(2), atol=1e-4, rtol=0)
    assert (kept.gather(0, kept.abs().argmax(0, keepdim=True)) > 0).all()  # a fixed sign
    torch.testing.assert_close(tokens(e), (d @ kept).view(30, 12, 2))


def test_more_directions_than_there_are() -> None:
    e = evidence(D=3)
    assert Tokens.fit(e, ["a"], ["a"], reduce=8)(e).shape[-1] == 4


def test_extras_by_hand() -> None:
    ends = [[[0.0], [1.0], [10.0]]]
    e = Evidence.from_arrays(
        ["s"],
        [[1, 2, 3]],
        {"a": [[1.0, 2.0, 4.0]], "b": [[3.0, 1.0, 2.0]]},
        {"a": np.float32(ends)},
        {"a": [[0.0]]},
    )
    tokens = Tokens.fit(e, ["a"], ["a", "b"], EXTRAS)(e)[0, :, 1:]  # a direction of width 1 is 0
    spread = float(np.std([1.0, 2.0, 4.0], ddof=1))
    # mean distance to the (two) neighbours: 5.5, 5, 9.5
    assert consensus(e, "a").tolist() == [[5.5, 5.0, 9.5]]
    expected = [
        # ranks a, b | gap a, b | log a, b | density a | best, worst rank
        [0.0, 1.0, 0.0, 2.0, 0.0, np.log(3), 0.5, 0.0, 1.0],
        [0.5, 0.0, 1 / spread, 0.0, np.log(2), 0.0, 0.0, 0.0, 0.5],
        [1.0, 0.5, 3 / spread, 1.0, np.log(4), np.log(2), 1.0, 0.5, 1.0],
    ]
    torch.testing.assert_close(tokens, torch.tensor(expected).float())


def test_equal_costs_have_no_gap() -> None:
    e = Evidence.from_arrays(["s"], [[1, 2]], {"a": [[2.0, 2.0]]})
    assert Tokens.fit(e, [], ["a"], ["gap"])(e).tolist() == [[[0.0, 0.0], [1.0, 0.0]]]


def test_neighbours_do_not_include_oneself() -> None:
    e = evidence(K=40)
    end = e.terminals["a"].double()
    gaps = (end[:, :, None] - end[:, None]).square().sum(-1).sqrt()
    gaps += torch.diag(torch.full((40,), torch.inf))
    expected = gaps.sort(-1).values[..., :NEIGHBOURS].mean(-1)
    torch.testing.assert_close(consensus(e, "a"), expected, atol=1e-6, rtol=1e-5)


def test_far_from_the_origin_neighbours_are_still_told_apart() -> None:
    e = evidence(K=40)
    far = {"a": e.terminals["a"] * 2**-10 + 64}
    moved = Evidence.from_arrays(e.identities, e.ids, {"a": e.costs[..., 0]}, far, e.goals)
    end = far["a"].double()
    gaps = (end[:, :, None] - end[:, None]).square().sum(-1).sqrt()
    expected = gaps.sort(-1).values[..., 1 : 1 + NEIGHBOURS].mean(-1)
    torch.testing.assert_close(consensus(moved, "a"), expected, atol=1e-8, rtol=1e-4)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 60), st.booleans(), st.sampled_from([0, 3]))
def test_candidate_order_changes_nothing(seed: int, K: int, ties: bool, reduce: int) -> None:
    e = evidence(seed, N=2, K=K, ties=ties)
    tokens = Tokens.fit(e, ["a"], ["a", "b", "c"], EXTRAS, reduce)
    p = torch.from_numpy(np.random.default_rng(seed).permutation(K))
    mixed = tokens(e.columns(p.expand(2, K)))
    torch.testing.assert_close(mixed, tokens(e)[:, p], atol=1e-5, rtol=1e-5)


def test_names_and_numbers_that_make_no_token() -> None:
    e = evidence()
    with pytest.raises(DjepaError, match="Did you mean 'density'"):
        Tokens.fit(e, ["a"], ["a"], ["densty"])
    with pytest.raises(DjepaError, match="geometry 'z'"):
        Tokens.fit(e, ["a"], ["z"])(e)
    with pytest.raises(DjepaError, match="terminal latents"):
        Tokens.fit(e, ["c"], ["a"])(e)
    with pytest.raises(DjepaError, match="density"):
        Tokens.fit(e, [], ["c"], ["density"])
    with pytest.raises(DjepaError, match="reduce"):
        Tokens.fit(e, ["a"], ["a"], reduce=-1)
    with pytest.raises(DjepaError, match="at least one coordinate"):
        Tokens.fit(e, [], [])


def test_the_width_is_that_of_the_fit() -> None:
    """Terminal latents that were not there at the fit add no coordinate."""
    e = evidence()
    few = Evidence(e.identities, e.ids, e.names, e.costs, {"a": e.terminals["a"]}, e.goals)
    tokens = Tokens.fit(few, ["a"], ["a", "b"], ["density"])
    assert torch.equal(tokens(e), tokens(few))
