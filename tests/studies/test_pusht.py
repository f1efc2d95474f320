"""One real study, tiny: every stage runs, what is there stays, and the same rows come out again."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from djepa.align.plastic_fit import PlasticConfig
from djepa.align.presets import FOUR, SUITE
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.evaluate.rows import read_rows, write_rows
from djepa.rollout.engine import LocalEngine
from djepa.studies import measures, populations
from djepa.studies.populations import Place
from djepa.studies.pusht import BUDGETED, POOLS, PRESETS, Sizes, Study, new_study
from djepa.studies.stages import claim, run_stages
from djepa.studies.write import METHODS

SIZES = Sizes(
    fit=4,
    calibration=2,
    plastic=(2, 1),
    audit=2,
    confirmation=3,
    searched=3,
    curve=(3, 4),
    repeats=1,
)
STAGES = [
    *(f"{name} reference" for name in ("collect", "predict", "fit", "decide")),
    "audit",
    "learn reference",
    *("tables", "figures", "page"),
]


@dataclass(frozen=True)
class Tiny:
    """A study in a folder."""

    out: Path

    @property
    def study(self) -> Study:
        return Study(Place(self.out, LocalEngine(1)), SIZES, ("reference",))

    def run(self, until: str = "") -> list[str]:
        """The stages that ran."""
        said: list[str] = []
        run_stages([*self.study.stages(), *self.study.writing()], said.append, until)
        begun = [line.removesuffix(" ...") for line in said if line.endswith(" ...")]
        return [line.split(" ", 1)[1] for line in begun]

    def times(self) -> dict[str, int]:
        """File -> when it was last written."""
        files = [path for path in self.out.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.out)): path.stat().st_mtime_ns for path in files}

    def held(self, name: str) -> dict:
        return json.loads((self.out / name).read_text())


@pytest.fixture(scope="module")
def hasty() -> Iterator[None]:
    """A few updates and no warming up: enough to go through everything, not to learn."""
    with pytest.MonkeyPatch.context() as patch:
        for name, config in list(SUITE.items()):
            few = replace(config, updates=min(config.updates, 20), every=10)
            patch.setitem(SUITE, name, few)
        patch.setattr(populations, "PlasticConfig", partial(PlasticConfig, updates=1, batch=2))
        patch.setattr(populations, "RATES", (2e-5,))
        patch.setattr(measures, "WARM", 0)
        yield


@pytest.fixture(scope="module")
def finished(hasty: None, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """A study that has run once. Not to be written to."""
    tiny = Tiny(tmp_path_factory.mktemp("study") / "out")
    claim(tiny.out, {"study": "pusht", "preset": "tiny", "seed": 0})
    assert tiny.run() == STAGES
    return tiny


@pytest.fixture
def again(finished: Tiny, tmp_path: Path) -> Tiny:
    """A copy to work on, with all its times."""
    return Tiny(Path(shutil.copytree(finished.out, tmp_path / "copy")))


def test_every_stage_leaves_what_it_says(finished: Tiny) -> None:
    study = finished.study
    for stage in (*study.stages(), *study.writing()):
        assert stage.makes.exists(), stage.name
    tables = {path.stem for path in (finished.out / "tables").glob("*.csv")}
    assert tables == {
        "across",
        "success-reference",
        "paired-reference-d-jepa",
        "paired-reference-relational",
        "ablation-reference",
        "budget-reference",
        "deployment-reference",
        "audit-gap",
        "audit-inversions",
        "audit-correlations",
    }
    figures = {path.stem for path in (finished.out / "figures").glob("*.svg")}
    assert figures >= {
        *("audit-gap", "audit-inversions", "audit-correlations", "success", "sources", "latency"),
        *(f"{name}-reference" for name in ("budget", "learning", "lift-ranks", "lift-geometry")),
    }
    page = (finished.out / "report.html").read_text()
    assert page.count("data:image/svg+xml") == len(figures)
    assert not list(finished.out.rglob("*.part"))


def test_rows_are_what_the_bank_says_of_the_choices(finished: Tiny) -> None:
    rows = read_rows(finished.out / "rows" / "reference.csv.gz")
    bank = finished.study.bank("reference", "confirmation")
    seen, ids = bank.outcomes, bank.decisions.candidate_ids
    assert Counter(row.method for row in rows) == dict.fromkeys(
        {*METHODS, "lewm descriptors", "temporal descriptors"} - {"relational, fitted here"}, 3
    )
    for row in rows:
        at = ids[row.start].tolist().index(row.chosen)
        assert row.success == seen.success[row.start, at]
        assert row.cost == pytest.approx(seen.cost[row.start, at], abs=1e-6)
        assert row.identity == bytes(bank.decisions.identities[row.start]).hex()[:16]
        assert (row.bank, row.rule) == (bank.hash[:12], bank.config.rule)
    best = [row.success for row in rows if row.method == "oracle"]
    assert best == seen.success.any(1).tolist()
    fitted = {row.method for row in rows if row.checkpoint}
    plain = {f"native {name}" for name in FOUR} | {"consensus lewm", "consensus tdjepa"}
    assert {row.method for row in rows} - fitted == plain | {"random", "realised lewm", "oracle"}
    moved = {row.method for row in rows if row.opened}
    assert moved <= {*SUITE, "composition"}


def test_populations_are_apart(finished: Tiny) -> None:
    """Fitting, confirmation and audit starts, by identity; all of the sizes that were asked for."""
    banks = {
        name: finished.study.bank("reference", name) for name in ("fit", "confirmation", "audit")
    }
    assert {name: len(bank) for name, bank in banks.items()} == {
        "fit": 6,
        "confirmation": 3,
        "audit": 2,
    }
    names = [bytes(row) for bank in banks.values() for row in bank.decisions.identities]
    assert len(set(names)) == 11
    used = finished.held("fits/reference/suite.json")["starts"]
    assert used == [bytes(row).hex()[:16] for row in banks["fit"].decisions.identities]


def test_measures_of_the_same_choices_agree(finished: Tiny) -> None:
    rows = read_rows(finished.out / "rows" / "reference.csv.gz")
    share = {
        method: np.mean([row.success for row in rows if row.method == method])
        for method in {row.method for row in rows}
    }
    budget = finished.held("budget/reference.json")
    assert sorted(budget) == sorted(BUDGETED)
    for method, by_size in budget.items():
        assert {int(k): len(shares) for k, shares in by_size.items()} == {
            8: 16,
            16: 16,
            32: 16,
            63: 1,
        }
        assert by_size["63"] == [share[method]]
    for method, lift in finished.held("lifting/reference.json").items():
        assert (lift["starts"], lift["ranks"]) == (3, 3 * 63), method
        assert (lift["choices_recovered"], lift["ranks_recovered"]) == (3, 3 * 63)
    # The learning curve ends where the suite was fitted: on the same starts, to the same methods.
    learned = finished.held("learning/reference.json")
    assert [row["fit"] for row in learned] == [3] * 4 + [4] * 4
    for row in learned[4:]:
        assert row["hits"] / row["of"] == share[row["method"]]
    for entry in finished.held("deployment.json").values():
        assert len(entry["milliseconds"]) == 1
        assert entry["files"] == 4 * (2 if entry["method"] == "relational" else 4) + 6


def test_a_second_run_does_nothing(again: Tiny) -> None:
    before = again.times()
    assert again.run() == []
    assert again.times() == before


def test_rows_that_were_lost_come_back_the_same(again: Tiny, finished: Tiny, hasty: None) -> None:
    (again.out / "rows" / "reference.csv.gz").unlink()
    assert again.run(until="tables") == ["decide reference", "tables"]
    for name in (
        "rows/reference.csv.gz",
        "budget/reference.json",
        "lifting/reference.safetensors",
        "inspector/reference.json",
        "tables/success-reference.csv",
    ):
        assert (again.out / name).read_bytes() == (finished.out / name).read_bytes(), name
    before, after = finished.times(), again.times()
    kept = [n for n in before if n.startswith("banks/") and n.endswith(".safetensors")]
    assert kept
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}


def test_rows_of_further_pools_get_into_tables_figures_and_page(again: Tiny) -> None:
    """Kinds of pools may be run one by one in the same folder."""
    rows = read_rows(again.out / "rows" / "reference.csv.gz")
    write_rows(again.out / "rows" / "decoy.csv.gz", [replace(row, pools="decoy") for row in rows])
    assert again.run() == ["tables", "figures", "page"]
    assert "decoy, 3 starts" in (again.out / "tables" / "across.csv").read_text()
    assert (again.out / "tables" / "success-decoy.csv").exists()
    assert "\ndecoy,oracle," in (again.out / "figures" / "success.csv").read_text()
    assert "<strong>decoy pools</strong>" in (again.out / "report.html").read_text()
    assert again.run() == []


def test_a_fit_on_starts_that_are_tested_is_refused(again: Tiny) -> None:
    """A confirmation start among those of the suite: no rows."""
    path = again.out / "fits" / "reference" / "suite.json"
    held = json.loads(path.read_text())
    first = Bank(again.out / "banks" / "reference" / "confirmation").decisions.identities[0]
    held["starts"][3] = bytes(first).hex()[:16]
    path.write_text(json.dumps(held))
    (again.out / "rows" / "reference.csv.gz").unlink()
    with pytest.raises(DjepaError, match="confirmation starts must be new ones"):
        again.run(until="decide reference")
    assert not (again.out / "rows" / "reference.csv.gz").exists()


def test_presets_ask_for_what_there_is() -> None:
    for name, sizes in PRESETS.items():
        for pools in POOLS:
            wanted = Study(Place(Path("nowhere"), LocalEngine(1)), sizes).populations(pools)
            counted = sizes.searched if pools == "planner" else sizes.confirmation
            assert wanted["confirmation"] == counted
            assert ("audit" in wanted) == (pools == "reference")
            if "fit" in wanted:
                assert wanted["fit"] >= max(sizes.fit + sizes.calibration, sum(sizes.plastic))
        assert max(sizes.curve, default=0) <= sizes.fit, name


def test_a_study_that_cannot_be_is_refused_before_it_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, engine = tmp_path / "out", LocalEngine(1)
    with pytest.raises(DjepaError, match=r"Unknown preset 'papr'\. Did you mean 'paper'"):
        new_study(out, "papr", engine, "cpu", 0)
    with pytest.raises(DjepaError, match=r"Unknown pools 'decoys'\. Did you mean 'decoy'"):
        new_study(out, "paper", engine, "cpu", 0, ("decoys",))
    monkeypatch.setattr("djepa.studies.pusht.SHIPPED", tmp_path / "nothing")
    with pytest.raises(DjepaError, match=r"ships nothing fitted on decoy pools.*--preset paper"):
        new_study(out, "quick", engine, "cpu", 0, ("decoy",))
    assert not out.exists()
    assert new_study(out, "paper", engine, "cpu", 0, ("decoy",)).pools == ("decoy",)
    new_study(out, "paper", engine, "cpu", 0)  # another kind of pools is the same study
    with pytest.raises(DjepaError, match="another seed"):
        new_study(out, "paper", engine, "cpu", 1)
    with pytest.raises(DjepaError, match="another preset, sizes"):
        new_study(out, "large", engine, "cpu", 0)
    assert [path.name for path in out.iterdir()] == ["study.json"]
