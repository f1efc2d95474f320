"""Planner pools: the same bytes from anywhere, made from what a decision may see and no more."""

import inspect
import pickle
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from commands import djepa
from djepa.bank.check import check_bank
from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.cli.collect import Costs
from djepa.errors import DjepaError
from djepa.models.lewm import LeWM, LeWMConfig
from djepa.models.planner_pool import CEMProposer, native_costs, proposer_of
from djepa.models.predict import predict
from djepa.models.tdjepa import TDJEPA
from djepa.models.weights import load_geometry, save_geometry, weights_hash
from djepa.pools import REFERENCE
from djepa.pools.cem import CEM, LAST
from djepa.rollout.cluster import RayEngine
from djepa.rollout.engine import LocalEngine
from djepa.rollout.execute import BlockWork, CollectConfig, draw_block, pool_seeds, run_block
from djepa.tasks.task import Scene
from djepa.threads import one_thread
from djepa.worlds.starts import Start

NARROW = LeWMConfig(
    image=28,
    width=24,
    depth=1,
    heads=3,
    hidden=48,
    latent=20,
    projector=32,
    predictor_depth=2,
    predictor_heads=2,
    predictor_head=8,
    predictor_hidden=40,
)
TINY = CEM(samples=8, iterations=3, elites=3, keep=7)
CONFIG = CollectConfig(profile="planner", starts=5, block=2)


def save_narrow(folder: Path, kind: type[LeWM] = LeWM, seed: int = 0) -> Path:
    torch.manual_seed(seed)
    model = kind(NARROW).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    model.action_std.fill_(0.3)
    save_geometry(model, folder, {})
    return folder


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_narrow(tmp_path_factory.mktemp("weights") / "narrow")


