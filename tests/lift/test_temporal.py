"""The Reacher variant: α by hand, what training may move, and what must not matter to it."""

import copy
import inspect
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save
from torch import Tensor

from djepa.align.fit import Alignment, Decision
from djepa.align.gates import Gate
from djepa.align.methods import Population
from djepa.align.operator import OperatorConfig
from djepa.align.outcomes import Outcomes
from djepa.align.store import load_alignment, save_alignment
from djepa.artefacts.records import sha256
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence
from djepa.evidence.ranks import best, ordinal_ranks
from djepa.lift.temporal import (
    HEAD,
    REACHER,
    TemporalAlignment,
    TemporalConfig,
    Trajectories,
    coefficient_table,
    displacement,
    load_temporal,
    save_temporal,
)
from djepa.lift.temporal_fit import ALPHAS, fit_alpha, fit_temporal
from djepa.lift.transport import transport_loss
from djepa.models.tdjepa import TDJEPA, PlanningCost
from tiny import TINY

QUICK = TemporalConfig(
    align=replace(
        REACHER, updates=12, every=4, rate=3e-3, operator=OperatorConfig(inputs=1, epsilon=0.5)
    )
)


class Problem(NamedTuple):
    population: Population
    paths: Trajectories

    @property
    def evidence(self) -> Evidence:
        return self.population.evidence

    @property
    def outcomes(self) -> Outcomes:
        return self.population.outcomes


def path_cost(futures: Tensor, goal: Tensor) -> Tensor:
    """Mean over steps of the squared distance."""
    return (futures - goal[:, None, None]).square().mean((-1, -2))


def make(split: str, N: int = 64, K: int = 12, D: int = 8, dtype: Any = np.float32) -> Problem:
    """The three directions of T with the lowest first coordinate succeed; native costs are noise.

    L predicts the goal itself, so that moving towards L always lowers the criterion.
    """
    rng = np.random.default_rng([ord(c) for c in split])
    moved = rng.normal(size=(N, K, 5, D)).astype(dtype)
    goal = (0.1 * rng.normal(size=(N, D))).astype(dtype)
    towards = (goal[:, None, None] + 0.01 * rng.normal(size=moved.shape)).astype(dtype)
    away = moved[:, :, -1].astype(float) - goal[:, None]
    first = ((away - away.mean(-1, keepdims=True)) / away.std(-1, keepdims=True))[..., 0]
    success = first.argsort(1).argsort(1) < 3
    evidence = Evidence.from_arrays(
        start_ids=[f"{split}-{n}" for n in range(N)],
        candidate_ids=rng.random((N, K)).argsort(1) + 5,
        costs={name: rng.random((N, K)) + 0.1 * ~success for name in ("lewm", "tdjepa")},
        latents={"lewm": towards[:, :, -1], "tdjepa": moved[:, :, -1]},
        goals={"lewm": goal, "tdjepa": goal},
    )
    outcomes = Outcomes.from_arrays(evidence, success, cost=first - first.min())
    tensors = (torch.from_numpy(x) for x in (towards, moved, goal))
    return Problem(Population(evidence, outcomes), Trajectories(*tensors))


def fitted(config: TemporalConfig = QUICK, criterion: Any = path_cost) -> TemporalAlignment:
    fit = make("fit")
    return fit_temporal(fit.population, fit.paths, make("cal").population, criterion, config)


@pytest.fixture(scope="module")
def quick() -> TemporalAlignment:
    """Moved, not trained. Not to be changed."""
    return fitted()


@pytest.fixture(scope="module")
def learned() -> TemporalAlignment:
    """Trained long enough to solve the problem."""
    return fitted(replace(QUICK, align=replace(QUICK.align, updates=200, every=20, batch=32)))


def same(one: Any, other: Any) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def solved(outcomes: Outcomes, position: Tensor) -> float:
    return float(outcomes.success.gather(1, position[:, None]).double().mean())


