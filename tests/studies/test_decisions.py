"""Rows by hand: which starts are eligible, what was chosen, what that led to."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from djepa.align.methods import Choice, Population, native
from djepa.bank.read import Bank
from djepa.studies import decisions
from djepa.studies.decisions import bounds, endpoint, rows_of, solved
from djepa.studies.populations import near_boundary

MakePopulation = Callable[..., Population]
BANK: Any = SimpleNamespace(hash="0123456789abcdef" * 4)


def squares(*distances: float) -> list[float]:
    return [d * d for d in distances]


def check(population: MakePopulation, costs: list[float], won: list[bool], **others: Any) -> bool:
    return bool(near_boundary(population([costs], [won], **others))[0])


def test_distances_differ_by_at_most_a_quarter(population: MakePopulation) -> None:
    """|5 - 3| / (5 + 3) is a quarter exactly; whichever of them succeeds."""
    for won in ([True, False, False], [False, True, False]):
        assert check(population, squares(3, 5, 9), won)
        assert not check(population, squares(3, 5.001, 9), won)
        assert check(population, squares(3, 4.999, 9), won)
    assert check(population, squares(3, 3, 9), [True, False, False])  # a tie is no difference


def test_of_each_outcome_the_nearest_counts(population: MakePopulation) -> None:
    # The second success (4 against a failure at 5) would pass; the first (2) does not.
    assert not check(population, squares(2, 4, 5), [True, True, False])
    assert not check(population, squares(2, 4, 5), [False, False, True])


def test_both_at_the_goal_differ_by_nothing(population: MakePopulation) -> None:
    assert check(population, [0.0, 0.0, 1.0], [True, False, False])
    assert not check(population, [0.0, 1e-12, 1.0], [True, False, False])


@pytest.mark.parametrize("value", [True, False])
def test_a_start_needs_both_outcomes(population: MakePopulation, value: bool) -> None:
    assert not check(population, [1.0, 1.0, 1.0], [value] * 3)
    assert not check(population, [0.0, 0.0, 0.0], [value] * 3)


@pytest.mark.parametrize("value", [True, False])
def test_both_among_the_sixteen_best(population: MakePopulation, value: bool) -> None:
    """The sixteenth counts, the seventeenth does not, near as it is."""
    costs = [1 + 0.001 * k for k in range(20)]
    for place, expected in ((15, True), (16, False)):
        won = [not value] * 20
        won[place] = value
        assert check(population, costs, won) == expected
        assert check(population, costs[::-1], won[::-1]) == expected  # wherever they stand


def test_the_shortlist_settles_ties_by_id(population: MakePopulation) -> None:
    won = [False] * 17
    won[3] = True
    early, late = list(range(17)), list(range(17))
    late[3] = 99  # behind the sixteen others
    for ids, expected in ((early, True), (late, False)):
        assert check(population, [1.0] * 17, won, ids=[ids]) == expected


def test_another_geometry_does_not_matter(population: MakePopulation) -> None:
    others = {"lewm": [squares(1, 9, 9)]}
    assert check(population, squares(3, 5, 9), [True, False, False], others=others)
    far = population([squares(1, 9, 9)], [[True, False, False]], others={"lewm": [[1.0, 1.0, 1.0]]})
    assert not near_boundary(far)[0]
    assert near_boundary(far, "lewm")[0]


@pytest.fixture
def two(population: MakePopulation) -> Population:
    """The first start is eligible, the second is not."""
    return population(
        [squares(3, 5, 9), squares(1, 5, 9)],
        [[False, True, False], [True, False, True]],
        ids=[[40, 7, 11], [5, 6, 2]],
        task=[[1.25, 0.1234567, 3.0], [0.5, 2.0, 0.75]],
    )


def test_rows_by_hand(two: Population) -> None:
    choices = {
        "native tdjepa": native("tdjepa")(two.evidence),
        "D-JEPA": Choice(
            torch.tensor([1, 2]), torch.zeros(2, 3), opened=torch.tensor([True, False])
        ),
    }
    about = ("pusht", "decoy", "push.v1", BANK.hash)
    rows = rows_of(choices, two, about, near_boundary(two), {"D-JEPA": "fedcba9876543210"})
    assert [(r.method, r.start) for r in rows] == [
        ("native tdjepa", 0),
        ("native tdjepa", 1),
        ("D-JEPA", 0),
        ("D-JEPA", 1),
    ]
    assert [r.chosen for r in rows] == [40, 5, 7, 2]
    assert [r.success for r in rows] == [False, True, True, True]
    assert [r.cost for r in rows] == [1.25, 0.5, 0.123457, 0.75]
    assert [r.eligible for r in rows] == [True, False, True, False]
    assert [r.opened for r in rows] == [False, False, True, False]
    assert [r.checkpoint for r in rows] == ["", "", "fedcba987654", "fedcba987654"]
    assert {r.identity for r in rows} == {name[:16] for name in two.evidence.identities}
    assert {(r.study, r.pools, r.rule, r.bank) for r in rows} == {
        ("pusht", "decoy", "push.v1", "0123456789ab")
    }
    assert all(type(r.success) is bool and type(r.chosen) is int for r in rows)


def test_solved_reads_the_chosen_candidates(two: Population) -> None:
    for at, expected in (([0, 0], [False, True]), ([1, 1], [True, False]), ([2, 2], [False, True])):
        found = solved(Choice(torch.tensor(at), torch.zeros(2, 3)), two)
        np.testing.assert_array_equal(found, expected)


@pytest.fixture
def many(population: MakePopulation) -> Population:
    """Two hundred starts, of which some cannot be solved and some cannot fail."""
    rng = np.random.default_rng(0)
    task = rng.random((200, 9)) + rng.random((200, 1)) * 1.4 - 0.2
    return population(
        rng.random((200, 9)), task < 1, ids=rng.random((200, 9)).argsort(1), task=task
    )


@pytest.fixture
def ruled(many: Population, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], dict[str, Choice]]:
    """Bounds with realised costs that run against the candidates' positions."""
    realised = -np.tile(np.arange(9.0, dtype=np.float32), (200, 1))
    monkeypatch.setattr(decisions, "load_geometry", lambda name, device: name)
    monkeypatch.setattr(
        decisions, "realised_costs", lambda model, bank, device: {"lewm": realised}[model]
    )
    return lambda bank: bounds(bank, many, "lewm", "cpu")


