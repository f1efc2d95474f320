"""The driving study, tiny: real scenes, a native model with drawn weights, every stage."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from traffic_files import write_npz

from djepa.align.driving_fit import ANCHOR, CORRECTION, fit_anchor, fit_correction
from djepa.align.driving_store import load_readout, save_readout
from djepa.align.gates import Gate
from djepa.align.shift import Shift
from djepa.align.suite import Suite
from djepa.bank.driving import TrafficBank, collect_traffic
from djepa.errors import DjepaError
from djepa.evaluate.gap import gap_closed
from djepa.evaluate.graded import paired_quality, qualities
from djepa.evaluate.rows import Row
from djepa.models.nets import initialise
from djepa.models.traffic import TrafficModel, save_native
from djepa.models.traffic_predict import load_scorer, view
from djepa.pools.driving import fit_vocabulary
from djepa.rollout.driving import (
    EACH,
    FURTHER,
    RECORDED,
    TrafficConfig,
    _places,
    recorded_files,
    scenes_in,
)
from djepa.rollout.engine import LocalEngine
from djepa.seeds import generator
from djepa.studies import driving_fits
from djepa.studies.design import Place, Sizes
from djepa.studies.driving import DRIVING, population, seven
from djepa.studies.findings import findings
from djepa.studies.results import Results
from djepa.studies.stages import run_stages
from djepa.studies.study import Study, new_study
from djepa.worlds.traffic.forecast import FORECASTS
from djepa.worlds.traffic.generate import make_log, scenes
from djepa.worlds.traffic.judge import RULE

TINY = Sizes(9, 6, 6, audit=2, updates=2)
SEED = 5


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as found:
        yield found


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, patch: pytest.MonkeyPatch) -> Study:
    """A study that was run to the end."""
    home = tmp_path_factory.mktemp("driving")
    folder = home / "weights" / "traffic"
    model = TrafficModel()
    initialise(model, torch.Generator().manual_seed(SEED))
    logs = (make_log("native", i, SEED) for i in range(2))
    save_native(folder, model, fit_vocabulary(logs, generator("v"), 100), {})
    patch.setenv("DJEPA_WEIGHTS", str(home / "weights"))
    few, one = replace(ANCHOR, epochs=8), replace(CORRECTION, epochs=1)
    patch.setattr(driving_fits, "FOLDS", 2)
    patch.setattr(driving_fits, "fit_anchor", partial(fit_anchor, recipe=few))
    patch.setattr(driving_fits, "fit_correction", partial(fit_correction, recipe=one))
    patch.setitem(driving_fits.FITS, "score correction", driving_fits.fit_correction)
    patch.setattr("djepa.models.weights.CHECKOUT", home)
    place = Place(home / "study", LocalEngine(1), seed=SEED)
    found = new_study(replace(DRIVING, sizes={"tiny": TINY}), place, "tiny")
    run_stages(found.stages(), lambda line: None)
    return found


def test_every_method_decides_and_no_log_is_in_two_roles(study: Study) -> None:
    rows = study.rows("generated")
    assert {row.method for row in rows} >= {
        "native score", "scalar fusion", "per-candidate network", "score correction",
        "anchor-relative", "anchor-relative with risk", "D-JEPA", "D-JEPA, certified",
        "consensus native", "forecast, straight", "forecast, lanes", "forecast, rules", "oracle",
    }  # fmt: skip
    logs = [
        {name.split("@")[0] for name in study.population(role, case).evidence.identities}
        for role in ("fit", "calibration", "confirmation", "audit")
        for case in study.cases(role)
    ]
    assert sum(map(len, logs)) == len(set.union(*logs)) == 3 + 2 + 2 + 2
    best = qualities(rows)["oracle"]
    for method, of in qualities(rows).items():
        assert (of <= best + 1e-9).all(), method


def test_rows_hold_what_execution_showed(study: Study) -> None:
    (case,) = study.cases("confirmation")
    bank = TrafficBank(study.out / "banks" / case.folder)
    for row in study.rows("generated"):
        assert row.cost == pytest.approx(1 - bank.parts["pdms"][row.start, row.chosen], abs=1e-6)
        assert row.rule == RULE


def test_outcomes_never_reach_a_choice(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    (case,) = study.cases("confirmation")
    _, before = study.decided(case)
    turned = {
        name: 1 - x for name, x in TrafficBank(study.out / "banks" / case.folder).parts.items()
    }
    monkeypatch.setattr(TrafficBank, "parts", turned)
    _, after = study.decided(case)
    for name in before:
        assert torch.equal(before[name].position, after[name].position), name


def test_pages_are_made_of_stored_files_alone(study: Study) -> None:
    results = Results(study.out, study.design)
    assert "of what the best candidate gains over native score" in findings(results)[0]
    page = (study.out / "report.html").read_text()
    assert "PDMS and its parts" in page
    assert "ego car" in page  # the inspector draws it


def test_running_again_makes_nothing_and_an_altered_readout_is_refused(study: Study) -> None:
    lines = list[str]()
    run_stages(study.stages(), lines.append)
    assert all("there already" in line for line in lines)
    folder = study.place.own("all", "score correction")
    again = folder.parent / "again"
    save_readout(load_readout(folder), again, {})
    (again / "config.json").write_text("{}")
    with pytest.raises(DjepaError, match=r"config\.json"):
        load_readout(again)


def test_a_readout_comes_back_as_it_was(study: Study, tmp_path: Path) -> None:
    (case,) = study.cases("confirmation")
    bank = TrafficBank(study.out / "banks" / case.folder)
    evidence = driving_fits.driving_evidence(bank)
    for name in driving_fits.FITS:
        first = load_readout(study.place.own("all", name))
        save_readout(first, tmp_path / name, {})
        assert torch.equal(load_readout(tmp_path / name).score(evidence), first.score(evidence))


def test_forecasts_see_the_present_alone() -> None:
    for scene in scenes("native", 3, 1, seed=SEED):
        other = scene.future.copy()
        other[:, 1:] += 5.0
        for forecast in FORECASTS.values():
            a, b = forecast(scene), forecast(replace(scene, future=other))
            np.testing.assert_array_equal(a.future, b.future)
            here = np.isfinite(scene.past[:, -1]).all(1)
            np.testing.assert_allclose(a.future[here, 0, :2], scene.past[here, -1, :2], atol=0.01)


def test_a_forecast_along_lanes_is_nearer_than_a_straight_one() -> None:
    away = {name: list[float]() for name in FORECASTS}
    for scene in scenes("native", 7, 2, seed=SEED):
        for name, forecast in FORECASTS.items():
            error = forecast(scene).future[:, 30, :2] - scene.future[:, 30, :2]
            near = np.hypot(*(scene.past[:, -1, :2] - scene.ego[:2]).T) < 40
            known = near & np.isfinite(error).all(1)
            away[name] += np.hypot(*error[known].T).tolist()
    assert np.mean(away["lanes"]) < 0.8 * np.mean(away["straight"])


def test_blocks_and_workers_change_nothing(study: Study, tmp_path: Path) -> None:
    scorer = load_scorer()
    config = TrafficConfig("fit", 2, 1, SEED, block=1)
    banks = [
        collect_traffic(tmp_path / f"{i}", of, LocalEngine(1), scorer.vocabulary, view)
        for i, of in enumerate((config, replace(config, block=2)))
    ]
    for part in ("ids", "poses", "frame", "straight", "lanes", "rules"):
        a, b = (getattr(bank.known, part) for bank in banks)
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(banks[0].parts["pdms"], banks[1].parts["pdms"])
    (tmp_path / "0" / "outcome" / "block-000000.safetensors").write_bytes(b"x")
    with pytest.raises(DjepaError, match="block-000000"):
        TrafficBank(tmp_path / "0")


def test_the_rule_of_seven_scenes_asks_for_three_logs(study: Study) -> None:
    (case,) = study.cases("confirmation")
    test = population(study, "confirmation", case)
    with pytest.raises(DjepaError, match="hard scenes"):
        seven(test, 7)


def test_graded_pairs_by_hand() -> None:
    ours, theirs = np.array([1.0, 0.5, 0.75, 0.0]), np.array([0.5, 0.5, 0.25, 0.2])
    logs = np.array(["a", "a", "b", "c"])
    found = paired_quality(ours, theirs, logs)
    assert (found.gains, found.losses) == (2, 1)
    assert found.difference == pytest.approx(0.2)
    low, high = found.difference_interval
    assert -0.21 < low < 0.2 < high < 0.51
    # Of the eight flips of three logs, those with |sum| >= 0.8 are +++ ++- and their mirrors.
    assert found.p == pytest.approx(0.5, abs=0.02)
    rows = [
        Row("", "", method, i, str(logs[i]), True, 0, True, 1 - of[i], False, RULE, "", "")
        for method, of in {"ours": ours, "theirs": theirs, "oracle": np.ones(4)}.items()
        for i in range(4)
    ]
    assert gap_closed(rows, "ours", "theirs", graded=True).share == pytest.approx(0.8 / 2.55)


def test_a_gate_stays_shut_where_scenes_differ_or_are_too_few(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    (case,) = study.cases("confirmation")

    def opened(shift: Shift | None) -> dict[str, bool]:
        monkeypatch.setattr(driving_fits, "shift_of", lambda *given: shift)
        _, choices = study.decided(case)
        found = {name: choices[name].opened for name in ("D-JEPA", "D-JEPA, unchecked")}
        return {name: bool(of is not None and of.any()) for name, of in found.items()}

    load = Study.suite

    def wide(self: Study, group: str) -> Suite:
        """Its D-JEPA has a gate that always opens."""
        found = load(self, group)
        found.alignments["D-JEPA"].gate = Gate(-1e9)
        return found

    monkeypatch.setattr(Study, "suite", wide)
    assert opened(Shift(1.0, "", {}, (9, 9))) == {"D-JEPA": True, "D-JEPA, unchecked": True}
    for unlike in (Shift(1e-5, "", {}, (9, 9)), None):
        assert opened(unlike) == {"D-JEPA": False, "D-JEPA, unchecked": True}


def test_further_cars_are_those_that_the_first_recorded_scenes_leave_out() -> None:
    files = (("a", "b"),)
    for cars in (3, EACH, EACH + 1, 40):
        first = set(_places(TrafficConfig(RECORDED, 1, EACH, files=files), cars))
        further = set(_places(TrafficConfig(FURTHER, 1, 100, files=files), cars))
        assert len(first) == min(EACH, cars)
        assert not first & further
        assert first | further == set(range(cars))


def test_recorded_scenes_are_read_from_their_files(tmp_path: Path) -> None:
    write_npz(tmp_path / "a.npz")
    files = recorded_files(tmp_path)
    config = TrafficConfig(RECORDED, 1, files=files)
    assert scenes_in(config, 0, tmp_path)
    with pytest.raises(DjepaError, match="folder"):
        scenes_in(config, 0)
    (tmp_path / "a.npz").write_bytes(b"another")
    scenes_in.cache_clear()
    with pytest.raises(DjepaError, match="not the file"):
        scenes_in(config, 0, tmp_path)
    with pytest.raises(DjepaError, match="no recorded traffic"):
        recorded_files(tmp_path / "nowhere")