def by_hand(
    costs_l: list[float], costs_t: list[float], success: list[bool], paid: list[float]
) -> tuple[Tensor, Tensor, Outcomes]:
    ids = torch.tensor([[1, 2, 3]])
    both = (torch.tensor([x], dtype=torch.float64) for x in (costs_l, costs_t))
    ranks = torch.stack([ordinal_ranks(cost, ids) for cost in both], dim=-1)
    won = torch.tensor([success])
    cost = torch.tensor([paid], dtype=torch.float64)
    return ranks, ids, Outcomes(("a",), won, torch.ones_like(won), cost)


@pytest.mark.parametrize(
    ("success", "paid", "alpha"),
    [
        # L prefers 1, 2, 3 and T 3, 2, 1: 1 wins for α > ½ and, by its ID, at ½; 3 below.
        ([True, False, False], [9.0, 0.0, 0.0], 1.0),  # success first, then the larger α
        ([False, False, True], [0.0, 0.0, 9.0], 0.45),  # the largest α at which 3 wins
        ([False, False, False], [2.0, 0.0, 1.0], 0.45),  # then the smaller cost
        ([True, True, True], [1.0, 0.0, 1.0], 1.0),  # a tie in both
        ([False, True, False], [1.0, 0.0, 2.0], 1.0),  # 2 never wins
    ],
)
def test_alpha_by_hand(success: list[bool], paid: list[float], alpha: float) -> None:
    given = by_hand([1.0, 2.0, 3.0], [3.0, 2.0, 1.0], success, paid)
    found = fit_alpha(*given)
    assert found.weights == (alpha, 1 - alpha)
    assert found.successes == (success[0] if alpha == 1.0 else success[2])
    assert found.folds == ()  # one start has no others to be held out from


def test_alphas_and_what_alpha_may_read() -> None:
    np.testing.assert_allclose(ALPHAS, np.linspace(0, 1, 21), rtol=0, atol=1e-15)
    ranks, ids, outcomes = by_hand([1, 2, 3], [3, 2, 1], [True, False, True], [1.0, 5.0, 2.0])
    assert fit_alpha(ranks, ids, outcomes).weights == (1.0, 0.0)
    hidden = replace(outcomes, observed=torch.tensor([[False, True, True]]))
    assert hidden.cost is not None
    hidden.cost[0, 0] = torch.nan  # 1 was not executed: 3 or 2 win
    assert fit_alpha(ranks, ids, hidden).weights == (0.45, 0.55)
    with pytest.raises(DjepaError, match="task costs"):
        fit_alpha(ranks, ids, replace(outcomes, cost=None))
    with pytest.raises(DjepaError, match="at least one start"):
        fit_alpha(ranks[:0], ids[:0], outcomes.rows(torch.arange(0)))
    held = make("fit")
    full = fit_alpha(held.evidence.ranks(("lewm", "tdjepa")), held.evidence.ids, held.outcomes)
    assert len(full.folds) == 5
    assert 0 < full.held_out <= full.successes


def test_the_published_defaults() -> None:
    c, a = TemporalConfig(), TemporalConfig().align
    assert (a.updates, a.batch, a.rate, a.decay, a.clip, a.every) == (1500, 8, 3e-4, 1e-4, 1.0, 50)
    assert (a.mode, a.decimals, a.policy) == ("base_minus_refined", 8, "conservative")
    assert (c.hidden, c.radius, c.temperature, c.pairs, c.preserve) == (32, 0.1, 0.1, 0.25, 0.02)
    assert a.dense == a.ranked == a.base == ("lewm", "tdjepa")


def test_untrained_it_moves_nothing_and_chooses_by_the_base() -> None:
    fresh, test = fitted(replace(QUICK, align=replace(QUICK.align, updates=0))), make("test")
    moved = fresh.transport(test.evidence, test.paths, path_cost)
    assert torch.equal(moved.futures, test.paths.moved)
    assert not moved.coefficients.any()
    assert torch.equal(moved.before, moved.after)
    torch.testing.assert_close(moved.before, path_cost(test.paths.moved, test.paths.goal))
    decision = fresh.decide(test.evidence)
    assert torch.equal(decision.position, best(decision.base, test.evidence.ids))
    assert [checkpoint.update for checkpoint in fresh.history] == [0]