@pytest.fixture(scope="module")
def bank(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Bank:
    folder = tmp_path_factory.mktemp("banks") / "planner"
    return collect(folder, CONFIG, LocalEngine(1), CEMProposer(weights, TINY))


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def starts_of(config: CollectConfig) -> tuple[list[Start], list[int]]:
    drawn = draw_block(BlockWork(config, 0))
    return [entry.start for entry in drawn], pool_seeds(config, 0)


def files(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_two_workers_write_the_same_bytes_as_one(bank: Bank, weights: Path, tmp_path: Path) -> None:
    collect(tmp_path / "two", CONFIG, LocalEngine(2), CEMProposer(weights, TINY))
    assert files(tmp_path / "two") == files(bank.path)


@pytest.mark.filterwarnings("ignore")
def test_ray_writes_the_same_bytes(bank: Bank, weights: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    collect(tmp_path / "ray", CONFIG, RayEngine(workers=2), CEMProposer(weights, TINY))
    assert files(tmp_path / "ray") == files(bank.path)


@pytest.mark.parametrize("block", [1, 3, 5])
def test_the_size_of_a_block_changes_no_pool(
    block: int, bank: Bank, weights: Path, tmp_path: Path
) -> None:
    config = replace(CONFIG, block=block)
    other = collect(tmp_path / "x", config, LocalEngine(1), CEMProposer(weights, TINY))
    for name, array in vars(bank.decisions).items():
        assert np.array_equal(array, getattr(other.decisions, name)), name


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_number_of_threads_changes_no_pool(count: int, bank: Bank, weights: Path) -> None:
    torch.set_num_threads(count)
    pools = CEMProposer(weights, TINY).propose(Scene(), *starts_of(CONFIG))
    assert torch.get_num_threads() == count
    assert np.array_equal(np.stack([pool.actions for pool in pools]), bank.decisions.actions[:2])
    with pytest.raises(KeyError), one_thread():
        raise KeyError
    assert torch.get_num_threads() == count


def test_the_search_goes_by_the_native_cost(bank: Bank, weights: Path) -> None:
    """What was drawn first is dearer than what is left in the end."""
    model, scene = load_geometry(weights), Scene()
    left = predict(model, scene, bank.decisions).cost.numpy()
    starts, seeds = starts_of(replace(CONFIG, block=5))
    cost = native_costs(model, scene, starts)
    first = replace(TINY, iterations=1).search(cost, 25, [0.3, 0.3], seeds)
    drawn = replace(bank.decisions, actions=np.stack([pool.actions for pool in first]))
    before = predict(model, scene, drawn).cost.numpy()
    assert (left.min(axis=1) <= before.min(axis=1) + 1e-6).all()
    assert (np.median(left, axis=1) < np.median(before, axis=1)).all()


def test_starts_can_be_searched_together(bank: Bank, weights: Path) -> None:
    """Not to the last bit, but it is the same search."""
    starts, seeds = starts_of(replace(CONFIG, block=5))
    once = replace(TINY, iterations=1)
    model = load_geometry(weights)
    std = model.action_std.double().numpy()
    together = once.search(native_costs(model, Scene(), starts), 25, std, seeds)
    alone = CEMProposer(weights, once).propose(Scene(), starts, seeds)
    assert [pool.hashes() for pool in together] == [pool.hashes() for pool in alone]


def test_the_pools_are_whole(bank: Bank) -> None:
    d, p = bank.decisions, bank.provenance
    assert d.actions.shape == (5, 7, 25, 2)
    assert d.actions.dtype == np.float32
    assert np.abs(d.actions).max() <= 1
    assert (np.diff(d.candidate_ids, axis=1) > 0).all()
    assert (d.candidate_ids[p.family == LAST] >= 16).all()
    assert (d.candidate_ids[p.family != LAST] < 16).all()
    assert (p.centre_of == -1).all()
    for row in d.action_hashes:
        assert len({digest.tobytes() for digest in row}) == 7
    assert len(list(check_bank(bank.path))) >= 6


def test_no_reference_and_no_outcome_reach_the_search(bank: Bank, weights: Path) -> None:
    assert list(inspect.signature(CEMProposer.propose).parameters)[1:] == [
        "scene",
        "starts",
        "seeds",
        "drawn",
    ]
    assert {field.name for field in fields(Start)} == {"state", "goal", "context", "history"}
    assert REFERENCE not in bank.provenance.family
    # Another rule judges otherwise and the pools are the same.
    config = replace(CONFIG, rule="push-symmetric.v1", shape="T")
    proposer = CEMProposer(weights, TINY)
    other = run_block(BlockWork(config, 0, proposer=proposer))
    assert np.array_equal(other.decision["actions"], bank.decisions.actions[:2])
    references = bank.provenance.centres[:, :1]
    assert not (bank.decisions.actions == references).all(axis=(2, 3)).any()


def test_a_stopped_collection_goes_on(bank: Bank, weights: Path, tmp_path: Path) -> None:
    class Stops:
        def map(
            self, work: Any, items: Any, shared: Any = None, device: str = "cpu"
        ) -> Iterator[tuple[int, Any]]:
            key, item = next(items)
            yield key, work(item)
            raise KeyboardInterrupt

    proposer = CEMProposer(weights, TINY)
    with pytest.raises(KeyboardInterrupt):
        collect(tmp_path, CONFIG, Stops(), proposer)
    assert len((tmp_path / "journal.jsonl").read_text().splitlines()) == 1
    with pytest.raises(DjepaError, match=r"source: .*'spread': 1.0.* there, .*'spread': 2.0"):
        collect(tmp_path, CONFIG, LocalEngine(1), CEMProposer(weights, TINY, spread=2.0))
    collect(tmp_path, CONFIG, LocalEngine(1), proposer)
    assert files(tmp_path) == files(bank.path)


def test_the_manifest_says_which_search_it_was(bank: Bank, weights: Path, tmp_path: Path) -> None:
    source = bank.manifest["source"]
    assert source["geometry"] == "lewm"
    assert source["weights"] == weights_hash(weights)
    assert {name: source[name] for name in ("samples", "iterations", "elites", "keep")} == {
        "samples": 8,
        "iterations": 3,
        "elites": 3,
        "keep": 7,
    }
    assert str(weights) not in (bank.path / "manifest.json").read_text()  # wherever they lie
    again = proposer_of(source, bank.config.horizon, weights)
    assert again.settings == source
    made = run_block(BlockWork(bank.config, 1, proposer=again)).decision["actions"]
    assert np.array_equal(made, bank.decisions.actions[2:4])
    with pytest.raises(DjepaError, match="Not among the shipped weights: lewm with SHA-256"):
        proposer_of(source, 25)
    with pytest.raises(DjepaError, match=r"Not at .*other: lewm"):
        proposer_of(source, 25, save_narrow(tmp_path / "other", seed=1))
    with pytest.raises(DjepaError, match="describes neither a search nor a retention"):
        proposer_of({"width": 1.0}, 25)


def test_shipped_weights_are_found_again_by_their_hash() -> None:
    proposer = CEMProposer("tdjepa")
    assert proposer.where == "tdjepa"
    again = proposer_of(proposer.settings, 25)
    assert (again.where, again.settings) == (proposer.where, proposer.settings)


def test_other_weights_and_other_arithmetic_are_refused(weights: Path, tmp_path: Path) -> None:
    starts, seeds = starts_of(replace(CONFIG, block=1))
    proposer = pickle.loads(pickle.dumps(CEMProposer(weights, TINY)))
    proposer.weights = "0" * 64
    with pytest.raises(DjepaError, match="are not those of the driver"):
        proposer.propose(Scene(), starts, seeds)
    proposer = CEMProposer(weights, TINY)
    proposer.settings = {**proposer.settings, "arithmetic": "torch 1.0, abacus"}
    with pytest.raises(DjepaError, match=r"the driver with torch 1\.0, abacus"):
        proposer.propose(Scene(), starts, seeds)


def test_another_geometry_proposes_other_pools(bank: Bank, tmp_path: Path) -> None:
    folder = save_narrow(tmp_path / "td", TDJEPA, seed=3)
    config = replace(CONFIG, starts=2)
    other = collect(tmp_path / "x", config, LocalEngine(1), CEMProposer(folder, TINY))
    assert other.manifest["source"]["geometry"] == "tdjepa"
    assert not np.array_equal(other.decisions.actions, bank.decisions.actions[:2])
    assert np.array_equal(other.decisions.identities, bank.decisions.identities[:2])


def test_the_first_population_is_as_wide_as_the_training_controls(weights: Path) -> None:
    starts, seeds = starts_of(replace(CONFIG, block=1))
    once = CEM(samples=64, iterations=1, elites=8, keep=64)
    pools = [CEMProposer(weights, once, s).propose(Scene(), starts, seeds) for s in (0.5, 1)]
    assert [p[0].actions.std() for p in pools] == pytest.approx([0.15, 0.3], rel=0.03)


def test_another_horizon(weights: Path, tmp_path: Path) -> None:
    config = replace(CONFIG, starts=1, horizon=10)
    proposer = CEMProposer(weights, TINY, horizon=10)
    assert (
        collect(tmp_path / "x", config, LocalEngine(1), proposer).decisions.actions.shape[2] == 10
    )
    with pytest.raises(DjepaError, match="of 25 controls"):
        collect(tmp_path / "y", config, LocalEngine(1), CEMProposer(weights, TINY))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"geometry": "tdjpea"}, "Unknown weights 'tdjpea'. Did you mean 'tdjepa'"),
        ({"spread": 0.0}, "The spread must be positive"),
        ({"spread": float("nan")}, "The spread must be positive"),
        ({"horizon": 12}, "multiple of 5"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], complaint: str, weights: Path) -> None:
    with pytest.raises(DjepaError, match=complaint):
        CEMProposer(**{"geometry": weights, **options})


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--profile", "planer"], "Did you mean 'planner'"),
        (["--profile", "planner", "--geometry", "lewn"], "Did you mean 'lewm'"),
        (["--profile", "planner", "--keep", "65"], "A pool of 65 needs a last population"),
        (["--profile", "planner", "--samples", "4"], "8 elites cannot come from 4 samples"),
    ],
)
def test_mistakes_at_the_command_line(flags: list[str], complaint: str, tmp_path: Path) -> None:
    done = djepa("collect", "push", "--out", tmp_path / "x", *flags)
    assert done.returncode == 1
    assert complaint in done.stderr.replace("\n", " ")
    assert not (tmp_path / "x").exists()


