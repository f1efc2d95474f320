"""Whole episodes: the same bytes from anywhere, finished after a crash, no outcome in a plan."""

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from control_kit import fit_alignment

from commands import djepa
from djepa.artefacts.claim import JSON_OF
from djepa.control import parts, planners
from djepa.control.episodes import EpisodeConfig, draw_episodes
from djepa.control.loop import Work, control, run_block
from djepa.control.parts import Sight
from djepa.control.planners import PLANNERS, Planner, PlannerConfig
from djepa.control.results import Episodes, first_below
from djepa.errors import DjepaError
from djepa.models.lewm import LeWM
from djepa.rollout import alike
from djepa.rollout.cluster import RayEngine
from djepa.rollout.engine import LocalEngine

SHORT = EpisodeConfig(split="other", episodes=3, budget=10, block=2)
SEARCH = {"evaluations": 48, "samples": 8, "elites": 3}


def planner(kind: str, home: Path, **changes: Any) -> Planner:
    given = {
        "geometry": "tiny-tdjepa",
        "alignment": str(home.parent / "alignment"),
        **SEARCH,
        **changes,
    }
    return Planner(PlannerConfig(kind, **given), "push")


def files(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


class Crash:
    """An engine that stops after so many blocks."""

    def __init__(self, after: int) -> None:
        self.after = after

    def map(
        self, work: Any, items: Iterable[tuple[int, Any]], shared: Any = None, device: str = "cpu"
    ) -> Iterator[tuple[int, Any]]:
        for done, (key, item) in enumerate(items):
            if done == self.after:
                raise KeyboardInterrupt
            yield key, work(item)


@pytest.fixture
def straight(models: Path, tmp_path: Path) -> Path:
    return control(tmp_path / "straight", SHORT, planner("aligned", models), LocalEngine(1))


@pytest.mark.parametrize("kind", PLANNERS)
def test_the_batch_changes_no_episode(kind: str, models: Path) -> None:
    own = planner(kind, models)
    together = run_block(Work(replace(SHORT, block=3), own, 0))
    alone = [run_block(Work(replace(SHORT, block=1), own, block)) for block in range(3)]
    assert together[0] == [name for names, _ in alone for name in names]
    for key, array in together[1].items():
        assert np.array_equal(array, np.concatenate([of[key] for _, of in alone])), key


@pytest.mark.parametrize("kind", ["native-cem", "aligned"])
def test_batches_of_another_device_are_filled_up(
    kind: str, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There always 32 are planned together, so that fewer do not compute differently."""
    for where in (planners, alike):
        monkeypatch.setattr(where, "arithmetic_here", lambda device: "the same")
    given = {"geometry": "tiny-tdjepa", "alignment": str(models.parent / "alignment"), **SEARCH}
    own = Planner(PlannerConfig(kind, **given), "push", "cpu:0")
    now = [episode.now() for episode in draw_episodes(replace(SHORT, block=3), 0)]
    sizes, real = list[int](), planners.Sight

    def noting(parts: Any, scene: Any, starts: list[Any]) -> Any:
        sizes.append(len(starts))
        return real(parts, scene, starts)

    monkeypatch.setattr(planners, "Sight", noting)
    decide = partial(own.decide, SHORT.scene, horizon=25)
    together = decide(now, [1, 2, 3], [None] * 3)
    alone = [decide([one], [seed], [None])[0] for one, seed in zip(now, [1, 2, 3], strict=True)]
    assert sizes == [32] * 4
    for a, b in zip(together, alone, strict=True):
        assert a.candidate == b.candidate
        assert np.array_equal(a.controls, b.controls)


def test_two_workers_write_the_same_bytes(straight: Path, models: Path, tmp_path: Path) -> None:
    control(tmp_path / "two", SHORT, planner("aligned", models), LocalEngine(2))
    assert files(tmp_path / "two") == files(straight)


@pytest.mark.filterwarnings("ignore")
def test_ray_writes_the_same_bytes(straight: Path, models: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    control(tmp_path / "ray", SHORT, planner("aligned", models), RayEngine(workers=1))
    assert files(tmp_path / "ray") == files(straight)


def test_a_crash_loses_no_finished_block(straight: Path, models: Path, tmp_path: Path) -> None:
    folder, made = tmp_path / "again", []
    with pytest.raises(KeyboardInterrupt):
        control(folder, SHORT, planner("aligned", models), Crash(1))
    with pytest.raises(DjepaError, match="not finished"):
        Episodes(folder)
    kept = (folder / "episodes" / "000000.safetensors").stat().st_mtime_ns
    tell = lambda done, total: made.append(done)  # noqa: E731
    control(folder, SHORT, planner("aligned", models), LocalEngine(1), tell)
    assert made == [2, 3]
    assert (folder / "episodes" / "000000.safetensors").stat().st_mtime_ns == kept
    assert files(folder) == files(straight)
    before = files(folder)
    control(folder, SHORT, planner("aligned", models), LocalEngine(1))  # nothing left to do
    assert files(folder) == before
    with pytest.raises(DjepaError, match="another configuration"):
        control(folder, SHORT, planner("native-cem", models), LocalEngine(1))
    assert files(folder) == before


def test_a_damaged_episode_is_refused(straight: Path) -> None:
    file = straight / "episodes" / "000001.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(DjepaError, match="damaged"):
        _ = Episodes(straight).arrays


def test_the_floor_is_that_of_random_controls(straight: Path, tmp_path: Path) -> None:
    drawn = Planner(PlannerConfig("random"), "push")
    floor = Episodes(control(tmp_path / "floor", SHORT, drawn, LocalEngine(1)))
    found = Episodes(straight)
    assert np.array_equal(found.arrays["floor_cost"], floor.arrays["cost"])
    assert floor.names == found.names
    assert floor.arrays["evaluations"].shape == (3, 0)
    assert not np.array_equal(found.arrays["cost"], floor.arrays["cost"])
    assert floor.against(None).difference == 0


def test_a_known_episode() -> None:
    """Random controls need no weights: physics, draws and cost of one episode."""
    config = EpisodeConfig(episodes=1, budget=10, goal=25)
    drawn = Planner(PlannerConfig("random"), "push")
    (name,), arrays = run_block(Work(config, drawn, 0))
    assert name.startswith("5275944132a57fe7")
    assert arrays["cost"][0, [0, 5, 10]] == pytest.approx(
        [10.036005, 10.364898, 9.002156], abs=1e-5
    )


@pytest.mark.parametrize("kind", PLANNERS)
def test_evaluations_are_counted_and_equal(
    kind: str, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is counted is what models roll out; no planner takes more than it may."""
    rolled, own = {"lewm": 0, "tdjepa": 0}, planner(kind, models)
    real = LeWM.rollout

    def counting(self: LeWM, context: Any, history: Any, candidates: Any) -> Any:
        rolled[self.name] += candidates.shape[0] * candidates.shape[1]
        return real(self, context, history, candidates)

    monkeypatch.setattr(LeWM, "rollout", counting)
    _, arrays = run_block(Work(SHORT, own, 0))
    counted = dict.fromkeys(rolled, 0) | dict(
        zip(own.names, arrays["evaluations"].sum(0).tolist(), strict=True)
    )
    assert counted == rolled
    decisions = (arrays["executed"] + 4) // 5
    assert (arrays["evaluations"].sum(1) <= SEARCH["evaluations"] * decisions).all()
    if kind != "random":
        assert (arrays["evaluations"].sum(1) > 0.6 * SEARCH["evaluations"] * decisions).all()


def test_the_final_population_is_not_rolled_out_again_by_the_model_that_was_searched(
    models: Path,
) -> None:
    """48 evaluations: 7 of lewm leave five populations of 8, and what the search knew is used."""
    own = planner("aligned", models)
    assert own.evaluations() == {"lewm": 7, "tdjepa": 40}
    now = [draw_episodes(SHORT, 0)[0].now()]
    ((actions, known),) = own.pools(SHORT.scene, now, [5], 25)
    again = Sight(own.parts, SHORT.scene, now)
    fresh = again.evidence(actions[None].copy(), known["ids"][None].copy())
    for name in ("lewm", "tdjepa"):
        assert np.allclose(known[f"cost of {name}"], fresh.cost(name)[0].numpy(), atol=1e-5)


def test_the_summary_names_who_was_evaluated(straight: Path) -> None:
    """The search is under tdjepa; lewm rolls out final populations alone."""
    found = Episodes(straight).summary()["evaluations"]
    assert found["tdjepa"] > 2 * found["lewm"] > 0


def test_candidates_end_when_the_first_would_have(models: Path) -> None:
    own, fixed = (planner("native-cem", models, shrink=shrink) for shrink in (True, False))
    assert [own.ahead(t, 5) for t in range(0, 35, 5)] == [25, 20, 15, 10, 5, 25, 20]
    assert [own.ahead(t, 10) for t in (0, 10, 20)] == [25, 15, 25]
    assert {fixed.ahead(t, 5) for t in range(0, 50, 5)} == {25}


def test_planners_see_no_outcome() -> None:
    """Neither the world's cost nor its rule is at hand where decisions are made."""
    source = inspect.getsource(planners) + inspect.getsource(parts)
    assert "judge" not in source
    assert "Outcomes" not in source
    assert "execute(" not in source
    assert list(inspect.signature(Planner.decide).parameters)[1:] == [
        "scene",
        "now",
        "seeds",
        "plans",
        "horizon",
    ]


def test_first_below() -> None:
    cost = np.array([[2.0, 0.9, 1.5, 0.4], [2.0, 1.0, 1.0, 1.0]])
    assert first_below(cost, 1.0).tolist() == [1, -1]
    assert first_below(cost, 0.5).tolist() == [3, -1]


def test_results_of_episodes(straight: Path) -> None:
    found = Episodes(straight)
    found.arrays["cost"][:] = 2.0
    found.arrays["cost"][0, 7:] = 0.9
    found.arrays["cost"][1, 9:] = 0.3
    of = found.summary([5, 8])
    assert of["moderate"]["steps_to_success"] == [7, 9, -1]
    assert of["strict"]["steps_to_success"] == [-1, 9, -1]
    assert of["moderate"]["success_at"] == {"5": 0.0, "8": pytest.approx(1 / 3)}
    assert of["moderate"]["median_steps_to_success"] == 8
    assert of["strict"]["n_success"] == 1
    rows = found.rows("ours", "case", "strict")
    assert [row.success for row in rows] == [False, True, False]
    assert [row.cost < 1 for row in rows] == [row.success for row in rows]
    assert [row.chosen for row in rows] == [-1, 9, -1]
    p = found.against(None)
    assert (p.gains, p.losses) == (2, 0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "alligned"}, "Did you mean 'aligned'"),
        ({"geometry": "tiny-lewn"}, "Did you mean 'tiny-lewm'"),
        ({"geometry": "tiny-arm"}, "trained in the world 'reacher'"),
        ({"evaluations": 8}, "too few"),
        ({"alignment": "nowhere"}, "no alignment at nowhere"),
        ({"horizon": 12}, "multiple of 5"),
        ({"spread": 0.0}, "spread"),
        ({"samples": 1}, "samples"),
        ({"elites": 9}, "elites"),
    ],
)
def test_odd_planners_are_refused(changes: dict, words: str, models: Path) -> None:
    with pytest.raises(DjepaError, match=words):
        planner(changes.pop("kind", "aligned"), models, **changes)