def test_it_learns_to_choose(learned: TemporalAlignment) -> None:
    test = make("test", N=256)
    decision = learned.decide(test.evidence)
    assert solved(test.outcomes, best(decision.base, test.evidence.ids)) < 0.5
    assert solved(test.outcomes, decision.position) > 0.8
    losses = learned.relational.report.losses  # type: ignore[union-attr]
    assert len(losses) == 10
    assert np.mean(losses[-3:]) < 0.8 * np.mean(losses[:2])


def test_it_learns_to_move(learned: TemporalAlignment) -> None:
    """What should win goes towards the goal, what should lose away: on starts never seen."""
    test = make("test", N=256)
    e, outcomes, paths = test.evidence, test.outcomes, test.paths
    moved = learned.transport(e, paths, path_cost)
    table = coefficient_table(moved.coefficients, moved.ranks, bins=4)
    assert (table[0] > table[-1]).all()
    assert displacement(moved.coefficients)["largest"] <= 0.1
    assert outcomes.cost is not None

    def loss(cost: Tensor, futures: Tensor) -> float:
        still = torch.zeros_like(cost)
        return float(transport_loss(still, cost, futures, paths.moved, *truth))

    truth = (outcomes.success, outcomes.cost, e.ids)
    assert loss(moved.after, moved.futures) < loss(moved.before, paths.moved) - 0.05
    step = (moved.futures - paths.moved).norm(dim=-1)
    torch.testing.assert_close(step, moved.coefficients.abs(), atol=1e-6, rtol=1e-4)


def test_the_checkpoint_is_the_earliest_of_the_best(learned: TemporalAlignment) -> None:
    history, gate = learned.history, learned.relational.gate
    assert [c.update for c in history] == [0, *range(20, 201, 20)]
    key = max((c.successes, -c.cost) for c in history)
    chosen = next(c for c in history if (c.successes, -c.cost) == key)
    assert chosen.update > 0
    assert gate == Gate(chosen.threshold, "base_minus_refined", 8)
    cal = make("cal")
    position = learned.decide(cal.evidence).position[:, None]
    assert int(cal.outcomes.success.gather(1, position).sum()) == chosen.successes
    assert cal.outcomes.cost is not None
    assert float(cal.outcomes.cost.gather(1, position).mean()) == pytest.approx(chosen.cost)


@pytest.mark.parametrize("std", [0.1, 1e4, 1e15])
def test_no_step_moves_further_than_the_bound(std: float, quick: TemporalAlignment) -> None:
    head, test = copy.deepcopy(quick.head), make("test")
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=std, generator=torch.Generator().manual_seed(0))
    wild = replace(quick, head=head)
    moved = wild.transport(test.evidence, test.paths, path_cost)
    assert moved.coefficients.any()
    assert moved.coefficients.double().abs().max() <= 0.1
    assert (moved.futures - test.paths.moved).norm(dim=-1).max() <= 0.1 + 1e-6
    assert same(wild.decide(test.evidence), quick.decide(test.evidence))  # it has no say


def test_weights_and_criteria_that_overflow_are_an_error(quick: TemporalAlignment) -> None:
    test, broken = make("test"), replace(quick, head=copy.deepcopy(quick.head))
    with pytest.raises(DjepaError, match="criterion of start 0 holds a NaN"):
        quick.transport(test.evidence, test.paths, lambda f, g: path_cost(f, g) / 0)
    with pytest.raises(DjepaError, match="criterion is"):
        quick.transport(test.evidence, test.paths, lambda f, g: path_cost(f, g)[:, :3])
    torch.nn.init.constant_(broken.head.down.bias, torch.nan)
    with pytest.raises(DjepaError, match="coefficients of start 0 holds a NaN"):
        broken.transport(test.evidence, test.paths, path_cost)


