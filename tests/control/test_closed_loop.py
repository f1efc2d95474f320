"""The control study, all its stages, on two episodes of five controls."""

from dataclasses import replace
from pathlib import Path

import pytest
from control_kit import fit_alignment

from djepa.align.presets import FOUR, mixed
from djepa.align.store import load_alignment
from djepa.align.suite import Recipe
from djepa.control.episodes import EpisodeConfig
from djepa.control.results import Episodes
from djepa.models.weights import weights_hash
from djepa.rollout.engine import LocalEngine
from djepa.studies import closed_loop
from djepa.studies.closed_loop import CONTROL, FLOOR, OURS, SAME, SECOND
from djepa.studies.design import Design, Place, Sizes
from djepa.studies.findings import findings
from djepa.studies.results import Results
from djepa.studies.stages import run_stages
from djepa.studies.study import new_study


def short(goal: int, episodes: int, place: Place) -> EpisodeConfig:
    return EpisodeConfig(episodes=episodes, goal=goal, budget=5, seed=place.seed, block=1)


@pytest.fixture
def design(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Design:
    """Two planners; an alignment of the shipped weights, whichever these are."""
    monkeypatch.setattr(closed_loop, "_episodes", short)
    monkeypatch.setattr(closed_loop, "PLANNED", {"quick": (SAME, OURS)})
    small = {"evaluations": 64, "samples": 8, "elites": 2}
    monkeypatch.setitem(closed_loop.SEARCH, "quick", small)  # type: ignore[arg-type]
    fit_alignment({name: weights_hash(name) for name in FOUR}, tmp_path / "fits/planner/d-jepa")
    sizes = {"quick": Sizes(0, 0, 2, shipped=True)}
    return replace(CONTROL, shipped=tmp_path / "fits", sizes=sizes)


def test_the_study_runs_and_resumes(design: Design, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def run() -> list[str]:
        lines = list[str]()
        study = new_study(design, Place(out, LocalEngine(1)), "quick")
        run_stages(study.stages(), lines.append)
        return [line for line in lines if line.endswith(" ...")]

    assert [line.split(" ", 1)[1] for line in run()[-3:]] == [
        "tables ...",
        "figures ...",
        "page ...",
    ]
    assert run() == []
    results = Results(out, design)
    assert list(results.rows) == ["goal-25", "goal-25-strict", "goal-50", "goal-50-strict"]
    for case, rows in results.rows.items():
        assert {row.method for row in rows} == {SAME, OURS, FLOOR}
        assert {row.rule.split(", ")[1] for row in rows} == {
            "strict" if case.endswith("strict") else "moderate"
        }
    assert results.measured("expense")["goal-50"]["frozen"]
    found = Episodes(out / "episodes" / "goal-25" / "aligned")
    assert found.config.budget == 5
    page = (out / "report.html").read_text()
    assert "evaluations a success" in page
    assert "Decision inspector" in page  # replays
    assert all("CEM under" in line for line in findings(results))
    (replay,) = [r for r in results.measured("inspector").values() if r["label"] == "goal-25"]
    assert replay["methods"] == ["CEM under TD-JEPA", "D-JEPA, aligned choice"]
    assert all(len(start["states"]) == 2 for start in replay["starts"])


def test_the_second_round_learns_from_visited_states(
    design: Design, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve episodes of one decision with goals five controls away; nine fit, three calibrate."""

    def near(goal: int, episodes: int, place: Place) -> EpisodeConfig:
        return EpisodeConfig(episodes=episodes, goal=5, budget=5, seed=place.seed, block=4)

    monkeypatch.setattr(closed_loop, "_episodes", near)
    monkeypatch.setattr(closed_loop, "PLANNED", {"quick": (OURS, SECOND)})
    monkeypatch.setattr(closed_loop, "VISITS", {"quick": 12})
    recipe = Recipe({}, {"D-JEPA": mixed(FOUR, (), "log")})
    study = new_study(
        replace(design, recipe=recipe), Place(tmp_path / "out", LocalEngine(1)), "quick"
    )
    stages = study.stages()
    run_stages([s for s in stages if s.name.startswith(("collect", "predict", "fit"))], print)
    found = load_alignment(tmp_path / "out/fits/planner-own/second-round")
    first = load_alignment(tmp_path / "fits/planner/d-jepa")
    assert found.report is not None
    assert first.report is not None
    assert found.weights == first.weights
    assert found.report.fusion.weights != first.report.fusion.weights
    assert len(Episodes(tmp_path / "out/episodes/first-round")) == 12
