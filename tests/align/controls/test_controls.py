"""The five controls on real starts: what may change, what is chosen, what is never opened."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from djepa.align.controls import conflict_safe, pegrad
from djepa.align.controls.conflict_safe import fit_conflict_safe
from djepa.align.controls.lessons import Supervised, lesson
from djepa.align.controls.methods import SAMPLED, control_cost, control_futures
from djepa.align.controls.pegrad import PEGradConfig, fit_pegrad
from djepa.align.controls.projection import gradient
from djepa.align.controls.sampled import draws, sampled_costs
from djepa.align.controls.trajectory import (
    Gaussian,
    TrajectoryCode,
    code_of,
    divergence,
    known_of,
    prior_futures,
)
from djepa.align.controls.varjepa import Losses, VarConfig, fit_varjepa, losses_of
from djepa.align.methods import lowest
from djepa.align.plastic import Patch, load_patch, plastic_names, save_patch
from djepa.align.plastic_fit import Encoded, PlasticConfig, futures
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.evidence.ranks import best
from djepa.models.lewm import LeWM

QUICK = PlasticConfig(updates=6, every=3, batch=4, rates=(1e-3,))
Halves = tuple[Supervised, Supervised]


@pytest.fixture(scope="module")
def patches(model: LeWM, halves: Halves) -> dict[str, Patch]:
    residual = VarConfig(replace(QUICK, updates=20, every=10, rates=(1e-2,)), code=4, hidden=16)
    return {
        "PEGrad": fit_pegrad(model, *halves, PEGradConfig(QUICK, (0.1, 1.0))),
        "Var-JEPA": fit_varjepa(model, *halves, residual),
        "conflict-safe": fit_conflict_safe(model, *halves, residual),
    }


def trained(patch: Patch) -> Patch:
    """The same code with a decoder that is not zero, whatever checkpoint was chosen."""
    rng = torch.Generator().manual_seed(1)
    last = {
        name: torch.randn(t.shape, generator=rng) * 0.05
        for name, t in patch.tensors.items()
        if name.startswith("decoder.2")
    }
    return replace(patch, tensors={**patch.tensors, **last})


# -------------------------------------------------------------------------------------- the code


def test_divergence_is_that_of_the_library() -> None:
    q, p = Gaussian(*torch.randn(2, 5, 3)), Gaussian(*torch.randn(2, 5, 3))
    one, two = (torch.distributions.Normal(g.mean, g.log_scale.exp()) for g in (q, p))
    expected = torch.distributions.kl_divergence(one, two).sum(-1)
    torch.testing.assert_close(divergence(q, p), expected)
    assert torch.equal(divergence(p, p), torch.zeros(5))


def test_a_fresh_residual_gives_back_the_base_exactly(model: LeWM, halves: Halves) -> None:
    starts = halves[1].starts
    base = futures(model, starts, 4)
    inputs = known_of(model, starts, base).shape[-1]
    code = TrajectoryCode(inputs, (base.shape[2], base.shape[3]), 4, 16)
    assert torch.equal(prior_futures(model, code, starts, base), base)
    cost = model.native_cost(base, starts.goal).double()
    drawn = sampled_costs(model, code, starts, base)
    assert torch.equal(drawn, cost[..., None].expand_as(drawn))


def test_inference_never_opens_what_execution_showed(
    model: LeWM, small_bank: Bank, patches: dict[str, Patch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a bank whose outcomes cannot be read, the same costs as before."""
    given = {**patches, "Var-JEPA": trained(patches["Var-JEPA"])}
    rows = [6, 7]
    given |= dict.fromkeys(SAMPLED, given["Var-JEPA"])
    seen = Encoded.from_bank(model, small_bank, rows)
    before = {name: control_cost(name, model, patch, seen)[0] for name, patch in given.items()}

    def closed(bank: Bank) -> None:
        raise AssertionError("outcomes were opened")

    monkeypatch.setattr(Bank, "outcomes", property(closed))
    bank = Bank(small_bank.path)
    with pytest.raises(AssertionError, match="opened"):
        _ = bank.outcomes
    again = Encoded.from_bank(model, bank, rows)
    for name, patch in given.items():
        assert torch.equal(control_cost(name, model, patch, again)[0], before[name])