def test_the_same_seed_gives_the_same_and_touches_nobody_elses_draws(
    quick: TemporalAlignment,
) -> None:
    test = make("test")

    def what(temporal: TemporalAlignment) -> tuple[Tensor, ...]:
        moved = temporal.transport(test.evidence, test.paths, path_cost)
        return (*temporal.decide(test.evidence), *moved)

    torch.manual_seed(99)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    again = fitted()
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads
    assert again.history == quick.history
    assert same(what(again), what(quick))
    other = fitted(replace(QUICK, align=replace(QUICK.align, seed=1)))
    assert other.history != quick.history


def test_candidate_order_does_not_matter(learned: TemporalAlignment) -> None:
    """To decisions and to transport, bit for bit; nor does it to fitting."""
    test = make("test")
    p = torch.from_numpy(np.random.default_rng(0).random(tuple(test.evidence.ids.shape)).argsort(1))
    e, paths = test.evidence.columns(p), test.paths.columns(p)
    one, other = learned.decide(test.evidence), learned.decide(e)
    assert torch.equal(one.choice, other.choice)
    assert torch.equal(one.order, other.order)
    assert torch.equal(one.final.gather(1, p), other.final)
    moved = learned.transport(test.evidence, test.paths, path_cost)
    for ours, theirs in zip(learned.transport(e, paths, path_cost), moved, strict=True):
        at = p.view(*p.shape, *[1] * (theirs.ndim - 2))
        assert torch.equal(ours, theirs.take_along_dim(at, dim=1))


def test_fitting_in_another_candidate_order(quick: TemporalAlignment) -> None:
    fit = make("fit")
    p = torch.from_numpy(np.random.default_rng(1).random(tuple(fit.evidence.ids.shape)).argsort(1))
    mixed = Population(fit.evidence.columns(p), fit.outcomes.columns(p))
    cal = make("cal").population
    again = fit_temporal(mixed, fit.paths.columns(p), cal, path_cost, QUICK)
    assert again.history == quick.history


def test_no_way_in_for_an_outcome(quick: TemporalAlignment) -> None:
    known = {"self", "evidence", "trajectories", "criterion"}
    for function in (TemporalAlignment.decide, TemporalAlignment.transport):
        assert set(inspect.signature(function).parameters) <= known
    fit, cal, test = make("fit"), make("cal"), make("test")
    temporal = fit_temporal(fit.population, fit.paths, cal.population, path_cost, QUICK)
    for outcomes in (fit.outcomes, cal.outcomes):
        outcomes.success.bitwise_not_()
        outcomes.observed.bitwise_not_()
    assert same(temporal.decide(test.evidence), quick.decide(test.evidence))


def test_the_criterions_unit_does_not_change_the_decision(quick: TemporalAlignment) -> None:
    """Costs a thousand times larger swamp the loss, not the operator's share of the gradient."""
    other = fitted(criterion=lambda futures, goal: 1000 * path_cost(futures, goal))
    test = make("test")
    assert same(other.decide(test.evidence), quick.decide(test.evidence))
    assert not same(other.head.state_dict().values(), quick.head.state_dict().values())


@pytest.mark.parametrize("context", [0, 3])
def test_with_the_learned_distance_of_a_real_model(context: int) -> None:
    """`TDJEPA.native_cost` is a criterion; its own weights and slopes are left alone."""
    torch.manual_seed(0)
    model = TDJEPA(TINY).planned_by(PlanningCost(blend=0.0, terminal=0.3, context=context))
    state = copy.deepcopy(model.state_dict())
    fit, cal, test = (make(x, N=24, D=16, dtype=np.float16) for x in ("fit", "cal", "test"))
    temporal = fit_temporal(fit.population, fit.paths, cal.population, model.native_cost, QUICK)
    assert same(state.values(), model.state_dict().values())
    assert all(parameter.grad is None for parameter in model.parameters())
    moved = temporal.transport(test.evidence, test.paths, model.native_cost)
    assert moved.futures.dtype == torch.float32
    assert 0 < moved.coefficients.abs().max() <= 0.1
    paths = test.paths
    torch.testing.assert_close(moved.before, model.native_cost(paths.moved, paths.goal).detach())
    assert not torch.equal(moved.before, moved.after)


