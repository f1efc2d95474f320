"""stable-worldmodel: its own World, policy and CEM run with our cost, recorder and solver."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from interop_kit import Kit
from scratch import needs
from test_interop_page import block

from commands import djepa
from djepa.align.fit import AlignConfig, Alignment
from djepa.errors import DjepaError, MissingExtraError
from djepa.evidence.evidence import Evidence
from djepa.interop.population import Recorder
from djepa.interop.swm import AlignedSolver, Decision, PlannerCost, make_solver

real = needs("stable_worldmodel")
N, S = 2, 12


def info_of(kit: Kit) -> dict[str, Any]:
    """What a solver is given of N environments: a time axis of 1 follows."""
    g = kit.given
    known = {"context": g.frames, "history": g.history, "goal": g.goal}
    return {name: x[:N, None] for name, x in known.items()}


def expanded(info: dict[str, Any]) -> dict[str, Any]:
    return {name: x[:, None].expand(N, S, *x.shape[1:]) for name, x in info.items()}


def population(kit: Kit) -> torch.Tensor:
    return kit.given.candidates[:N, :S].reshape(N, S, 5, 10)


def test_the_cost_is_the_planners_own(kit: Kit) -> None:
    cost, g = PlannerCost(kit.planner), kit.given
    direct = kit.planner.search_cost(g.frames[:N], g.history[:N], g.goal[:N], g.candidates[:N, :S])
    assert torch.equal(cost.get_cost(expanded(info_of(kit)), population(kit)), direct)
    assert next(cost.parameters()).dtype == torch.float32
    ids = torch.arange(S).expand(N, -1).contiguous()
    plan = kit.planner.plan(g.frames[:N], g.history[:N], g.goal[:N], g.candidates[:N, :S], ids)
    assert torch.equal(cost.decide(info_of(kit), population(kit)).choice, plan.choice)
    assert "djepa_proprio" not in info_of(kit)
    cost.planner.geometries["tdjepa"].proprio_weight = 0.1  # as those that feel have it
    try:
        with pytest.raises(DjepaError, match="tdjepa reads proprioception"):
            cost.decide(info_of(kit), population(kit))
    finally:
        del cost.planner.geometries["tdjepa"].proprio_weight
    with pytest.raises(DjepaError, match="lacks history, goal"):
        cost.get_cost({"context": 1}, population(kit))


class Search:
    """Random search with callbacks, as a solver of that library calls them: batches of one."""

    def __init__(self, cost: Any, kit: Kit) -> None:
        self.cost, self.kit, self.callbacks = cost, kit, list[Any]()
        self.n_envs, self.action_dim, self.horizon = N, 10, 5

    def solve(self, info: dict[str, Any], init_action: Any = None) -> dict[str, Any]:
        for callback in self.callbacks:
            callback.reset()
        for n in range(N):
            for callback in self.callbacks:
                callback.start_batch()
            rows = population(self.kit)[n : n + 1]
            for step in range(2):  # the last population counts
                given = rows if step else rows.flip(1)
                some = {k: x[n : n + 1, None].expand(1, S, *x.shape[1:]) for k, x in info.items()}
                for callback in self.callbacks:
                    callback(candidates=given, costs=self.cost.get_cost(some, given))
        for callback in self.callbacks:
            callback.end_solve()
        return {"actions": torch.zeros(N, 5, 10)}


def test_the_aligned_choice_of_the_last_population_is_taken(kit: Kit, tmp_path: Any) -> None:
    cost = PlannerCost(kit.planner)
    solver = AlignedSolver(Search(cost, kit), cost)
    found = solver(info_of(kit))
    choice = solver.plans[-1].choice
    assert torch.equal(found["actions"], population(kit)[torch.arange(N), choice])
    candidates, costs = solver.recorder.last
    assert torch.equal(candidates, population(kit))
    assert (solver.n_envs, solver.action_dim, solver.horizon) == (N, 10, 5)
    only = AlignedSolver(Search(cost, kit), cost, record_only=True)
    assert not only(info_of(kit))["actions"].any()
    success = costs.numpy() < np.median(costs)
    solver.recorder.save(tmp_path / "run.npz", success)
    assert "success of the choice" in djepa("audit", tmp_path / "run.npz").stdout
    with pytest.raises(DjepaError, match=r"success must be \(2, 12\)"):
        solver.recorder.save(tmp_path / "run.npz", success[:1])


def test_a_search_without_callbacks_is_named(kit: Kit) -> None:
    with pytest.raises(DjepaError, match="no callbacks"):
        AlignedSolver(object(), PlannerCost(kit.planner))
    with pytest.raises(DjepaError, match="MPPI"):
        print(Recorder().last)


def test_an_alignment_as_objective(kit: Kit) -> None:
    rng = np.random.default_rng(0)
    n, D = 40, 6
    ends, goals = rng.normal(size=(n, S, D)), rng.normal(size=(n, D))
    cost = ((ends - goals[:, None]) ** 2).mean(-1)
    given = {"costs": {"mine": cost}, "latents": {"mine": ends}, "goals": {"mine": goals}}
    evidence = Evidence.from_arrays(start_ids=range(n), candidate_ids=[range(S)] * n, **given)
    config = AlignConfig(("mine",), ("mine",), ("mine",), updates=4, every=2, batch=4)
    success = cost < np.median(cost)
    alignment = Alignment(config).fit(evidence.rows(range(20)), success[:20])
    alignment.calibrate(evidence.rows(range(20, 40)), success[20:])
    predicted = torch.from_numpy(ends)[:, :, None].float()
    score = Decision(alignment, "mine")(
        {"predicted_emb": predicted, "goal_emb": torch.from_numpy(goals)[:, None].float()}
    )
    assert score.shape == (n, S)
    known = {name: {"mine": x["mine"].astype(np.float32)} for name, x in given.items()}
    same = Evidence.from_arrays(start_ids=range(n), candidate_ids=[range(S)] * n, **known)
    assert torch.equal(score.argmin(1), alignment.decide(same).position)


def test_both_generations_are_told_apart_by_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    class New:
        def __init__(self, cost: Any, samples: int) -> None:
            self.got = ("cost", cost, samples)

    class Old:
        def __init__(self, model: Any, samples: int) -> None:
            self.got = ("model", model, samples)

    for place, kind in (("solver", Old), ("planning", New)):  # the newer has both
        module = ModuleType(f"stable_worldmodel.{place}")
        module.CEMSolver = kind  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "stable_worldmodel", ModuleType("stable_worldmodel"))
        monkeypatch.setitem(sys.modules, module.__name__, module)
        word = "model" if kind is Old else "cost"
        assert make_solver("CEMSolver", "it", samples=3).got == (word, "it", 3)


@pytest.mark.skipif(not real.args[0], reason="it is installed")
def test_the_missing_package_is_named() -> None:
    with pytest.raises(MissingExtraError, match=r"djepa\[swm\]"):
        make_solver("CEMSolver", None)


@real
@pytest.mark.filterwarnings("ignore")
def test_its_world_evaluates_with_our_solver(kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    """The ten lines of the page, on its PushT."""
    small = {"num_samples=64, n_steps=5, topk=8": "num_samples=8, n_steps=2, topk=3"}
    small |= {"(112, 112)": "(28, 28)", "max_episode_steps=50": "max_episode_steps=10"}
    code = block("stable-worldmodel")
    for long, short in small.items():
        assert long in code
        code = code.replace(long, short)
    names: dict[str, Any] = {}
    exec(code.replace("runs/planner.safetensors", str(kit.folder)), names)
    assert names["found"]["episode_successes"].shape == (2,)
    plans = names["solver"].plans
    assert len(plans) >= 2
    candidates, costs = names["solver"].recorder.last
    assert candidates.shape[1:] == (8, 5, 10)
    assert costs.shape == candidates.shape[:2]
    with pytest.raises(DjepaError, match="no solver 'Nothing'"):
        make_solver("Nothing", None)
    native = make_solver("CEMSolver", names["cost"], num_samples=8, n_steps=1, topk=3)
    names["world"].set_policy(names["swm"].policy.WorldModelPolicy(native, names["config"]))
    assert names["world"].evaluate(episodes=1, seed=0)["seeds"].tolist() == [0]


@real
@pytest.mark.filterwarnings("ignore")
def test_our_worlds_are_its_environments() -> None:
    import stable_worldmodel as swm

    from djepa.interop.gym import Remember

    world = swm.World(
        "djepa.interop.gym:djepa/World-v0",
        num_envs=2,
        image_shape=(28, 28),
        max_episode_steps=3,
        extra_wrappers=[Remember],
        world="reacher",
    )
    world.set_policy(swm.policy.RandomPolicy(seed=0))
    found = world.evaluate(episodes=2, seed=0)
    assert set(found) >= {"success_rate", "episode_successes", "seeds"}
    assert world.infos["context"].shape == (2, 1, 3, 28, 28, 3)


@real
@pytest.mark.filterwarnings("ignore")  # it names games that are not installed
@pytest.mark.parametrize("kind", ["lance", "hdf5"])
def test_episodes_that_it_writes_are_read(kind: str, tmp_path: Path) -> None:
    if kind == "hdf5":
        for package in ("h5py", "hdf5plugin"):
            pytest.importorskip(package)
        from stable_worldmodel.data.formats.hdf5 import HDF5Writer as Writer
    else:
        from stable_worldmodel.data.formats.lance import LanceWriter as Writer
    from djepa.interop.recorded import Columns, get_reader

    rng, written = np.random.default_rng(0), []
    for length in (6, 9):
        levels = rng.integers(40, 200, (length, 1, 1, 3))
        frames = np.broadcast_to(levels, (length, 32, 32, 3)).astype(np.uint8)
        controls = rng.normal(size=(length, 2)).astype(np.float32)
        written.append({"pixels": list(frames), "action": list(controls)})
    path = tmp_path / ("push.lance" if kind == "lance" else "push.h5")
    with Writer(path) as writer:
        writer.write_episodes(written)
    found = list(get_reader(kind)(path, Columns()))
    assert len(found) == 2
    for got, want in zip(found, written, strict=True):
        assert np.array_equal(got.controls, np.stack(want["action"]))
        levels = np.abs(got.frames.astype(int) - np.stack(want["pixels"])).max()
        assert levels <= (4 if kind == "lance" else 0)