def test_the_posterior_reads_targets_and_the_prior_does_not(
    model: LeWM, halves: Halves, patches: dict[str, Patch]
) -> None:
    code = code_of(model, trained(patches["Var-JEPA"]))
    given = lesson(model, halves[0], QUICK)
    other = given._replace(realised=given.realised.flip(1))
    known = known_of(model, given.starts, given.frozen)
    one, two = (code.posterior(known, x.realised).mean for x in (given, other))
    assert not torch.equal(one, two)
    noise = torch.zeros(*given.success.shape, code.code)
    c = VarConfig(QUICK, code=4, hidden=16)
    a, b = (losses_of(code, model, x, noise, c) for x in (given, other))
    assert a.decision == b.decision
    assert a.auxiliary != b.auxiliary


# -------------------------------------------------------------------------------- what is learned


@pytest.mark.parametrize("fit", [fit_varjepa, fit_conflict_safe])
def test_the_losses_fall(fit: Callable[..., Patch], model: LeWM, halves: Halves) -> None:
    """Every batch is all fitting starts, so that losses can be compared."""
    every = replace(QUICK, updates=30, every=1, batch=6, rates=(3e-3,))
    patch = fit(model, *halves, VarConfig(every, code=4, hidden=16))
    seen = [checkpoint["loss"] for checkpoint in patch.card["checkpoints"]]
    losses = [loss for loss in seen if loss is not None]
    assert len(losses) == 30
    assert max(losses[-5:]) < 0.8 * losses[0]


def test_pegrad_changes_what_plasticity_may_change(model: LeWM, patches: dict[str, Patch]) -> None:
    patch = patches["PEGrad"]
    assert set(patch.tensors) == set(plastic_names(model))
    tried = [(c["cap"], c["update"]) for c in patch.card["checkpoints"]]
    assert tried == [(cap, update) for cap in (0.1, 1.0) for update in (0, 3, 6)]
    assert patch.card["cap"] in (0.1, 1.0)


def test_the_best_checkpoint_is_chosen(patches: dict[str, Patch]) -> None:
    for patch in patches.values():
        tried = patch.card["checkpoints"]
        most = max(c["successes"] for c in tried)
        least = min(c["error"] for c in tried if c["successes"] == most)
        assert (patch.card["chosen"]["successes"], patch.card["chosen"]["error"]) == (most, least)


@pytest.mark.parametrize("cap", [0.01, 1.0])
def test_pegrad_steps_along_the_primary_and_a_capped_auxiliary(cap: float) -> None:
    p = nn.Parameter(torch.tensor([1.0, 1.0, 1.0], dtype=torch.float64))
    primary = p @ torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    auxiliary = p @ torch.tensor([-5.0, 0.0, 12.0], dtype=torch.float64)
    loss = pegrad.combined(primary, auxiliary, [p], cap)
    assert loss.item() == pytest.approx(1.0)
    loss.backward()
    assert p.grad is not None
    torch.testing.assert_close(p.grad, torch.tensor([1.0, 0.0, cap], dtype=torch.float64))


def test_conflict_safe_keeps_the_decision_whole_and_projects_the_rest() -> None:
    p = nn.Parameter(torch.tensor([1.0, 1.0, 1.0], dtype=torch.float64))
    decision = p @ torch.tensor([0.1, 0.0, 0.0], dtype=torch.float64)
    against = p @ torch.tensor([-5.0, 0.0, 12.0], dtype=torch.float64)
    conflict_safe.combined(Losses(decision, against), [p]).backward()
    assert p.grad is not None
    torch.testing.assert_close(p.grad, torch.tensor([0.1, 0.0, 12.0], dtype=torch.float64))
    along = p @ torch.tensor([5.0, 0.0, 12.0], dtype=torch.float64)
    both = gradient(conflict_safe.combined(Losses(decision, along), [p]), [p])
    assert both.tolist() == pytest.approx([5.1, 0.0, 12.0])  # the plain sum of Var-JEPA


# --------------------------------------------------------------------------------- orders and files


