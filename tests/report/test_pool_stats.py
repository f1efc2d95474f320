import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from djepa.bank.collect import collect
from djepa.bank.read import Decisions, Executions, Provenance
from djepa.errors import DjepaError, MissingExtraError
from djepa.evaluate.intervals import Rate
from djepa.pools import density_pick
from djepa.report.pool_stats import (
    DENSITY_ACTIONS,
    DENSITY_OUTCOMES,
    ENDPOINT,
    outcome_points,
    pool_stats,
    stats_figure,
    stats_json,
    stats_markdown,
)
from djepa.rollout.engine import LocalEngine
from djepa.rollout.execute import CollectConfig

STARTS = 64


@pytest.fixture(scope="module")
def banks(tmp_path_factory):
    """The same starts under both profiles."""
    folder, profiles = tmp_path_factory.mktemp("pools"), ("reference-control", "decoy")
    configs = {p: CollectConfig(starts=STARTS, profile=p, split="test") for p in profiles}
    return {p: collect(folder / p, config, LocalEngine(1)) for p, config in configs.items()}


@pytest.fixture(scope="module")
def stats(banks):
    return {profile: pool_stats(bank) for profile, bank in banks.items()}


class Tiny(SimpleNamespace):
    """What `pool_stats` takes for a bank."""

    def __len__(self):
        return self.config.starts


def tiny(observed=None):
    """Two starts, four candidates in reverse order of ID, one control, worked by hand.

    Start 0: actions 0 1 1 9 are densest at 1, twice: IDs 3 and 2 tie, 2 is taken.
    Start 1: actions 5 5 5 0 all tie but the last: IDs 4, 3, 2 tie, 2 is taken.
    The pusher starts at 0 and follows its action; the goal's is far right in start 0 and at 0 in
    start 1: ID 1 both times.
    """
    x = np.array([[0.0, 1.0, 1.0, 9.0], [5.0, 5.0, 5.0, 0.0]])
    states = np.zeros((2, 4, 1, 10))
    states[:, :, 0, 0] = x
    goal = np.zeros((2, 10))
    goal[0, 0] = 1e4
    success = np.array([[False, False, True, False], [False, False, False, True]])
    seen = np.ones((2, 4), bool) if observed is None else observed
    states[~seen] = np.nan
    ids = np.tile([4, 3, 2, 1], (2, 1))
    empty = np.zeros((2, 1))
    return Tiny(
        path=Path("tiny"),
        hash="00",
        config=CollectConfig(starts=2, profile="decoy", centres=2),
        manifest={"drops": {"wall": 3, "decoy": 0}},
        candidates=4,
        decisions=Decisions(
            empty, empty, np.zeros((2, 10)), goal, empty, empty, ids, x[:, :, None, None], empty
        ),
        outcomes=Executions(success, np.where(success, 0.5, 2.0), seen, states),
        provenance=Provenance(
            centres=np.zeros((2, 2, 1, 1)),
            behaviour=np.array(["push", "weak"]),
            family=np.array([["a", "a", "b", "b"]] * 2),
            centre_of=np.array([[0, 1, 0, 1], [0, 1, 1, -1]]),
            pool_seed=empty,
            draws=empty,
        ),
    )


def tiny_stats(**options):
    return pool_stats(tiny(**options))


def test_hand_worked_counts():
    s = tiny_stats()
    assert (s.starts, s.candidates, s.centres) == (2, 4, 2)
    assert s.success == Rate(2, 8)
    assert (s.mixed, s.all_fail, s.all_success) == (Rate(2, 2), Rate(0, 2), Rate(0, 2))
    assert (s.median_successes, s.random, s.oracle) == (1.0, 0.25, Rate(2, 2))
    assert s.by_family == {"a": Rate(0, 4), "b": Rate(2, 4)}
    assert s.by_behaviour == {"push": Rate(1, 4), "weak": Rate(1, 4)}
    expected = {
        "reference centre": Rate(1, 3),
        "decoy centres": Rate(0, 4),
        "no centre": Rate(1, 1),
    }
    assert s.by_centre == expected
    assert s.drops == {"wall": 3, "decoy": 0}


def test_hand_worked_choosers(monkeypatch):
    monkeypatch.setattr("djepa.report.pool_stats.NEIGHBOURS", 1)
    s = tiny_stats()
    for name in (DENSITY_ACTIONS, DENSITY_OUTCOMES):  # ID 2 twice: it succeeds in start 0
        assert s.choosers[name].success == Rate(1, 2)
        assert s.choosers[name].families == {"b": 2}
        assert s.choosers[name].cluster == Rate(1, 2)
    assert s.choosers[ENDPOINT].success == Rate(1, 2)
    assert s.choosers[ENDPOINT].cluster == Rate(0, 2)


def test_unobserved_is_never_failure(monkeypatch):
    monkeypatch.setattr("djepa.report.pool_stats.NEIGHBOURS", 1)
    observed = np.array([[True, False, False, True], [False, False, False, True]])
    s = tiny_stats(observed=observed)
    assert s.success == Rate(1, 3)  # the success of start 0 was not seen
    assert (s.mixed, s.all_fail, s.all_success) == (Rate(0, 2), Rate(1, 2), Rate(1, 2))
    assert s.by_family == {"a": Rate(0, 1), "b": Rate(1, 2)}
    # On actions the pick is ID 2 as before, executed in neither start: nothing to judge by.
    assert s.choosers[DENSITY_ACTIONS].success == Rate(0, 0)
    assert s.choosers[DENSITY_ACTIONS].cluster == Rate(1, 2)
    # On outcomes IDs 4 and 1 of start 0 tie; start 1 has one candidate left.
    assert s.choosers[DENSITY_OUTCOMES].success == Rate(1, 2)
    assert "none" in stats_markdown([s])
    assert json.loads(stats_json([s]))[0]["choosers"][DENSITY_ACTIONS]["success"]["share"] is None
    with pytest.raises(DjepaError, match="no candidate was executed"):
        tiny_stats(observed=np.zeros((2, 4), bool))