def test_the_command_line_collects_and_checks(weights: Path, tmp_path: Path) -> None:
    flags = ["--profile", "planner", "--geometry", str(weights), "--samples", "8", "--elites", "3"]
    size = ["--iterations", "3", "--keep", "7", "--starts", "5", "--block", "2", "--workers", "1"]
    where = tmp_path / "bank"
    done = djepa("collect", "push", *flags, *size, "--out", where)
    assert done.returncode == 0, done.stderr
    assert "5 starts x 7 candidates" in done.stdout
    done = djepa("check", where)
    assert done.returncode == 0, done.stderr
    assert "search not done again" in done.stdout
    done = djepa("check", where, "--geometry", weights)
    assert done.returncode == 0, done.stderr
    assert "made again from it, every byte the same" in done.stdout


def test_check_searches_again(bank: Bank, weights: Path) -> None:
    lines = list(check_bank(bank.path, proposer=CEMProposer(weights, TINY)))
    assert any("made again from it" in line for line in lines)
    with pytest.raises(DjepaError, match="it was proposed by"):
        list(check_bank(bank.path, proposer=CEMProposer(weights, TINY, spread=2.0)))


def test_the_defaults_of_the_command_are_those_of_the_search() -> None:
    cem, command = CEM(), Costs()
    for name in ("samples", "iterations", "elites", "keep"):
        assert getattr(command, name) == getattr(cem, name)
