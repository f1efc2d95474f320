"""One arm with V-JEPA 2-AC by its path: search, last population, costs, fit and choice.

A stand-in of the published entry point takes the model's place; the file of weights is not here.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cameras import needs_camera
from djepa.align.store import load_alignment
from djepa.artefacts.records import sha256
from djepa.bank.read import Bank
from djepa.cli.study import RunStudy
from djepa.errors import DjepaError
from djepa.models.planner_pool import native_costs
from djepa.models.predictions import read_predictions
from djepa.models.vjepa2 import load_vjepa2
from djepa.pools.cem import CEM
from djepa.rollout.engine import LocalEngine
from djepa.rollout.execute import BlockWork, draw_block, pool_seeds
from djepa.studies import arm
from djepa.studies.design import Case, Place, Sizes
from djepa.studies.stages import run_stages
from djepa.studies.study import Study, new_study
from djepa.tasks.task import Scene
from vjepa2_clone import stand_in

TASK, SEARCH = "stack", CEM(samples=24, iterations=3, elites=5, keep=20, momentum=0.15)
NEAR = 4.3  # tolerances: nothing that random weights find is solved, but some of it ends nearer


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stand_in(tmp_path_factory.mktemp("clone"))


@pytest.fixture(scope="module")
def study(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """The stages of `djepa study arm --geometry WEIGHTS` up to the rows, on few starts."""
    needs_camera()
    design = arm.arm_with(weights)

    def cases(role: str, sizes: Sizes, place: Place) -> list[Case]:
        return [replace(case, rule="near", scale=1 / NEAR) for case in found(role, sizes, place)]

    found, sizes = design.cases, {"tiny": Sizes(4, 3, 2, updates=4)}
    design = replace(design, sizes=sizes, cases=cases)
    place = Place(tmp_path_factory.mktemp("arm") / "study", LocalEngine(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arm, "SEARCH", SEARCH)
        made = new_study(design, place, "tiny", (TASK,))
        run_stages(made.stages(), lambda line: None, f"decide {TASK}")
    return made


def confirmed(study: Study) -> tuple[Case, Bank]:
    (case,) = study.cases("confirmation")
    return case, study.bank(case)


def test_the_pool_is_the_last_population_of_its_search(study: Study, weights: Path) -> None:
    case, bank = confirmed(study)
    model = load_vjepa2(weights.parent, weights)
    starts = [entry.start for entry in draw_block(BlockWork(case.bank, 0))]
    for row, (start, seed) in enumerate(zip(starts, pool_seeds(case.bank, 0), strict=True)):
        cost = native_costs(model, Scene("arm", TASK), [start])
        (pool,) = SEARCH.search(cost, 5, np.ones(4), [seed])
        assert np.array_equal(pool.ids, bank.decisions.candidate_ids[row])
        assert np.array_equal(pool.actions, bank.decisions.actions[row])
        seen = read_predictions(bank, "vjepa2-ac").cost[row]
        np.testing.assert_allclose(cost(pool.actions[None].copy())[0], seen, rtol=1e-4)
    about = bank.manifest["source"]
    assert (about["geometry"], about["weights"]) == ("vjepa2-ac", sha256(weights.read_bytes()))


def test_native_takes_the_least_energy_and_ours_what_the_fit_says(study: Study) -> None:
    case, bank = confirmed(study)
    ids, seen = bank.decisions.candidate_ids, read_predictions(bank, "vjepa2-ac")
    chosen = {(row.method, row.start): row.chosen for row in study.rows(TASK)}
    test = study.population("confirmation", case)
    assert test.evidence.names == ("energy", "pose")
    assert test.evidence.latents["energy"].shape[-1] == 16 * 8  # summaries of 256 tokens
    least = [int(ids[n, np.lexsort((ids[n], seen.cost[n]))[0]]) for n in range(len(ids))]
    assert [chosen["native", n] for n in range(len(ids))] == least
    for name, folder in (("relational", "relational"), ("D-JEPA", "d-jepa")):
        fitted = load_alignment(study.place.fits(TASK) / folder)
        assert set(fitted.weights.values()) == {seen.weights}
        decided = fitted.decide(test.evidence).choice.tolist()
        assert [chosen[name, n] for n in range(len(ids))] == decided
        assert all(one in ids[n] for n, one in enumerate(decided))
    hits = [row.success for row in study.rows(TASK) if row.method == "oracle"]
    assert hits == (bank.outcomes.cost < NEAR).any(1).tolist()


def test_the_folder_is_bound_to_the_file(study: Study, weights: Path, tmp_path: Path) -> None:
    assert study.weights() == {str(weights): sha256(weights.read_bytes())[:12]}
    other = replace(study.design, weights=(str(stand_in(tmp_path / "other", seed=1)),))
    with pytest.raises(DjepaError, match="another weights"):
        new_study(other, study.place, "tiny")


def test_only_models_of_this_interface_are_taken(tmp_path: Path) -> None:
    with pytest.raises(DjepaError, match="geometry of the arm 'lewm'"):
        arm.arm_with("lewm")
    with pytest.raises(DjepaError, match="of the study 'arm', and of no other"):
        RunStudy("pusht", out=tmp_path, geometry="arm-ac", until="x").run()
    assert arm.arm_with("arm-ac").weights == arm.ARM.weights
