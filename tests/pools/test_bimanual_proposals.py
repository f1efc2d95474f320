"""Proposals of a bimanual start: support, nine numbers, ridge, warp, offsets; and the gates."""

from pathlib import Path

import numpy as np
import pytest
import torch

from djepa.align.outcomes import Outcomes
from djepa.align.preserve import fit_fixed, fit_threshold
from djepa.errors import DjepaError
from djepa.pools.bimanual import (
    ACROSS,
    ALONG,
    arrays_of,
    fit_proposer,
    nine_numbers,
    offsets,
    read_proposers,
    support,
    targets_of,
    warp,
)
from djepa.seeds import generator
from djepa.worlds.bimanual.experts import ANCHORS, HORIZON
from djepa.worlds.bimanual.scene import TASKS


def test_the_support_of_a_colour_is_its_pixels() -> None:
    image = np.full((20, 30, 3), 180, np.uint8)
    image[5:9, 4:24] = (240, 128, 13)  # orange
    image[12:15, 3:6] = (26, 64, 217)  # blue
    mask = support(image, "orange")
    assert mask.sum() == 80
    assert mask[5:9, 4:24].all()
    assert support(image, "blue").sum() == 9
    assert not support(image, "green").any()


def test_nine_numbers_of_a_bar() -> None:
    mask = np.zeros((40, 60), bool)
    mask[10:13, 5:46] = True
    found = nine_numbers(mask)
    assert np.allclose(found[:2], [25 / 40, 11 / 40])
    assert np.allclose(found[2:4], [1, 0], atol=1e-9)
    assert np.isclose(found[4], np.arange(41).std() / 40)
    assert np.allclose(found[5:], [5 / 40, 11 / 40, 45 / 40, 11 / 40])
    with pytest.raises(DjepaError, match="does not see"):
        nine_numbers(np.zeros((4, 4), bool))


def _poses(many: int, seed: int) -> np.ndarray:
    return generator("poses", seed).normal(size=(many, HORIZON, 16))


@pytest.mark.parametrize("task", TASKS)
def test_a_warp_moves_targets_exactly_and_nothing_at_the_first_moment(task: str) -> None:
    poses, by = _poses(1, 0)[0], generator("by", task).normal(size=12)
    moved = warp(task, poses, by)
    assert np.allclose(targets_of(task, moved), targets_of(task, poses) + by)
    turned = np.r_[3:8, 11:16]  # orientations and openings
    assert np.array_equal(moved[:, turned], poses[:, turned])
    grasp = ANCHORS[task][0][0]
    u = 1 / (grasp + 1)
    assert np.allclose(moved[0, :3] - poses[0, :3], (3 * u**2 - 2 * u**3) * by[:3])
    assert np.allclose(moved[-1, :3] - poses[-1, :3], by[3:6])


def test_offsets_lie_along_and_across_the_line_of_grasps_and_are_equal_for_both_arms() -> None:
    targets = np.array([-0.1, 0.0, 0.8, 0, 0, 0, 0.1, 0.0, 0.8, 0, 0, 0], float)
    found = offsets(targets)
    assert np.allclose(found[:, 0].reshape(4, 4), np.array(ALONG)[:, None])
    assert np.allclose(found[:, 1].reshape(4, 4), np.array(ACROSS)[None])
    assert (found[:, 2] == 0).all()
    assert all(np.array_equal(found[:, :3], found[:, at : at + 3]) for at in (3, 6, 9))


def test_ridge_finds_a_linear_map_and_survives_the_disk() -> None:
    rng = generator("ridge")
    fitted = {}
    for task, items in TASKS.items():
        x = rng.normal(size=(60, 9 * len(items)))
        poses = 0.1 * np.repeat(_poses(60, 1)[:, :1], HORIZON, 1)
        poses.reshape(60, HORIZON, 2, 8)[..., :3] = 0.1 * x[:, None, None, :3]
        fitted[task], error = fit_proposer(task, x[:40], poses[:40], x[40:], poses[40:])
        assert error < 1e-3
        assert fitted[task].ridge == 1e-4
    stored = arrays_of(fitted)
    again = read_proposers(Path("some.npz"), stored)
    for task, one in fitted.items():
        assert np.array_equal(again[task].weights, one.weights)
        assert np.allclose(again[task].templates[..., :3], one.templates[..., :3], atol=1e-3)
        assert again[task].template(one.known[7]) == 7
    with pytest.raises(DjepaError, match=r"some\.npz is damaged: '.*ridge' is missing"):
        read_proposers(Path("some.npz"), {n: a for n, a in stored.items() if "ridge" not in n})


def test_a_fixed_correction_is_the_variant_that_solves_most() -> None:
    ids = torch.tensor([[2, 0, 1], [0, 1, 2]])
    won = torch.tensor([[True, True, False], [True, False, True]])
    outcomes = Outcomes(("a", "b"), won, torch.ones_like(won))
    assert fit_fixed(ids, outcomes).candidate == 2
    with pytest.raises(DjepaError, match="same candidate IDs"):
        fit_fixed(torch.tensor([[0, 1, 2], [0, 1, 3]]), outcomes)


def test_a_threshold_opens_where_replacing_pays_and_keeps_the_rest() -> None:
    scalar = torch.tensor([0.1, 0.2, 0.3, 0.4])
    before, after = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 1]]).bool()
    found = fit_threshold(scalar, before, after)
    assert found.opens(scalar).tolist() == [False, False, True, True]
    assert (
        fit_threshold(-scalar, before, after, -1).opens(-scalar).tolist()
        == found.opens(scalar).tolist()
    )
    never = fit_threshold(scalar, after, before)
    assert not never.opens(scalar).any()
    tied = fit_threshold(torch.zeros(4), before, after)
    assert tied.opens(torch.zeros(4)).all()
    same = fit_threshold(scalar, before, before)
    assert not same.opens(scalar).any()
