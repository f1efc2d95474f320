"""Blocks of starts: results are those of all starts at once."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from djepa.align.fusion import fit_fusion
from djepa.align.gates import Gate
from djepa.align.mixture import fit_logs
from djepa.errors import DjepaError
from djepa.evidence import blocks, tokens
from djepa.evidence.blocks import Filled, filled, in_blocks, join_ids, shared, slices
from djepa.evidence.evidence import Evidence
from djepa.evidence.ranks import ascending, best, check_pools, check_values, order, ordinal_ranks
from djepa.evidence.tokens import Tokens

N, K, D = 23, 7, 3


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def pools(seed: int = 1) -> Tensor:
    return numbers(N, K, seed=seed).argsort(dim=1)


def evidence() -> Evidence:
    return Evidence.from_arrays(
        start_ids=range(N),
        candidate_ids=pools(),
        costs={"a": numbers(N, K, seed=2), "b": numbers(N, K, seed=3)},
        latents={"a": numbers(N, K, D, seed=4)},
        goals={"a": numbers(N, D, seed=5)},
    )


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks of two starts, distances of one start at a time, no tokens in memory."""
    with monkeypatch.context() as patch:
        patch.setattr(blocks, "CANDIDATES", 2 * K)
        patch.setattr(tokens, "AT_ONCE", K * K)
        patch.setattr(tokens, "KEPT", 0)
        yield


def test_a_block_is_small_and_all_are_seen_once(small: None) -> None:
    sizes = list[int]()

    def work(scores: Tensor, ids: Tensor) -> Tensor:
        sizes.append(len(scores))
        return scores + ids

    scores, ids = numbers(N, K), pools()
    assert torch.equal(in_blocks(work, scores, ids), scores + ids)
    assert sizes == [2] * 11 + [1]
    sizes.clear()  # a row of IDs for all pools is broadcast, and one pool has no blocks
    assert torch.equal(in_blocks(work, scores, ids[:1]), scores + ids[:1])
    assert torch.equal(in_blocks(work, scores[0], ids[0]), scores[0] + ids[0])
    assert sizes == [N, K]
    assert [(at.start, at.stop) for at in slices(5, 2)] == [(0, 2), (2, 4), (4, 5)]


def test_arrays_are_filled_in_order() -> None:
    parts = [numbers(3, 2, seed=7), numbers(1, 2, seed=8)]
    assert torch.equal(filled(iter(parts), 4), torch.cat(parts))
    assert filled(iter(parts[:1]), 3) is parts[0]  # one part is not copied
    whole = Filled(4)
    whole.add()
    for part in parts:
        whole.add(x=part, y=part[:, 0] > 0.5)
    assert torch.equal(whole.arrays["y"], torch.cat(parts)[:, 0] > 0.5)


def test_pools_with_the_same_ids_are_one_row_in_memory() -> None:
    ids = torch.arange(1, K + 1).expand(N, -1).contiguous()
    one = shared(ids)
    assert torch.equal(one, ids)
    assert one.untyped_storage().nbytes() == K * 8
    joined = join_ids([one, shared(ids[:2])])
    assert torch.equal(joined, torch.cat([ids, ids[:2]]))
    assert joined.untyped_storage().nbytes() == K * 8
    assert shared(other := pools()) is other
    assert torch.equal(join_ids([one, other]), torch.cat([ids, other]))


def test_blocks_change_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    e, success = evidence(), numbers(N, K, seed=6) < 0.4
    seen = numbers(N, K, seed=9) < 0.9
    quality, some = numbers(N, K, seed=10).double(), torch.tensor([3, 0, 19])
    score, make = numbers(N, K, seed=11), Tokens(("a",), ("a", "b"), ("log", "agreement"))

    def results() -> list[object]:
        found: list[object] = [order(score, e.ids), best(score, e.ids), ordinal_ranks(score, e.ids)]
        found += [e.ranks(), make.reader(e)(some), Gate().advantage(e.cost("a"), score, e.ids)]
        found += [fit_fusion(e.ranks(), e.ids, success, observed=seen, quality=q)
                  for q in (None, quality)]  # fmt: skip
        for worth in (success, quality):
            found += [mixture := fit_logs(e, worth, seen, ("a", "b"), ("a",), True), mixture(e)]
        return found

    whole = results()
    assert make.kept(e)
    monkeypatch.setattr(blocks, "CANDIDATES", 2 * K)
    monkeypatch.setattr(tokens, "AT_ONCE", K * K)
    monkeypatch.setattr(tokens, "KEPT", 0)
    assert not make.kept(e)
    for ours, theirs in zip(results(), whole, strict=True):
        same = torch.equal(ours, theirs) if isinstance(ours, Tensor) else ours == theirs  # type: ignore[arg-type]
        assert same, (ours, theirs)


def test_an_error_names_the_start_and_not_its_place_in_a_block(small: None) -> None:
    ids, scores = pools(), numbers(N, K)
    ids[17, 1] = ids[17, 0]
    with pytest.raises(DjepaError, match="start 17 has a candidate ID twice"):
        check_pools(ids)
    scores[18, 2] = torch.nan
    with pytest.raises(DjepaError, match="cost of start 18 holds a NaN"):
        check_values(ids, cost=scores)


def test_candidates_in_order_of_id() -> None:
    assert ascending(torch.tensor([[1, 2, 9], [0, 4, 5]]))
    assert not ascending(torch.tensor([[1, 2, 9], [0, 5, 4]]))


def test_costs_keep_the_width_in_which_they_are_given() -> None:
    narrow = evidence()
    assert (narrow.costs.dtype, narrow.cost("b").dtype) == (torch.float32, torch.float64)
    assert torch.equal(narrow.cost("b"), numbers(N, K, seed=3).double())
    given = {"a": numbers(N, K), "b": numbers(N, K).double() / 3}
    wide = Evidence.from_arrays(start_ids=range(N), candidate_ids=pools(), costs=given)
    assert wide.costs.dtype == torch.float64
    assert torch.equal(wide.cost("b"), given["b"])