def test_halves_do_not_swallow_small_movements(quick: TemporalAlignment) -> None:
    head, test = copy.deepcopy(quick.head), make("test", dtype=np.float16)
    torch.nn.init.zeros_(head.down.weight)
    torch.nn.init.constant_(head.down.bias, 1e-4)  # β = 1e-5
    moved = replace(quick, head=head).transport(test.evidence, test.paths, path_cost)
    step = (moved.futures - test.paths.moved.float()).norm(dim=-1)
    assert (step > 5e-6).all()


def test_it_comes_back_as_it_was(quick: TemporalAlignment, tmp_path: Path) -> None:
    test = make("test")
    changed = replace(quick, config=replace(quick.config, preserve=0.5))
    save_temporal(changed, tmp_path / "t", {"note": "x"})
    again = load_temporal(tmp_path / "t")
    assert (again.config, again.history) == (changed.config, quick.history)
    assert again.relational.gate == quick.relational.gate
    assert again.relational.report == quick.relational.report
    assert same(again.decide(test.evidence), quick.decide(test.evidence))
    moves = (x.transport(test.evidence, test.paths, path_cost) for x in (again, quick))
    assert same(*moves)
    plain = load_alignment(tmp_path / "t")  # whatever reads alignments reads this one
    assert same(plain.decide(test.evidence), quick.decide(test.evidence))
    assert json.loads((tmp_path / "t/card.json").read_text())["note"] == "x"


def test_damage_is_named(quick: TemporalAlignment, tmp_path: Path) -> None:
    save_temporal(quick, tmp_path, {})
    path = tmp_path / HEAD
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(DjepaError, match=rf"{HEAD} is damaged"):
        load_temporal(tmp_path)
    data[-1] ^= 1
    path.unlink()
    with pytest.raises(DjepaError, match=rf"{HEAD} is missing"):
        load_temporal(tmp_path)
    path.write_bytes(data)
    card = tmp_path / "card.json"
    card.write_text(card.read_text().replace("0.02", "0.03"))
    with pytest.raises(DjepaError, match=r"card\.json is damaged"):
        load_temporal(tmp_path)
    save_alignment(quick.relational, tmp_path / "plain", {})
    with pytest.raises(DjepaError, match="without transport"):
        load_temporal(tmp_path / "plain")


@pytest.mark.parametrize("bias", [torch.tensor(0.0), torch.zeros(1, 3), torch.zeros(3), None])
def test_a_head_of_other_units_is_named_though_its_hash_agrees(
    bias: Tensor | None, quick: TemporalAlignment, tmp_path: Path
) -> None:
    save_temporal(quick, tmp_path, {})
    path, top = tmp_path / HEAD, tmp_path / "manifest.json"
    rest = {name: of for name, of in load_file(path).items() if name != "up.bias"}
    path.write_bytes(save(rest if bias is None else {**rest, "up.bias": bias}))
    stated = json.loads(top.read_text())
    stated["files"][HEAD] = sha256(path.read_bytes())
    stated["sizes"][HEAD] = path.stat().st_size
    top.write_text(json.dumps(stated))
    with pytest.raises(DjepaError, match=f"{path} has not the {QUICK.hidden} units of its card"):
        load_temporal(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"base": ("lewm",)},
        {"mixture": "log"},
        {"operator": OperatorConfig(inputs=1, dropout=0.1)},
        {"grid": True},
    ],
)
def test_configurations_that_cannot_be(change: dict[str, Any]) -> None:
    with pytest.raises(DjepaError, match="two geometries"):
        TemporalConfig(align=replace(REACHER, **change))
    for name in ("hidden", "radius", "temperature"):
        with pytest.raises(DjepaError, match="above 0"):
            TemporalConfig(**{name: 0})


