"""Budgets are subsets that every method shares; lifting is counted, not assumed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from djepa.align.methods import Choice, Mixture, Population, densest, native
from djepa.evidence.evidence import Evidence
from djepa.evidence.ranks import best, strict_ranks
from djepa.models.predictions import Predictions
from djepa.studies.decisions import solved
from djepa.studies.measures import lifting
from djepa.studies.measures.budget import budgets, nested, smaller

MakePopulation = Callable[..., Population]
N, K = 30, 40
SEEDS = (9201, 9202, 9203)


@pytest.fixture
def pool(population: MakePopulation) -> Population:
    rng = np.random.default_rng(3)
    return population(
        rng.random((N, K)),
        rng.random((N, K)) < 0.3,
        ids=rng.random((N, K)).argsort(1) + 100,
        others={"lewm": rng.random((N, K))},
    )


CHOOSERS = {
    "native tdjepa": native("tdjepa"),
    "consensus": densest("tdjepa"),
    "fusion, two": Mixture(("lewm", "tdjepa"), (0.3, 0.7)),
}


def mixed(pool: Population) -> Population:
    """The same candidates in another order."""
    at = torch.from_numpy(np.random.default_rng(5).random((N, K)).argsort(1))
    return Population(pool.evidence.columns(at), pool.outcomes.columns(at))


def id_sets(evidence: Evidence, seed: int, k: int) -> list[set[int]]:
    ids = evidence.ids.gather(1, nested(evidence, seed)[:, :k])
    return [set(row) for row in ids.tolist()]


def test_subsets_of_a_seed_are_nested_and_of_another_differ(pool: Population) -> None:
    order = nested(pool.evidence, 9201)
    assert torch.equal(order.sort(dim=1).values, torch.arange(K).expand(N, K))
    for few, many in ((8, 16), (16, 32)):
        for small, large in zip(
            id_sets(pool.evidence, 9201, few), id_sets(pool.evidence, 9201, many), strict=True
        ):
            assert small < large
    assert id_sets(pool.evidence, 9201, 8) != id_sets(pool.evidence, 9202, 8)
    alike = replace(pool.evidence, ids=torch.arange(K).expand(N, K))
    assert len({tuple(row) for row in nested(alike, 9201).tolist()}) == N  # each draws for itself


def test_subsets_do_not_depend_on_the_order_of_candidates_nor_on_other_starts(
    pool: Population,
) -> None:
    whole = id_sets(pool.evidence, 9201, 8)
    assert id_sets(mixed(pool).evidence, 9201, 8) == whole
    assert id_sets(pool.evidence.rows([4, 2]), 9201, 8) == [whole[4], whole[2]]


def test_smaller_pools_keep_their_order_and_their_outcomes(pool: Population) -> None:
    part = smaller(pool, torch.tensor([[5, 1, 3]] * N))
    assert torch.equal(part.evidence.ids, pool.evidence.ids[:, [1, 3, 5]])
    assert torch.equal(part.evidence.costs, pool.evidence.costs[:, [1, 3, 5]])
    assert torch.equal(part.evidence.latents["lewm"], pool.evidence.latents["lewm"][:, [1, 3, 5]])
    assert torch.equal(part.outcomes.success, pool.outcomes.success[:, [1, 3, 5]])


def test_methods_share_their_subsets(pool: Population) -> None:
    seen: dict[str, list[list[set[int]]]] = {"a": [], "b": []}

    def spy(name: str) -> Callable[[Evidence], Choice]:
        def choose(evidence: Evidence) -> Choice:
            seen[name].append([set(row) for row in evidence.ids.tolist()])
            return native("lewm")(evidence)

        return choose

    found = budgets({name: spy(name) for name in seen}, pool, SEEDS)
    assert seen["a"] == seen["b"]
    assert found["a"] == found["b"]
    sizes = [len(call[0]) for call in seen["a"]]
    assert sizes == [8, 16, 32] * len(SEEDS) + [K]
    assert {k: len(by_seed) for k, by_seed in found["a"].items()} == {8: 3, 16: 3, 32: 3, K: 1}


def test_the_whole_pool_is_the_plain_choice(pool: Population) -> None:
    found = budgets(CHOOSERS, pool, SEEDS)
    for name, choose in CHOOSERS.items():
        assert found[name][K] == [solved(choose(pool.evidence), pool).double().mean()]


def test_within_a_subset_its_own_best_is_chosen(pool: Population) -> None:
    """By hand: the cheapest of the eight drawn, and whether it succeeds."""
    found = budgets(CHOOSERS, pool, SEEDS)["native tdjepa"][8]
    cost, success = pool.evidence.costs[..., 0].numpy(), pool.outcomes.success.numpy()
    for share, seed in zip(found, SEEDS, strict=True):
        drawn = nested(pool.evidence, seed)[:, :8].numpy()
        picks = [row[cost[n, row].argmin()] for n, row in enumerate(drawn)]
        assert share == success[np.arange(N), picks].mean()


def test_budgets_do_not_depend_on_the_order_of_candidates(pool: Population) -> None:
    assert budgets(CHOOSERS, mixed(pool), SEEDS) == budgets(CHOOSERS, pool, SEEDS)


def test_pools_as_small_as_a_subset_are_measured_once(pool: Population) -> None:
    few = smaller(pool, torch.arange(16).expand(N, 16))
    found = budgets(CHOOSERS, few, SEEDS)
    assert all(list(by) == [8, 16] and len(by[16]) == 1 for by in found.values())


@pytest.fixture
def stored(pool: Population, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A function that lifts a choice into random futures around goals of a given size."""

    def run(choice: Choice, size: float = 1.0, starts: int = N) -> Any:
        rng = np.random.default_rng(11)
        futures = rng.normal(size=(starts, K, 5, 16)).astype(np.float16)
        goal = (size * rng.normal(size=(starts, 16))).astype(np.float16)
        given = Predictions(np.zeros((starts, K), np.float32), goal, futures, "")
        asked = []
        monkeypatch.setattr(
            lifting, "read_predictions", lambda bank, name: asked.append(name) or given
        )
        bank: Any = None
        found, drawn = lifting.lift(choice, pool.evidence.rows(range(starts)), bank, "tdjepa")
        assert asked == ["tdjepa"]
        return found, drawn, futures, goal

    return run