def test_order_of_candidates_and_starts_changes_nothing(
    model: LeWM, halves: Halves, patches: dict[str, Patch]
) -> None:
    starts = halves[1].starts
    code = code_of(model, trained(patches["Var-JEPA"]))
    base = futures(model, starts, 4)
    means = prior_futures(model, code, starts, base)
    costs = sampled_costs(model, code, starts, base)
    mix = torch.randperm(starts.ids.shape[1], generator=torch.Generator().manual_seed(0))
    moved = replace(starts, ids=starts.ids[:, mix], actions=starts.actions[:, mix])
    assert torch.equal(prior_futures(model, code, moved, base[:, mix]), means[:, mix])
    assert torch.equal(sampled_costs(model, code, moved, base[:, mix]), costs[:, mix])
    turned = torch.tensor([2, 0])
    some = sampled_costs(model, code, starts.rows(turned), base[turned])
    assert torch.equal(some, costs[turned])
    assert costs.std(-1).min() > 0  # the prior has a spread


def test_draws_belong_to_a_start_and_a_candidate() -> None:
    one = draws("a", torch.tensor([4, 9]), 16, 3)
    assert torch.equal(one.flip(0), draws("a", torch.tensor([9, 4]), 16, 3))
    assert not torch.equal(one[0], one[1])
    assert not torch.equal(one, draws("b", torch.tensor([4, 9]), 16, 3))


def test_ties_go_to_the_smaller_id() -> None:
    cost = torch.tensor([[1.0, 0.5, 0.5, 2.0]], dtype=torch.float64)
    assert lowest(cost, torch.tensor([[1, 9, 3, 0]])).position.tolist() == [2]


def test_equal_futures_tie_and_the_smaller_id_wins(
    model: LeWM, halves: Halves, patches: dict[str, Patch]
) -> None:
    """A pool of one candidate many times over: without noise every control chooses the first ID."""
    starts = halves[1].starts
    copies = starts.actions[:, :1].expand_as(starts.actions).contiguous()
    same = replace(starts, actions=copies)
    for name in ("PEGrad", "conflict-safe"):
        cost, _ = control_cost(name, model, patches[name], same)
        chosen = best(cost.double().round(decimals=4), same.ids)
        assert torch.equal(same.ids.gather(1, chosen[:, None])[:, 0], same.ids.amin(1))


def test_a_residual_outlives_its_process(
    model: LeWM, halves: Halves, patches: dict[str, Patch], tmp_path: Path
) -> None:
    patch = trained(patches["conflict-safe"])
    save_patch(patch, tmp_path / "kept")
    again = load_patch(tmp_path / "kept")
    starts = halves[1].starts
    one, two = (control_futures(model, x, starts) for x in (patch, again))
    assert torch.equal(one, two)


def test_strangers_are_refused(model: LeWM, halves: Halves, patches: dict[str, Patch]) -> None:
    with pytest.raises(DjepaError, match="belongs to tdjepa weights abc"):
        code_of(model, replace(patches["Var-JEPA"], base="abc"))
    with pytest.raises(DjepaError, match="holds no trajectory code"):
        code_of(model, patches["PEGrad"])
    with pytest.raises(DjepaError, match="must not share starts"):
        fit_varjepa(model, halves[0], halves[0])
    with pytest.raises(DjepaError, match="at least one cap"):
        PEGradConfig(caps=())
    one = halves[0].outcomes
    none = halves[0]._replace(outcomes=replace(one, success=torch.zeros_like(one.success)))
    with pytest.raises(DjepaError, match="nothing to learn"):
        fit_pegrad(model, none, halves[1])
    short = halves[0]._replace(realised=halves[0].realised[:, :, 1:])
    with pytest.raises(DjepaError, match="Realised latents are"):
        fit_varjepa(model, short, halves[1])


def test_the_same_twice(model: LeWM, halves: Halves, patches: dict[str, Patch]) -> None:
    residual = VarConfig(replace(QUICK, updates=20, every=10, rates=(1e-2,)), code=4, hidden=16)
    again = fit_varjepa(model, *halves, residual)
    assert again.card == patches["Var-JEPA"].card
    assert all(torch.equal(t, again.tensors[n]) for n, t in patches["Var-JEPA"].tensors.items())
