"""Controls as columns of evidence, and prediction error beside success of the same starts."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from study_kit import Finished, Tiny

from djepa.align.controls.methods import SAMPLED, control_cost
from djepa.align.dynamics import realised
from djepa.align.plastic import load_patch
from djepa.align.plastic_fit import Encoded, futures
from djepa.bank.read import Bank
from djepa.evaluate.rows import successes
from djepa.models.lewm import LeWM
from djepa.models.predictions import read_predictions
from djepa.models.weights import load_geometry
from djepa.studies import adapting
from djepa.studies.adapting import ADAPTED, Budget
from djepa.studies.controls import CONTROLS as STUDY
from djepa.studies.controls import NATIVE
from djepa.studies.findings import make_tables
from djepa.studies.measures.calibrated import _line
from djepa.studies.measures.preservation import preservation
from djepa.studies.names import MAIN, get_design

pytest.importorskip("matplotlib")


def subject(tiny: Tiny) -> tuple[Bank, LeWM]:
    model = load_geometry("tdjepa")
    assert isinstance(model, LeWM)
    return tiny.study.bank(tiny.study.cases("confirmation")[0]), model


def test_stored_costs_are_those_of_the_fitted_controls(finished: Finished) -> None:
    tiny = finished("controls")
    bank, model = subject(tiny)
    starts = Encoded.from_bank(model, bank)
    for name, column in ADAPTED.items():
        made = "Var-JEPA" if name in SAMPLED else name
        patch = load_patch(tiny.study.place.own("all", made))
        cost, after = control_cost(name, model, patch, starts)
        stored = read_predictions(bank, column)
        np.testing.assert_allclose(stored.cost, cost.numpy(), rtol=1e-4)
        assert (stored.futures is None) == (after is None) == (name in SAMPLED)


def test_prediction_error_stands_beside_success(finished: Finished) -> None:
    tiny = finished("controls")
    bank, model = subject(tiny)
    (errors,) = tiny.results.measured("preservation").values()
    assert set(errors) == {NATIVE, *list(ADAPTED)[:5]}
    after = futures(model, Encoded.from_bank(model, bank), 8)
    off = (after - realised(model, bank, [0], "cpu")).square().mean((1, 2, 3))
    np.testing.assert_allclose(errors[NATIVE], off.numpy(), rtol=1e-3)
    (table,) = [t for t in make_tables(tiny.results) if t.name.startswith("preservation")]
    lines = {row[0]: row[1:] for row in table.rows}
    assert len(lines) == 1 + len(ADAPTED)
    won = successes(tiny.rows()["reference"])[NATIVE].mean()
    error, change, success, *paid = lines["TD-JEPA"]
    assert (error, change, paid) == (f"{np.mean(errors[NATIVE]):.4f}", "", [""] * 3)
    assert success.startswith(f"{100 * won:.1f} %")
    assert lines["CVaR"][:2] == ("", "")


def test_every_adapted_predictor_is_compared_with_the_unchanged_one(finished: Finished) -> None:
    judged = {(v.ours, v.theirs) for v in finished("controls").results.verdicts}
    assert {(name, NATIVE) for name in ADAPTED} < judged


def test_what_is_there_is_not_fitted_again(
    again: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = again("controls")
    bank, before = tiny.study.bank(tiny.study.cases("confirmation")[0]), tiny.files()
    shutil.rmtree(bank.path / "evidence" / ADAPTED["CVaR"])
    (tiny.out / "banks" / "predicted-all.json").unlink()
    monkeypatch.setattr(adapting, "realised", None)  # only fitting needs it
    assert tiny.run(until="predict all") == ["predict all"]
    assert {name: of for name, (_, of) in tiny.files().items()} == {
        name: of for name, (_, of) in before.items()
    }


def test_presets_without_a_limit_have_the_published_number_of_updates() -> None:
    full = Budget.of(STUDY.sizes["paper"])
    assert full.end.updates == full.residual.fit.updates == 600
    few = Budget.of(STUDY.sizes["quick"])
    assert (few.end.updates, few.residual.fit.updates) == (60, 200)


def test_presets_for_a_cpu_have_a_quarter_of_the_updates_at_one_rate_and_one_cap() -> None:
    for name in MAIN:
        design = get_design(name)
        cpu, full = (design.sizes[preset] for preset in ("cpu", "paper"))
        assert replace(cpu, adapted=0, repeats=full.repeats, timed=full.timed) == full
        few, published = Budget.of(cpu), Budget.of(full)
        assert (few.end.updates, published.end.updates) == (150, 600)
        assert (few.end.rates, few.caps) == ((2e-5,), (1.0,))
        assert few.end.batch == published.end.batch
        assert few.residual == published.residual


def test_weights_may_be_named_otherwise_than_their_column(finished: Finished) -> None:
    """Those of Reacher are `reacher-tdjepa`; their predictions are stored as `tdjepa`."""
    tiny = finished("reacher")
    case = tiny.study.cases("confirmation")[0]
    measure = preservation(NATIVE, {}, "reacher-tdjepa")
    assert measure.run is not None
    (errors,) = measure.run(tiny.study, case, lambda line: None).values()
    model, bank = load_geometry("reacher-tdjepa"), tiny.study.bank(case)
    assert isinstance(model, LeWM)
    rows = list(range(len(errors)))
    after = futures(model, Encoded.from_bank(model, bank, rows), 8)
    off = (after - realised(model, bank, rows, "cpu")).square().mean((1, 2, 3))
    np.testing.assert_allclose(errors, off.numpy(), rtol=1e-2, atol=1e-5)


def test_what_calibration_chose_is_what_the_patches_say(finished: Finished) -> None:
    tiny = finished("controls")
    found = tiny.results.measured("calibrated")["reference"]
    assert found["starts"] == tiny.study.sizes.calibration
    assert set(found["methods"]) == set(ADAPTED) - set(SAMPLED)
    for name, of in found["methods"].items():
        patch = load_patch(tiny.study.place.own("all", name))
        assert of["chosen"] == patch.card["chosen"]
        assert of["checkpoints"][0]["update"] == 0
        most = max(point["successes"] for point in of["checkpoints"])
        assert of["chosen"]["successes"] == most


def test_the_best_changed_checkpoint_stands_beside_the_unchanged_model() -> None:
    def point(update: int, successes: int, error: float) -> dict:
        return {"update": update, "successes": successes, "error": error, "rate": 1e-4}

    three = [point(0, 9, 0.5), point(50, 7, 0.4), point(100, 8, 0.6), point(150, 8, 0.45)]
    kept = _line("PEGrad", {"chosen": three[0], "checkpoints": three})
    assert kept == ("PEGrad", "0, unchanged", "0.0001", "9", "8", "0.5000", "0.4500")
    tuned = _line("fine-tuned", {"chosen": three[1], "checkpoints": [three[0], three[1]]})
    assert tuned[1:] == ("50", "0.0001", "", "", "0.5000", "0.4000")