def test_an_alignment_of_other_weights_is_refused(models: Path, tmp_path: Path) -> None:
    wrong = fit_alignment({"lewm": "0" * 64, "tdjepa": "1" * 64}, tmp_path / "wrong")
    with pytest.raises(DjepaError, match="Fit again"):
        planner("aligned", models, alignment=str(wrong))


def test_a_world_without_an_alignment_asks_for_one(models: Path) -> None:
    with pytest.raises(DjepaError, match="give --alignment"):
        Planner(PlannerConfig("aligned", geometry="tiny-arm"), "reacher")


def test_the_command(models: Path, tmp_path: Path) -> None:
    short = ("--episodes", 2, "--budget", 10, "--split", "other", "--workers", 1)
    small = ("--geometry", "tiny-tdjepa", "--evaluations", 48, "--samples", 8, "--elites", 3)
    first, second, note = (tmp_path / name for name in ("first", "second", "note.json"))
    done = djepa("control", "push", "--planner", "native-cem", *short, *small, "--out", first)
    assert done.returncode == 0, done.stderr
    given = ("--alignment", models.parent / "alignment", "--against", first, "--json", note)
    done = djepa("control", "push", *short, *small, *given, "--out", second)
    assert done.returncode == 0, done.stderr
    assert "moderate (cost < 1): " in done.stdout
    assert f"strict, against {first}" in done.stdout.replace("\n", " ")
    assert '"success_rate"' in note.read_text()
    assert JSON_OF["control"](note)  # or it would not be replaced by the next
    done = djepa("control", "push", "--planner", "mpi", "--out", tmp_path / "third")
    assert done.returncode == 1
    assert "Did you mean 'mppi'" in done.stderr
    done = djepa("control", "push", *short, "--replan", 10, "--budget", 15, "--out", tmp_path / "x")
    assert (done.returncode, "multiple of replan" in done.stderr) == (1, True)
    other = ("--episodes", 1, "--budget", 10, "--planner", "random", "--workers", 1)
    done = djepa("control", "push", *other, "--against", first, "--out", tmp_path / "fourth")
    assert (done.returncode, "other episodes" in done.stderr) == (1, True)
    assert not (tmp_path / "third").exists()
