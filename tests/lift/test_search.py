"""A planner as the cost of a search: shapes as stable-worldmodel's solvers give them."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from djepa.align.store import load_alignment
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.evidence.ranks import order
from djepa.lift.ordinal import native_distance
from djepa.lift.planner import Planner
from djepa.lift.search import SearchCost
from djepa.models.weights import load_geometry
from djepa.studies.pusht import SHIPPED

N, S = 2, 6


@pytest.fixture(scope="module")
def cost() -> SearchCost:
    alignment = load_alignment(SHIPPED / "planner" / "relational")
    models = {name: load_geometry(name) for name in ("lewm", "tdjepa")}
    return SearchCost(Planner(models, alignment, "tdjepa"))


@pytest.fixture(scope="module")
def info(small_bank: Bank) -> dict[str, Tensor]:
    d = small_bank.decisions
    states = torch.from_numpy(np.concatenate([d.context[:N], d.goal[:N, None]], axis=1))
    frames, proprio = small_bank.scene().observe(states, 112)
    history = torch.from_numpy(d.history[:N].copy()).float()
    known = {"pixels": frames[:, :3], "goal": frames[:, 3], "history": history, "proprio": proprio}
    return {name: x[:, None].expand(N, S, *x.shape[1:]) for name, x in known.items()}


@pytest.fixture(scope="module")
def candidates(small_bank: Bank) -> Tensor:
    return torch.from_numpy(small_bank.decisions.actions[:N, :S].copy()).float()  # (N, S, 25, 2)


def test_blocks_of_controls_are_taken_apart(
    cost: SearchCost, info: dict[str, Any], candidates: Tensor
) -> None:
    plain = cost.get_cost(info, candidates)
    assert plain.shape == (N, S)
    blocks = candidates.reshape(N, S, 5, 10)
    assert torch.equal(cost.get_cost(info, blocks), plain)
    assert torch.equal(cost.criterion(info, blocks), plain)
    once = {name: x[:, 0] for name, x in info.items()}
    direct = cost.planner.search_cost(
        once["pixels"], once["history"], once["goal"], candidates, once["proprio"]
    )
    assert torch.equal(direct, plain)


def test_candidates_are_cut_to_what_can_be_executed(
    cost: SearchCost, info: dict[str, Any], candidates: Tensor
) -> None:
    wild = candidates.clone()
    wild[:, 0] = 7.0
    tame = candidates.clone()
    tame[:, 0] = 1.0
    assert torch.equal(cost.get_cost(info, wild), cost.get_cost(info, tame))


def test_the_final_population_is_decided_and_written_back(
    cost: SearchCost, info: dict[str, Any], candidates: Tensor
) -> None:
    plan = cost.decide(info, candidates)
    ids = torch.arange(S).expand(N, -1)
    read_back = ids.gather(1, order(native_distance(plan.futures, plan.goal), ids))
    assert torch.equal(read_back, plan.order)
    named = cost.decide(info, candidates, ids + 100)
    assert torch.equal(named.choice, plan.choice + 100)


def test_what_is_missing_or_misshapen_is_named(
    cost: SearchCost, info: dict[str, Any], candidates: Tensor
) -> None:
    with pytest.raises(DjepaError, match="lacks history, goal"):
        cost.get_cost({"pixels": info["pixels"]}, candidates)
    with pytest.raises(DjepaError, match="multiple of 2"):
        cost.get_cost(info, candidates[..., :1])