def test_trajectories_of_something_else(quick: TemporalAlignment) -> None:
    test = make("test")
    e, t = test.evidence, test.paths
    wrong: list[tuple[Trajectories, str]] = [
        (replace(t, towards=t.towards[..., :7]), "shapes"),
        (replace(t, towards=t.towards[:, :, :4]), "shapes"),
        (replace(t, moved=t.moved[:, 0]), "shapes"),
        (replace(t, goal=t.goal[:5]), "shapes"),
        (replace(t, towards=t.moved, moved=t.towards), "do not end where"),
        (replace(t, goal=t.goal + 0.1), "do not end where"),
        (t.columns(torch.arange(11, -1, -1).expand(64, -1)), "do not end where"),
        (t.rows(torch.arange(63, -1, -1)), "do not end where"),
        (t.rows(torch.arange(5)), "do not end where"),
        (replace(t, moved=torch.full_like(t.moved, torch.nan)), "do not end where"),
    ]
    for paths, match in wrong:
        with pytest.raises(DjepaError, match=match):
            quick.transport(e, paths, path_cost)
    bare = Evidence(e.identities, e.ids, e.names, e.costs, {}, {})
    with pytest.raises(DjepaError, match="do not end where"):
        quick.transport(bare, t, path_cost)
    quick.transport(e, t.to(torch.float16), path_cost)  # rounded is the same


def test_outcomes_that_cannot_teach() -> None:
    fit, cal = make("fit"), make("cal")

    def refuses(match: str, **change: Any) -> None:
        given = {"fit": fit.population, "trajectories": fit.paths, "calibration": cal.population}
        with pytest.raises(DjepaError, match=match):
            fit_temporal(**{**given, "criterion": path_cost, "config": QUICK, **change})

    for name, held in (("fit", fit), ("calibration", cal)):
        free = replace(held.outcomes, cost=None)
        refuses("task costs", **{name: Population(held.evidence, free)})
        other = replace(held.outcomes, identities=held.outcomes.identities[::-1])
        refuses("same starts", **{name: Population(held.evidence, other)})
    refuses("must not share starts", calibration=fit.population)
    hidden = fit.outcomes.observed.clone()
    hidden[3, 4] = False
    unseen = replace(fit.outcomes, observed=hidden)
    refuses("execute every candidate", fit=Population(fit.evidence, unseen))
    refuses("do not end where", trajectories=cal.paths)
    refuses("no start", calibration=cal.population.rows(torch.arange(0)))
    refuses("no gradient", criterion=lambda f, g: path_cost(f, g).detach())
    refuses("transported", criterion=lambda f, g: path_cost(f, g)[:, :3])
    refuses("transported", criterion=lambda f, g: path_cost(f, g) * torch.nan)


def test_starts_of_one_class_teach_by_their_costs_and_calibration_may_be_partial() -> None:
    fit, cal = make("fit"), make("cal")
    flat = replace(fit.outcomes, success=torch.zeros_like(fit.outcomes.success))
    assert cal.outcomes.cost is not None
    seen = torch.ones_like(cal.outcomes.observed)
    seen[:, 4:] = False
    cost = cal.outcomes.cost.masked_fill(~seen, torch.nan)
    part = replace(cal.outcomes, observed=seen, cost=cost)
    some = Population(cal.evidence, part)
    temporal = fit_temporal(Population(fit.evidence, flat), fit.paths, some, path_cost, QUICK)
    decision = temporal.decide(make("test").evidence)
    assert isinstance(decision, Decision)
    report = temporal.relational.report
    assert report is not None
    assert (report.starts, report.skipped) == (64, 0)
    assert isinstance(temporal.relational, Alignment)
