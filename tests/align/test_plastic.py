"""Predictive plasticity: each term by hand, what may change, and the life of a patch."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from djepa.align.outcomes import Outcomes
from djepa.align.plastic import (
    Ends,
    Patch,
    PlasticLoss,
    apply_patch,
    base_hash,
    boundary,
    grown_tail,
    inside,
    latent_change,
    load_patch,
    open_end,
    outside,
    plastic_names,
    save_patch,
)
from djepa.align.plastic_fit import Checkpoint, Encoded, PlasticConfig, fit_patch, roll
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.models.jepawm import JEPAWM
from djepa.models.lewm import LeWM
from djepa.models.patches import PatchConfig
from djepa.models.tdjepa import TDJEPA
from tiny import TINY_DEEP as TINY

BLOCK = [
    *("norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias"),
    *("attention.qkv.weight", "attention.out.weight", "attention.out.bias"),
    *("mlp.up.weight", "mlp.up.bias", "mlp.down.weight", "mlp.down.bias"),
    *("modulation.weight", "modulation.bias"),
]
PROJECTION = [f"{layer}.{kind}" for layer in ("up", "norm", "down") for kind in ("weight", "bias")]
ALLOWED = {f"predictor.blocks.1.{name}" for name in BLOCK} | {f"pred_proj.{p}" for p in PROJECTION}
Given = tuple[Encoded, Outcomes]


def random_model(seed: int = 0, kind: type[LeWM] = TDJEPA) -> LeWM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = kind(TINY).eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
    return model.requires_grad_(False)


@pytest.fixture(scope="module")
def model() -> LeWM:
    return random_model()


@pytest.fixture(scope="module")
def halves(model: LeWM, small_bank: Bank) -> tuple[Given, Given]:
    """Six starts to fit, four to calibrate on."""
    outcomes = Outcomes.from_bank(small_bank)
    fit, calibration = torch.arange(6), torch.arange(6, 10)
    encoded = (Encoded.from_bank(model, small_bank, rows.tolist()) for rows in (fit, calibration))
    one, other = encoded
    return (one, outcomes.rows(fit)), (other, outcomes.rows(calibration))


RATES = (2e-6, 2e-5, 1e-4)
QUICK = PlasticConfig(updates=6, every=2, batch=4, rates=(1e-3,))


# ------------------------------------------------------------------------------------- the terms


def bools(*rows: str) -> Tensor:
    return torch.tensor([[letter == "1" for letter in row] for row in rows])


def test_the_tail_follows_the_reference_and_grows_until_both_classes_are_in() -> None:
    ids = torch.tensor([[5, 3, 9, 1]]).expand(4, 4)
    reference = torch.tensor([[0.1, 0.1, 0.3, 0.4]]).expand(4, 4)  # a tie: ID 3 before ID 5
    success = bools("0001", "0100", "1000", "0000")
    seen = bools("1111", "1111", "0111", "1111")
    tails = grown_tail(reference, ids, success, seen, k=1)
    assert torch.equal(tails, bools("1111", "1100", "0111", "1111"))
    wide = grown_tail(reference, ids, success, seen, k=3)
    assert torch.equal(wide[:2], bools("1111", "1110"))


def test_boundary_by_hand() -> None:
    cost = torch.tensor([[0.30, 0.20, 0.25, 9.0], [1.0, 1.0, 1.0, 1.0]])
    loss = boundary(cost, bools("1000", "0000"), bools("0110", "1111"), 0.02, 0.05)
    expected = (math.log1p(math.exp(2.4)) + math.log1p(math.exp(1.4))) / 2  # .12 / .05, .07 / .05
    assert loss[0].item() == pytest.approx(expected, rel=1e-5)
    assert loss[1] == 0


def test_divergence_outside_the_tail_by_hand() -> None:
    before = torch.tensor([[0.0, 0.0, 7.0]])
    cost = torch.tensor([[0.0, 0.05 * math.log(3), -5.0]])  # new odds 3 : 1, old 1 : 1
    loss = outside(cost, before, bools("110"), 0.05)
    expected = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert outside(cost + 3, before, bools("110"), 0.05).item() == pytest.approx(expected, rel=1e-3)
    assert outside(cost, before, bools("000"), 0.05).isfinite().all()


def test_differences_inside_the_tail_by_hand() -> None:
    before = torch.tensor([[0.10, 0.20, 0.40]])
    cost = torch.tensor([[0.10, 0.22, 0.90]])  # shifts / T: 0, .4, 10
    pair = inside(cost, before, bools("110"), 0.05)
    assert pair.item() == pytest.approx(2 * 0.5 * 0.4**2 / 4, rel=1e-5)
    three = inside(cost, before, bools("111"), 0.05)
    assert three.item() == pytest.approx(2 * (0.08 + 9.5 + 9.1) / 9, rel=1e-5)
    assert inside(cost + 1, before, bools("111"), 0.05).item() == pytest.approx(three.item())


def test_latent_change_ignores_length_and_offset() -> None:
    z = torch.tensor([[[1.0, -1.0], [2.0, 0.0]]])
    assert latent_change(3 * z + 7, z).amax() < 1e-8
    assert latent_change(-z, z)[0, 0].item() == pytest.approx(4, rel=1e-4)


def by_loop(
    loss: PlasticLoss, student: Ends, teacher: Ends, success: Tensor, seen: Tensor, tail: Tensor
) -> list[Tensor]:
    """Eq. 8, start by start."""
    T, mass, pairs, kept, moved = loss.temperature, [], [], [], []
    for n in range(len(success)):
        good, bad = success[n] & seen[n], ~success[n] & seen[n]
        if not (good.any() and bad.any()):
            continue
        c, c0 = student.cost[n], teacher.cost[n]
        mass.append((-c / T)[seen[n]].logsumexp(0) - (-c / T)[good].logsumexp(0))
        gaps = c[good & tail[n]][:, None] - c[bad & tail[n]]
        pairs.append(F.softplus((loss.margin + gaps) / T).mean())
        rest = ~tail[n]
        if rest.sum() > 1:
            old, new = (-c0[rest] / T).softmax(0), (-c[rest] / T).log_softmax(0)
            kept.append(F.kl_div(new, old, reduction="sum"))
        for members in (bad & tail[n], good & tail[n]):
            if members.sum() > 1:
                new, old = ((x[members][:, None] - x[members]) / T for x in (c, c0))
                kept.append(F.smooth_l1_loss(new, old))
        D = student.last.shape[-1:]
        moved.append(F.mse_loss(F.layer_norm(student.last[n], D), F.layer_norm(teacher.last[n], D)))
    every = (mass, pairs, kept, moved)
    terms = [torch.stack(term).mean() if term else torch.tensor(0.0) for term in every]
    weights = (1, loss.boundary, loss.rank, loss.latent)
    return [sum((w * t for w, t in zip(weights, terms, strict=True)), torch.tensor(0.0)), *terms]


@pytest.mark.parametrize(("K", "k"), [(2, 16), (3, 1), (7, 3), (63, 16)])
@pytest.mark.parametrize("seed", range(4))
def test_all_starts_at_once_are_the_loop_over_starts(K: int, k: int, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    N, D = 9, 5
    last, last0 = (torch.randn(N, K, D, generator=rng).double() for _ in range(2))
    cost, cost0 = (torch.rand(N, K, generator=rng).double() * 0.3 for _ in range(2))
    success = torch.rand(N, K, generator=rng) < 0.4
    seen = torch.rand(N, K, generator=rng) < (1.0 if seed == 0 else 0.8)
    success[0], seen[0] = False, True  # one class
    success[1, :2], seen[1, :2] = torch.tensor([True, False]), True  # both
    ids = torch.stack([torch.randperm(K, generator=rng) for _ in range(N)])
    tail = grown_tail(torch.rand(N, K, generator=rng), ids, success, seen, k)
    student = Ends(last.requires_grad_(), cost.requires_grad_())
    teacher, loss = Ends(last0, cost0), PlasticLoss()
    terms = loss(student, teacher, success, seen, tail)
    expected = by_loop(loss, student, teacher, success, seen, tail)
    for ours, theirs in zip(terms[:-1], expected, strict=True):
        assert torch.allclose(ours, theirs.to(ours.dtype), rtol=1e-5)
    mixed = (success & seen).any(1) & (~success & seen).any(1)
    assert terms.skipped == (~mixed).sum()
    ours = torch.autograd.grad(terms.total, student)
    theirs = torch.autograd.grad(expected[0], student)
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-7)


def test_what_was_not_executed_is_no_failure() -> None:
    rng = torch.Generator().manual_seed(1)
    ends = [
        Ends(torch.randn(4, 9, 5, generator=rng), torch.rand(4, 9, generator=rng)) for _ in "ab"
    ]
    success, seen = (torch.rand(4, 9, generator=rng) < p for p in (0.5, 0.7))
    ids = torch.arange(9).expand(4, 9)

    def total(outcomes: Tensor) -> Tensor:
        tail = grown_tail(ends[1].cost, ids, outcomes, seen, 3)
        return PlasticLoss()(*ends, outcomes, seen, tail).total

    assert torch.equal(total(success), total(success ^ ~seen))


def test_starts_of_one_class_alone_give_zero_and_no_odd_gradient() -> None:
    cost = torch.rand(2, 4, requires_grad=True)
    last = torch.rand(2, 4, 3, requires_grad=True)
    frozen = Ends(torch.rand(2, 4, 3), torch.rand(2, 4))
    every = torch.ones(2, 4, dtype=torch.bool)
    terms = PlasticLoss()(Ends(last, cost), frozen, bools("1111", "0000"), every, every)
    assert terms.total == 0
    assert terms.skipped == 2
    terms.total.backward()
    assert not cost.grad.any()
    assert not last.grad.any()


# ------------------------------------------------------------------------------- what may change


@pytest.mark.parametrize("kind", [LeWM, TDJEPA])
def test_gradients_reach_the_last_block_and_the_projection_alone(
    kind: type[LeWM], halves: tuple[Given, Given]
) -> None:
    model = random_model(kind=kind)
    assert set(open_end(model)) == set(plastic_names(model)) == ALLOWED
    statistics = model.pred_proj.norm.running_mean.clone()
    starts, outcomes = halves[0]
    ends = roll(model, starts)
    frozen = Ends(ends.last.detach() + 0.1, ends.cost.detach() * 1.1)
    tail = grown_tail(frozen.cost, starts.ids, outcomes.success, outcomes.observed, 16)
    PlasticLoss()(ends, frozen, outcomes.success, outcomes.observed, tail).total.backward()
    reached = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    assert reached == ALLOWED
    assert {name for name, p in model.named_parameters() if p.grad is not None} == ALLOWED
    assert torch.equal(model.pred_proj.norm.running_mean, statistics)


def test_gradients_run_through_every_block(model: LeWM, halves: tuple[Given, Given]) -> None:
    """Against a finite difference in double precision."""
    net = random_model().double()
    starts = halves[0][0].rows(torch.arange(2))
    wide = replace(
        starts,
        **{k: getattr(starts, k).double() for k in ("context", "history", "actions", "goal")},
    )
    weight = open_end(net)["predictor.blocks.1.attention.qkv.weight"]
    roll(net, wide).last.square().sum().backward()
    at = tuple((weight.grad.abs() == weight.grad.abs().max()).nonzero()[0].tolist())
    step = 1e-5
    values = []
    for sign in (1, -1):
        with torch.no_grad():
            weight[at] += sign * step
            values.append(roll(net, wide).last.square().sum().item())
            weight[at] -= sign * step
    assert weight.grad[at].item() == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-5)


def test_before_the_first_update_nothing_has_changed(
    model: LeWM, halves: tuple[Given, Given]
) -> None:
    starts, outcomes = halves[0]
    futures = model.rollout(starts.context, starts.history, starts.actions)
    student = random_model()
    open_end(student)
    ends = roll(student, starts)
    assert torch.equal(ends.last, futures[:, :, -1])
    assert torch.equal(ends.cost, model.native_cost(futures, starts.goal))
    frozen = Ends(ends.last.detach(), ends.cost.detach())
    tail = grown_tail(frozen.cost, starts.ids, outcomes.success, outcomes.observed, 16)
    terms = PlasticLoss()(ends, frozen, outcomes.success, outcomes.observed, tail)
    assert terms.rank == terms.latent == 0
    patch = fit_patch(model, *halves, PlasticConfig(updates=0))
    adapted = apply_patch(model, patch)
    assert torch.equal(adapted.rollout(starts.context, starts.history, starts.actions), futures)
    assert base_hash(adapted) == base_hash(model)


# --------------------------------------------------------------------------------------- fitting


def test_fitting_lowers_its_loss_and_leaves_the_model_alone(
    model: LeWM, halves: tuple[Given, Given]
) -> None:
    before = base_hash(model)
    config = PlasticConfig(updates=30, every=1, batch=99, rates=(1e-2,))
    patch = fit_patch(model, *halves, config)
    seen = [Checkpoint(**found) for found in patch.card["checkpoints"]]
    losses = [c.loss for c in seen[1:] if c.loss is not None]
    assert len(losses) == 30
    assert losses[-1] < 0.9 * losses[0]
    assert seen[0].change == 0 < seen[-1].change
    assert base_hash(model) == before == patch.base
    assert not any(p.requires_grad for p in model.parameters())
    mixed = int(halves[0][1].mixed.sum())
    assert (patch.card["starts"], patch.card["skipped"]) == (mixed, 6 - mixed)


def test_fits_repeat_to_the_bit(model: LeWM, halves: tuple[Given, Given]) -> None:
    one, other = (fit_patch(model, *halves, QUICK) for _ in range(2))
    assert one.card == other.card
    assert all(torch.equal(one.tensors[name], other.tensors[name]) for name in ALLOWED)


def test_calibration_chooses_checkpoint_and_rate(model: LeWM, halves: tuple[Given, Given]) -> None:
    fitting, (held, known) = halves
    native = F.one_hot(roll(model, held).cost.argmin(1), held.ids.shape[1]).bool()
    other = (held, replace(known, success=~native))  # any other choice is a gain
    patch = fit_patch(model, fitting, other, replace(QUICK, updates=8, rates=(0.1, *RATES)))
    tried = [Checkpoint(**c) for c in patch.card["checkpoints"]]
    best = []
    for rate in (*RATES, 0.1):
        own = [c for c in tried if c.rate == rate]
        assert [c.update for c in own] == [0, 2, 4, 6, 8]
        assert (own[0].successes, own[0].change) == (0, 0)
        best.append(max(own, key=lambda c: (c.successes, -c.change, -c.update)))
    chosen = Checkpoint(**patch.card["chosen"])
    assert chosen == max(best, key=lambda c: (c.successes, -c.rate))
    assert chosen.successes > 0
    cost = roll(apply_patch(model, patch), held).cost
    assert (~native).gather(1, cost.argmin(1)[:, None]).sum() == chosen.successes


def test_without_a_gain_the_unchanged_model_of_the_smallest_rate_is_kept(
    model: LeWM, halves: tuple[Given, Given]
) -> None:
    fitting, (held, known) = halves
    hopeless = replace(known, success=torch.zeros_like(known.success))
    patch = fit_patch(model, fitting, (held, hopeless), replace(QUICK, rates=(1e-3, 1e-4)))
    assert patch.card["chosen"]["update"] == 0
    assert patch.card["chosen"]["rate"] == 1e-4
    assert torch.equal(patch.tensors["pred_proj.up.bias"], model.pred_proj.up.bias)


def test_what_cannot_be_fitted_is_refused(model: LeWM, halves: tuple[Given, Given]) -> None:
    (starts, outcomes), calibration = halves
    hopeless = replace(outcomes, success=torch.zeros_like(outcomes.success))
    with pytest.raises(DjepaError, match="one class"):
        fit_patch(model, (starts, hopeless), calibration, QUICK)
    with pytest.raises(DjepaError, match="must not share starts"):
        fit_patch(model, halves[0], halves[0], QUICK)
    with pytest.raises(DjepaError, match="same starts"):
        fit_patch(model, (starts, calibration[1]), calibration, QUICK)
    nothing = torch.arange(0)
    with pytest.raises(DjepaError, match="no calibration"):
        fit_patch(model, halves[0], (starts.rows(nothing), outcomes.rows(nothing)), QUICK)
    with pytest.raises(DjepaError, match="learning rate"):
        PlasticConfig(rates=())
    with pytest.raises(DjepaError, match="at least 1"):
        PlasticConfig(every=0)
    with pytest.raises(DjepaError, match="jepawm"):
        plastic_names(JEPAWM(PatchConfig(image=56, width=6, depth=1, heads=3, hidden=12)))


# ----------------------------------------------------------------------------------- the patch


@pytest.fixture(scope="module")
def patch(model: LeWM) -> Patch:
    tensors = {name: model.get_parameter(name) + 0.01 for name in plastic_names(model)}
    return Patch("tdjepa", base_hash(model), tensors, {"why": "a test"})


def test_a_patch_survives_its_folder(
    model: LeWM, patch: Patch, halves: tuple[Given, Given], tmp_path: Path
) -> None:
    save_patch(patch, tmp_path / "patch")
    again = load_patch(tmp_path / "patch")
    assert (again.geometry, again.base, again.card) == (patch.geometry, patch.base, patch.card)
    adapted = apply_patch(model, again)
    for name, tensor in adapted.state_dict().items():
        wanted = patch.tensors.get(name, model.state_dict()[name])
        assert torch.equal(tensor, wanted), name
    assert not torch.equal(roll(adapted, halves[0][0]).cost, roll(model, halves[0][0]).cost)
    with pytest.raises(DjepaError, match="holds a finished patch already"):
        save_patch(replace(patch, card={"from": "elsewhere"}), tmp_path / "patch")


def test_a_patch_fits_its_base_alone(model: LeWM, patch: Patch) -> None:
    own, other = base_hash(model)[:12], base_hash(random_model(1))[:12]
    with pytest.raises(DjepaError, match=f"tdjepa weights {own}, not to tdjepa weights {other}"):
        apply_patch(random_model(1), patch)
    with pytest.raises(DjepaError, match="not to lewm"):
        apply_patch(random_model(kind=LeWM), patch)
    with pytest.raises(DjepaError, match="belongs to"):  # it is in already
        apply_patch(apply_patch(model, patch), patch)


def test_foreign_missing_and_misshapen_tensors_are_refused(model: LeWM, patch: Patch) -> None:
    name = "pred_proj.up.bias"
    foreign = {**patch.tensors, "predictor.norm.bias": torch.zeros(16)}
    with pytest.raises(DjepaError, match=r"predictor\.norm\.bias"):
        apply_patch(model, replace(patch, tensors=foreign))
    missing = {key: tensor for key, tensor in patch.tensors.items() if key != name}
    with pytest.raises(DjepaError, match=r"pred_proj\.up\.bias"):
        apply_patch(model, replace(patch, tensors=missing))
    for wrong in (torch.zeros(3), torch.full((32,), torch.nan)):
        with pytest.raises(DjepaError, match=r"pred_proj\.up\.bias.*\(32,\) finite"):
            apply_patch(model, replace(patch, tensors={**patch.tensors, name: wrong}))


def test_damage_is_named(patch: Patch, tmp_path: Path) -> None:
    with pytest.raises(DjepaError, match="no manifest"):
        load_patch(tmp_path)
    save_patch(patch, tmp_path)
    card, manifest = tmp_path / "card.json", tmp_path / "manifest.json"
    whole = card.read_text()
    card.write_text(whole.replace("a test", "no test"))
    with pytest.raises(DjepaError, match=r"card\.json is cut short or altered"):
        load_patch(tmp_path)
    card.write_text(whole)
    record = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**record, "version": 99}))
    with pytest.raises(DjepaError, match="djepa-patch 99"):
        load_patch(tmp_path)
    manifest.write_text("{}")
    with pytest.raises(DjepaError, match="damaged"):
        load_patch(tmp_path)