def test_lifting_gives_back_every_rank_and_every_choice(
    pool: Population, stored: Callable[..., Any]
) -> None:
    ids = pool.evidence.ids
    score = pool.evidence.costs[..., 1].round(decimals=1)  # with ties: the smaller ID is better
    choice = Choice(best(score, ids), score)
    found, drawn, futures, goals = stored(choice)
    assert found == {
        "geometry": "tdjepa",
        "precision": "float16",
        "starts": N,
        "ranks": N * K,
        "ranks_recovered": N * K,
        "choices_recovered": N,
    }
    wanted = strict_ranks(score, ids).numpy()
    np.testing.assert_array_equal(drawn["wanted"], wanted)
    np.testing.assert_array_equal(drawn["after"], wanted)
    off = torch.from_numpy(futures[:, :, -1]).float() - torch.from_numpy(goals)[:, None].float()
    before = strict_ranks(off.square().mean(-1), ids).numpy()
    np.testing.assert_array_equal(drawn["before"], before)
    assert (before != wanted).mean() > 0.9
    # What is drawn in full is the first start whose choice changes.
    start = int((drawn["before"].argmin(1) != choice.position.numpy()).argmax())
    np.testing.assert_array_equal(drawn["original"], futures[start, :, -1])
    native_choice, aligned = drawn["chosen"].tolist()
    assert aligned == choice.position[start]
    assert native_choice == drawn["before"][start].argmin() != aligned
    away = np.square(drawn["lifted"].astype(float) - drawn["goal"].astype(float)).mean(-1)
    np.testing.assert_array_equal(away.argsort(), wanted[start].argsort())


def test_more_starts_than_one_batch_are_lifted_in_order(
    population: MakePopulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    many = population(rng.random((130, 5)), rng.random((130, 5)) < 0.5)
    futures, goal = rng.normal(size=(130, 5, 2, 8)), rng.normal(size=(130, 8))
    given = Predictions(np.zeros((130, 5), np.float32), goal.astype(np.float16),
                       futures.astype(np.float16), "")  # fmt: skip
    monkeypatch.setattr(lifting, "read_predictions", lambda bank, name: given)
    bank: Any = None
    found, _ = lifting.lift(native("tdjepa")(many.evidence), many.evidence, bank, "tdjepa")
    assert (found["ranks_recovered"], found["choices_recovered"]) == (650, 130)


def test_a_choice_other_than_the_scores_best_is_not_given_back(
    pool: Population, stored: Callable[..., Any]
) -> None:
    score = pool.evidence.costs[..., 0]
    position = best(score, pool.evidence.ids)
    position[:7] = strict_ranks(score, pool.evidence.ids)[:7].argmax(1)
    found, *_ = stored(Choice(position, score))
    assert (found["ranks_recovered"], found["choices_recovered"]) == (N * K, N - 7)


def test_what_rounding_loses_is_counted(pool: Population, stored: Callable[..., Any]) -> None:
    """Around goals in the thousands float16 cannot separate forty ranks: a study must say so."""
    found, drawn, *_ = stored(native("tdjepa")(pool.evidence), size=2000)
    assert found["ranks_recovered"] < found["ranks"]
    assert found["ranks_recovered"] == (drawn["after"] == drawn["wanted"]).sum()