def test_the_oracle_solves_whatever_can_be_solved(
    many: Population, ruled: Callable[[Any], dict[str, Choice]]
) -> None:
    can = many.outcomes.success.any(1).numpy()
    assert 0 < can.sum() < len(can)
    np.testing.assert_array_equal(solved(ruled(BANK)["oracle"], many), can)


def test_realised_costs_choose_by_themselves(ruled: Callable[[Any], dict[str, Choice]]) -> None:
    assert (ruled(BANK)["realised lewm"].position == 8).all()


def test_chance_is_the_banks_own_and_knows_nothing(
    many: Population, ruled: Callable[[Any], dict[str, Choice]]
) -> None:
    first, again = (ruled(BANK)["random"].position for _ in range(2))
    assert torch.equal(first, again)
    other = ruled(SimpleNamespace(hash="f" * 64))["random"].position
    assert not torch.equal(first, other)
    counts = torch.bincount(first, minlength=9)
    assert counts.min() > 8  # 22 expected of each position, within three deviations
    many.outcomes.success.bitwise_not_()
    assert torch.equal(ruled(BANK)["random"].position, first)


def test_the_pusher_ends_where_its_controls_lead(small_bank: Bank) -> None:
    """The rule finds by the controls alone what execution showed of the pusher."""
    known, seen = small_bank.decisions, small_bank.outcomes
    ids = torch.from_numpy(np.array(known.candidate_ids))
    chosen = endpoint(small_bank, ids)["endpoint"]
    far = np.linalg.norm(seen.states[:, :, -1, :2] - known.goal[:, None, :2], axis=-1)
    assert torch.equal(chosen.score, torch.from_numpy(far))
    assert chosen.position.tolist() == np.lexsort((known.candidate_ids, far), axis=1)[:, 0].tolist()


def test_a_world_without_such_a_rule_has_no_row() -> None:
    bank: Any = SimpleNamespace(
        config=SimpleNamespace(task=SimpleNamespace(endpoint=None)), decisions=None
    )
    assert endpoint(bank, torch.zeros(1, 2)) == {}
