"""What was finished stays, what is missing is made, and a folder belongs to one study."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from djepa.errors import DjepaError
from djepa.studies.stages import Stage, claim, run_stages

NAMES = ("collect", "fit", "decide")


class Trace:
    """Stages that write down that they ran."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ran, self.said = folder, [], []

    def stage(self, name: str, of: tuple[Path, ...] = ()) -> Stage:
        makes = self.folder / name / "done"
        return Stage(name, makes, self.work(name, makes), of)

    def work(self, name: str, makes: Path) -> Callable[..., None]:
        def run(say: Callable[[str], None]) -> None:
            self.ran.append(name)
            makes.write_text(name)

        return run

    def go(self, *stages: Stage, until: str = "") -> list[str]:
        """Run them; which of them ran."""
        self.ran.clear()
        run_stages(stages, self.said.append, until)
        return list(self.ran)


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return Trace(tmp_path)


def test_stages_run_once_in_order(trace: Trace) -> None:
    stages = [trace.stage(name) for name in NAMES]
    assert trace.go(*stages) == list(NAMES)
    before = [stage.makes.stat().st_mtime_ns for stage in stages]
    trace.said.clear()
    assert trace.go(*stages) == []
    assert [stage.makes.stat().st_mtime_ns for stage in stages] == before
    assert [line.split(":")[0] for line in trace.said] == ["1/3 collect", "2/3 fit", "3/3 decide"]
    assert all("there already" in line for line in trace.said)


def test_only_what_is_missing_runs(trace: Trace) -> None:
    stages = [trace.stage(name) for name in NAMES]
    trace.go(*stages)
    stages[1].makes.unlink()
    assert trace.go(*stages) == ["fit"]
    stages[0].makes.unlink()
    stages[2].makes.unlink()
    assert trace.go(*stages) == ["collect", "decide"]


def test_until_names_the_last_stage(trace: Trace) -> None:
    stages = [trace.stage(name) for name in NAMES]
    assert trace.go(*stages, until="fit") == ["collect", "fit"]
    assert not stages[2].makes.exists()
    assert trace.go(*stages, until="fit") == []  # also where it is there already
    assert trace.go(*stages) == ["decide"]


def test_an_unknown_stage_is_named_before_anything_runs(trace: Trace) -> None:
    stages = [trace.stage(name) for name in NAMES]
    with pytest.raises(DjepaError, match=r"no stage 'fitt'.*collect, fit, decide"):
        trace.go(*stages, until="fitt")
    assert trace.ran == []


def test_after_a_stage_that_breaks_the_next_run_goes_on(trace: Trace) -> None:
    first, second, third = (trace.stage(name) for name in NAMES)

    def breaks(say: Callable[[str], None]) -> None:
        (second.makes.parent / "half").write_text("finished before it broke")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trace.go(first, Stage("fit", second.makes, breaks), third)
    assert trace.ran == ["collect"]
    assert not second.makes.exists()
    assert (second.makes.parent / "half").read_text() == "finished before it broke"
    assert trace.go(first, second, third) == ["fit", "decide"]


def test_what_is_older_than_what_it_is_made_of_is_made_anew(trace: Trace) -> None:
    """Kinds of pools may come one after the other: the tables must not stay behind."""
    rows = [trace.folder / f"{kind}.csv" for kind in ("reference", "decoy")]
    table = trace.stage("tables", of=tuple(rows))
    rows[0].write_text("rows")
    assert trace.go(table) == ["tables"]
    when = table.makes.stat().st_mtime_ns
    os.utime(rows[0], ns=(when, when))
    assert trace.go(table) == []
    rows[1].write_text("rows that came later")
    os.utime(rows[1], ns=(when + 1, when + 1))
    assert not table.done()
    assert trace.go(table) == ["tables"]
    os.utime(table.makes, ns=(when + 2, when + 2))
    assert table.done()


def config(seed: int = 0, fit: int = 10, **others: object) -> dict[str, object]:
    return {"study": "pusht", "seed": seed, "sizes": {"fit": fit, "curve": (6, 10)}, **others}


def test_a_folder_is_claimed_once(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "study"
    claim(folder, config())
    assert json.loads((folder / "study.json").read_text())["sizes"]["curve"] == [6, 10]
    before = (folder / "study.json").stat().st_mtime_ns
    claim(folder, config())
    assert (folder / "study.json").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (config(seed=1), "another seed"),
        (config(fit=11), "another sizes"),
        (config(seed=1, fit=11), "another seed, sizes"),
        (config(preset="paper"), "another preset"),
        ({"study": "pusht"}, "another configuration"),  # of what is asked for, all is alike
    ],
)
def test_the_folder_of_another_study_is_refused(tmp_path: Path, other: dict, named: str) -> None:
    claim(tmp_path, config())
    before = (tmp_path / "study.json").read_bytes()
    with pytest.raises(DjepaError, match=rf"{named}\. Choose another --out"):
        claim(tmp_path, other)
    assert (tmp_path / "study.json").read_bytes() == before


@pytest.mark.parametrize("text", ["", "{", "3", "[1]"])
def test_a_damaged_mark_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "study.json").write_text(text)
    with pytest.raises(DjepaError, match=r"study\.json is damaged"):
        claim(tmp_path, config())