def test_outcome_points_are_pixels():
    states = np.zeros((2, 10))
    states[1, :5] = (3.0, 4.0, 0.0, 0.0, math.pi)
    np.testing.assert_allclose(outcome_points(states)[0], [0, 0, 0, 0, 50, 0])
    np.testing.assert_allclose(outcome_points(states)[1], [3, 4, 0, 0, -50, 0], atol=1e-9)
    turned = states.copy()
    turned[:, 4] += 2 * math.pi  # whole turns are the same place
    np.testing.assert_allclose(outcome_points(turned), outcome_points(states), atol=1e-9)


def test_real_banks_agree_with_their_arrays(banks, stats):
    for profile, bank in banks.items():
        s, won = stats[profile], bank.outcomes.success
        assert s.success == Rate(int(won.sum()), won.size)
        assert s.random == pytest.approx(won.mean())
        assert s.oracle == Rate(int(won.any(axis=1).sum()), STARTS)
        assert s.mixed.hits + s.all_fail.hits + s.all_success.hits == STARTS
        for rates in (s.by_family, s.by_centre, s.by_behaviour):
            assert sum(rate.hits for rate in rates.values()) == won.sum()
            assert sum(rate.of for rate in rates.values()) == won.size
        points = outcome_points(bank.outcomes.states[:, :, -1])
        ids = bank.decisions.candidate_ids
        picked = ids == density_pick(points, ids, 8)[:, None]
        assert s.choosers[DENSITY_OUTCOMES].success == Rate(int(won[picked].sum()), STARTS)
    assert stats["reference-control"].choosers[DENSITY_OUTCOMES].cluster is None


def test_decoys_hide_the_reference_from_density(stats):
    """One-sided exact test of chance 1/4 at 1 %: density must not find the reference's cluster."""
    s = stats["decoy"]
    for name in (DENSITY_ACTIONS, DENSITY_OUTCOMES):
        cluster = s.choosers[name].cluster
        assert cluster is not None
        n, p = cluster.of, 1 / s.centres
        terms = (math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(cluster.hits, n + 1))
        assert n == STARTS
        assert sum(terms) > 0.01, f"{name} finds the reference in {cluster.percent()} of starts"


def test_one_centre_gives_itself_away(stats):
    """What decoys are for: around one reference, density alone beats random choice clearly."""
    s = stats["reference-control"]
    for name in (DENSITY_ACTIONS, DENSITY_OUTCOMES):
        assert s.choosers[name].success.interval[0] > 3 * s.random
        hidden = stats["decoy"].choosers[name].success
        assert hidden.interval[1] < s.choosers[name].success.interval[0]


def test_markdown_tells_the_numbers(stats):
    text = stats_markdown(list(stats.values()))
    ours, decoy = stats["reference-control"], stats["decoy"]
    lines = {line.split(" | ")[0][2:]: line for line in text.splitlines() if line}
    assert f"| {STARTS} × 63 | {STARTS} × 64 |" in lines["starts × candidates"]
    assert f"| {ours.mixed.percent()} | {decoy.mixed.percent()} |" in lines["mixed starts"]
    assert f"{decoy.by_family['noisy_0.3'].percent()} of {STARTS * 16} |" in lines["noisy_0.3"]
    assert lines["smooth_random"].endswith("| - |")
    assert f"{100 * ours.random:.1f} %" in lines["random candidate"]
    assert ours.oracle.percent(interval=True) in lines["best candidate"]
    for s in (ours, decoy):
        assert s.choosers[DENSITY_OUTCOMES].success.percent(interval=True) in text
    assert (
        f"{decoy.choosers[DENSITY_ACTIONS].cluster.percent(interval=True)}, chance 25.0 %" in text
    )
    assert len({line.count(" | ") for line in text.splitlines() if line.startswith("|")}) == 1


def test_json_round_trip(stats):
    held = json.loads(stats_json([stats["decoy"]]))[0]
    s = stats["decoy"]
    assert held["success"]["hits"] == s.success.hits
    assert held["oracle"]["wilson95"] == list(s.oracle.interval)
    assert held["config"]["profile"] == "decoy"
    assert held["choosers"][ENDPOINT]["cluster"]["share"] == s.choosers[ENDPOINT].cluster.share


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_figure(stats, tmp_path, suffix):
    pytest.importorskip("matplotlib")
    paths = [tmp_path / f"{i}{suffix}" for i in range(2)]
    for path in paths:
        stats_figure(list(stats.values()), path)
    data = paths[0].read_bytes()
    assert data == paths[1].read_bytes()
    assert data.startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")
    assert len(data) > 10_000


def test_figure_errors(stats, tmp_path, monkeypatch):
    with pytest.raises(DjepaError, match=r"\.png or \.svg"):
        stats_figure(list(stats.values()), tmp_path / "x.bmp")
    with pytest.raises(DjepaError, match="needs banks"):
        stats_figure([], tmp_path / "x.png")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match="report"):
        stats_figure(list(stats.values()), tmp_path / "x.png")
