"""Dynamics fine-tuning: it learns motion, moves what plasticity may move, and sees no success."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from djepa.align.dynamics import fine_tune, realised
from djepa.align.plastic import Patch, apply_patch, base_hash, plastic_names
from djepa.align.plastic_fit import Checkpoint, Encoded, PlasticConfig
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.models.lewm import LeWM
from djepa.models.predict import encode_states
from djepa.models.tdjepa import TDJEPA
from tiny import TINY_DEEP as TINY

CONFIG = PlasticConfig(updates=20, every=5, batch=4, rates=(1e-2, 1e-3))
FIT, HELD = list(range(6)), list(range(6, 10))
Given = tuple[Encoded, Tensor]


@pytest.fixture(scope="module")
def model() -> LeWM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = TDJEPA(TINY).eval()
        for parameter in net.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
    return net.requires_grad_(False)


def part(model: LeWM, bank: Bank, rows: list[int]) -> Given:
    return Encoded.from_bank(model, bank, rows), realised(model, bank, rows, "cpu")


@pytest.fixture(scope="module")
def halves(model: LeWM, small_bank: Bank) -> tuple[Given, Given]:
    return part(model, small_bank, FIT), part(model, small_bank, HELD)


@pytest.fixture(scope="module")
def patch(model: LeWM, halves: tuple[Given, Given]) -> Patch:
    return fine_tune(model, *halves, CONFIG)


def checkpoints(patch: Patch) -> list[Checkpoint]:
    return [Checkpoint(**found) for found in patch.card["checkpoints"]]


def error(model: LeWM, given: Given) -> float:
    starts, targets = given
    futures = model.rollout(starts.context, starts.history, starts.actions)
    return float((futures - targets).square().mean())


def altered(folder: Path, **arrays: np.ndarray) -> Bank:
    """A bank that remembers other outcomes."""
    bank = Bank(folder)
    bank.__dict__["outcomes"] = replace(bank.outcomes, **arrays)
    return bank


# ---------------------------------------------------------------------------------- targets


def test_targets_are_latents_of_the_states_gone_through(model: LeWM, small_bank: Bank) -> None:
    targets = realised(model, small_bank, [7, 2], "cpu")
    states = small_bank.outcomes.states
    K, B = states.shape[1:3]
    assert targets.shape == (2, K, B, 16)
    scene = small_bank.scene()
    for i, n in enumerate((7, 2)):
        for k, b in ((0, 0), (K - 1, B - 1), (5, 2)):
            alone = encode_states(model, scene, torch.from_numpy(states[n, k, b].copy())[None])
            torch.testing.assert_close(targets[i, k, b], alone[0], atol=1e-5, rtol=1e-4)
    assert not targets.is_inference()  # it may be saved for gradients


def test_pools_that_were_not_executed_in_full_are_refused(model: LeWM, small_bank: Bank) -> None:
    observed = small_bank.outcomes.observed.copy()
    observed[3, 5] = False
    bank = altered(small_bank.path, observed=observed)
    for rows in ([3], [0, 3], FIT):
        with pytest.raises(DjepaError, match="every candidate was executed"):
            realised(model, bank, rows, "cpu")
    whole = realised(model, bank, [2, 4], "cpu")  # a hole elsewhere is no matter
    assert torch.equal(whole, realised(model, small_bank, [2, 4], "cpu"))


# ---------------------------------------------------------------------------------- fitting


def test_the_error_on_calibration_starts_falls(
    model: LeWM, halves: tuple[Given, Given], patch: Patch
) -> None:
    adapted = apply_patch(model, patch)
    before, after = error(model, halves[1]), error(adapted, halves[1])
    assert after < 0.9 * before
    tried = [Checkpoint(**c) for c in patch.card["checkpoints"]]
    assert [(c.rate, c.update) for c in tried] == [
        (rate, update) for rate in (1e-3, 1e-2) for update in (0, 5, 10, 15, 20)
    ]
    chosen = Checkpoint(**patch.card["chosen"])
    errors = [c.error for c in tried if c.error is not None]
    assert len(errors) == 10
    assert chosen.error == min(errors) == pytest.approx(after, rel=1e-4)
    assert errors[0] == errors[5] == pytest.approx(before, rel=1e-4)
    assert tried[0].change == 0 < chosen.change
    assert patch.card["starts"] == 6


def test_fitting_starts_teach_and_calibration_starts_only_choose(
    model: LeWM, halves: tuple[Given, Given]
) -> None:
    """Other calibration targets: the same descent, judged otherwise."""
    config = replace(CONFIG, rates=(1e-2,))
    moved = (halves[1][0], halves[1][1] + 1)
    seen = [checkpoints(fine_tune(model, halves[0], of, config)) for of in (halves[1], moved)]
    assert [c.loss for c in seen[0]] == [c.loss for c in seen[1]]
    assert [c.change for c in seen[0]] == [c.change for c in seen[1]]
    assert [c.error for c in seen[0]] != [c.error for c in seen[1]]
    losses = [c.loss for c in seen[0] if c.loss is not None]
    assert len(losses) == 4
    assert losses[-1] < losses[0]


def test_the_loss_is_the_mean_squared_error(model: LeWM, halves: tuple[Given, Given]) -> None:
    config = PlasticConfig(updates=1, every=1, batch=99, rates=(1e-3,))
    seen = checkpoints(fine_tune(model, *halves, config))
    assert seen[1].loss == pytest.approx(error(model, halves[0]), rel=1e-4)


def test_only_the_end_of_the_predictor_changes(
    model: LeWM, halves: tuple[Given, Given], patch: Patch
) -> None:
    assert set(patch.tensors) == set(plastic_names(model))
    assert patch.base == base_hash(model)  # the model given is as it was
    assert not any(p.requires_grad for p in model.parameters())
    adapted = apply_patch(model, patch).state_dict()
    for name, tensor in model.state_dict().items():
        assert torch.equal(adapted[name], tensor) == (name not in patch.tensors), name
    assert "pred_proj.norm.running_mean" in adapted  # statistics are among what stays


def test_without_a_gain_the_unchanged_model_of_the_smallest_rate_is_kept(
    model: LeWM, halves: tuple[Given, Given]
) -> None:
    starts = halves[1][0]
    futures = model.rollout(starts.context, starts.history, starts.actions).clone()
    patch = fine_tune(model, halves[0], (starts, futures), CONFIG)
    chosen = patch.card["chosen"]
    assert (chosen["update"], chosen["rate"], chosen["change"]) == (0, 1e-3, 0)
    assert all(torch.equal(t, model.get_parameter(name)) for name, t in patch.tensors.items())


def test_success_is_never_read(
    model: LeWM, small_bank: Bank, halves: tuple[Given, Given], patch: Patch
) -> None:
    rng = np.random.default_rng(0)
    success = small_bank.outcomes.success
    bank = altered(
        small_bank.path,
        success=rng.random(success.shape) < 0.5,
        cost=rng.random(success.shape),
    )
    assert not np.array_equal(bank.outcomes.success, success)
    again = fine_tune(model, part(model, bank, FIT), part(model, bank, HELD), CONFIG)
    assert again.card == patch.card
    assert all(torch.equal(again.tensors[name], tensor) for name, tensor in patch.tensors.items())
    # Where candidates went is.
    states = small_bank.outcomes.states.copy()
    states[0, :, :, 2:5] = states[1, :, :, 2:5]
    other = altered(small_bank.path, states=states)
    quick = replace(CONFIG, updates=5, rates=(1e-2,))
    one, two = (fine_tune(model, part(model, b, FIT), halves[1], quick) for b in (bank, other))
    assert one.card["checkpoints"] != two.card["checkpoints"]
