"""Nothing of somebody else's is lost, whichever command is pointed at its folder, or twice."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from djepa.align.suite import SUITE_KIND
from djepa.artefacts.folder import Folder
from djepa.artefacts.lock import held, locked
from djepa.artefacts.store import Remote, locate
from djepa.artefacts.write import Writer, save
from djepa.bank.schema import BANK
from djepa.cli.simulate import Simulate
from djepa.cli.train import Train
from djepa.errors import DjepaError
from djepa.models import episodes, resume, train
from djepa.models.episodes import Shard, plan_shards, simulate_all, simulating
from djepa.models.lewm import SIZES, LeWM
from djepa.models.recipes import TrainConfig
from djepa.models.train import Trainer
from djepa.models.weights import GEOMETRY, load_geometry, save_geometry
from djepa.rollout.engine import LocalEngine
from djepa.studies.stages import Stage, check_sealed, claim, run_stages
from tiny import TINY, simulate

CONFIG: dict[str, Any] = {"study": "x", "seed": 0}


def files(folder: Path) -> dict[str, bytes]:
    """All files below, the hidden ones too."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def put(folder: Path, **texts: str) -> dict[str, bytes]:
    """Somebody's files; dots and slashes are written as __ and ___."""
    for name, text in texts.items():
        path = folder / name.replace("___", "/").replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return files(folder)


def begin_bank(folder: Path | str) -> None:
    """A collection that was cut off after a block."""
    with Writer(folder, BANK).opened() as writer:
        writer.write({"decision/block-000000.safetensors": b"block"})


# --- marks and journals


def test_what_another_command_began_is_refused_and_goes_on(tmp_path: Path) -> None:
    begin_bank(tmp_path)
    before = files(tmp_path)
    with pytest.raises(DjepaError, match=r"it holds .*\. Nothing was changed"):
        save_geometry(LeWM(TINY), tmp_path, {})
    suite = Writer(tmp_path, SUITE_KIND, alone=False)
    with pytest.raises(DjepaError, match="not empty and not a suite"), suite.opened(("a.json",)):
        pass
    assert files(tmp_path) == before
    with Writer(tmp_path, BANK).opened() as writer:
        assert len(writer.pieces) == 1


@pytest.mark.parametrize("name", ["begun__json", "journal__jsonl"])
@pytest.mark.parametrize("finished", [False, True])
def test_marks_that_are_nobodys_are_refused(tmp_path: Path, name: str, finished: bool) -> None:
    if finished:
        save(tmp_path, GEOMETRY, {"a.json": b"{}"}, alone=False)
    before = put(tmp_path, **{name: "mine"})
    for alone in (True, False):
        with pytest.raises(DjepaError, match=rf"it holds {name.replace('__', '.')}\)"):
            save(tmp_path, GEOMETRY, {"a.json": b"{}"}, alone=alone)
    assert files(tmp_path) == before


def test_what_another_command_began_in_a_store_is_refused() -> None:
    pytest.importorskip("fsspec")
    begin_bank("memory://loss/bank")
    with pytest.raises(DjepaError, match=r"not empty and not a suite \(it holds begun.json of"):
        Writer("memory://loss/bank", SUITE_KIND, alone=False).claim()
    there = Remote("memory://loss/bank")
    (there / "begun.json").unlink()
    with pytest.raises(DjepaError, match=r"it holds journal.jsonl\.0"):
        Writer("memory://loss/bank", SUITE_KIND, alone=False).claim()
    with pytest.raises(DjepaError, match=r"not a study \(it holds decision/block-000000"):
        claim(locate("memory://loss/bank"), CONFIG)
    for file in there.rglob("*"):
        file.unlink()


# --- locks


def test_a_command_holds_its_folder_for_its_own_writers_only(tmp_path: Path) -> None:
    refused = pytest.raises(DjepaError, match="Another process")
    with held(tmp_path):
        for again in (locked, held):
            with locked(tmp_path), refused, again(tmp_path):
                pass
        save(tmp_path / "part", GEOMETRY, {"a.json": b"{}"})
        save(tmp_path, GEOMETRY, {"a.json": b"{}"}, alone=False)
        assert (tmp_path / ".lock").exists()
    assert not (tmp_path / ".lock").exists()
    with locked(tmp_path):  # nothing is lent any more
        pass


def test_a_lock_goes_with_its_process(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from djepa.artefacts.lock import held\n"
        "with held(Path(sys.argv[1])): print('has it', flush=True); time.sleep(60)"
    )
    line = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "has it\n"
        with pytest.raises(DjepaError, match="Another process"), held(tmp_path):
            pass
        other.send_signal(signal.SIGKILL)
    with held(tmp_path):
        pass


def test_a_lock_file_that_its_holder_removes_meanwhile_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening it and looking whether the name is still ours."""
    fstat, times = os.fstat, list[int]()

    def removed_first(descriptor: int) -> os.stat_result:
        if not times:
            (tmp_path / ".lock").unlink()
        times.append(descriptor)
        return fstat(descriptor)

    monkeypatch.setattr(os, "fstat", removed_first)
    with held(tmp_path):
        assert len(times) == 2
        assert (tmp_path / ".lock").exists()
        monkeypatch.undo()
        with pytest.raises(DjepaError, match="Another process"), held(tmp_path):
            pass


# --- a file that is written anew


@pytest.mark.parametrize("far", [False, True])
def test_what_was_withdrawn_is_missing_until_it_is_written_anew(far: bool, tmp_path: Path) -> None:
    if far:
        pytest.importorskip("fsspec")
    place = locate("memory://withdrawn") if far else tmp_path
    with Writer(place, SUITE_KIND, alone=False).opened() as writer:
        for name in ("a.json", "b.json", "c.json"):
            writer.write({name: b"1"})
        writer.withdraw("b.json")
    with Writer(place, SUITE_KIND, alone=False).opened() as writer:  # stopped in between
        assert [*writer.files] == ["a.json", "c.json"]
        writer.write({"b.json": b"2"})
    with Writer(place, SUITE_KIND, alone=False).opened() as writer:
        writer.finish()
    assert Folder(place, SUITE_KIND).read("b.json") == b"2"
    for file in place.rglob("*"):
        file.unlink()


# --- djepa train


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """Words of a training that must not come to simulating or collecting anything."""

    def never(*arguments: Any) -> Any:
        raise AssertionError("it began to work")

    monkeypatch.setattr(episodes, "SHARD", 2)
    monkeypatch.setitem(SIZES, "small", TINY)
    monkeypatch.setattr(train, "collect_each", never)
    monkeypatch.setattr(episodes, "play", never)
    return {"device": "cpu", "episodes": 4, "out": tmp_path / "out"}


TRAINED = ("model__safetensors", "config__json", "card__json", "loss__png")
PASSING = ("log__jsonl", "resume__safetensors", "best__safetensors", "best___note", "test___note")


@pytest.mark.parametrize("name", [*TRAINED, *PASSING, "begun__json", "journal__jsonl"])
def test_train_refuses_what_it_would_overwrite(small: dict[str, Any], name: str) -> None:
    before = put(small["out"], **{name: "somebody's", "notes__txt": "may lie beside"})
    with pytest.raises(DjepaError, match=r"not a set of weights .*choose another --out"):
        Train(**small).run()
    assert files(small["out"]) == before


def test_train_refuses_a_bank_and_finished_weights(small: dict[str, Any]) -> None:
    begin_bank(small["out"])
    with Writer(small["out"], BANK).opened() as writer:
        writer.finish({})
    before = files(small["out"])
    with pytest.raises(DjepaError, match="is djepa-bank 2; this version reads djepa-geometry"):
        Train(**small).run()
    assert files(small["out"]) == before


def test_two_trainings_of_one_folder(small: dict[str, Any]) -> None:
    with resume.owned(small["out"]):
        with pytest.raises(DjepaError, match="Another process is writing into"):
            Train(**small).run()
        resume.claim(small["out"])
        put(small["out"], log__jsonl="{}", best__safetensors="")
        save_geometry(LeWM(TINY), small["out"], {})  # its own are not refused
    assert not {"begun.json", ".lock"} & {*files(small["out"])}
    with pytest.raises(DjepaError, match="holds finished weights"), resume.owned(small["out"]):
        pass


def test_a_training_goes_on_in_a_folder_of_its_own(small: dict[str, Any]) -> None:
    """With a mark it does; without one, as earlier versions left it, if there is a state."""
    out = small["out"]
    resume.claim(out)
    put(out, log__jsonl="{}", best__safetensors="")
    resume.claim(out)
    (out / "begun.json").unlink()
    with pytest.raises(DjepaError, match="not a set of weights"):
        resume.claim(out)
    head = {"head": json.dumps({"config": {}, "phase": "joint", "step": 3})}
    save_file({"taken": torch.zeros(1)}, out / "resume.safetensors", head)
    with resume.owned(out):
        resume.claim(out)
    assert resume.read_state(out / "resume.safetensors")[1]["step"] == 3
    put(out, config__json="mine")
    (out / "begun.json").unlink()
    with pytest.raises(DjepaError, match=r"it holds config\.json"):
        resume.claim(out)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda data: b"",
    "cut short": lambda data: data[:-1],
    "a bit of a tensor": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "a letter of the record": lambda data: data.replace(b"joint", b"joins"),
    "the name of the record": lambda data: data.replace(b"record", b"recorb"),
    "no JSON": lambda data: data[:9] + b"\xff" + data[10:],
    "text": lambda data: b"somebody's notes, long enough to have a head",
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_state_is_named(small: dict[str, Any], how: str) -> None:
    out = small["out"]
    resume.claim(out)
    path = out / "resume.safetensors"
    about = {"config": {}, "phase": "joint", "step": 3}
    tensors = {"a": torch.ones(2, 3), "n": torch.tensor(7)}
    resume.write_state(path, tensors, about)
    read, said = resume.read_state(path)
    assert said == about
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())
    path.write_bytes(DAMAGE[how](path.read_bytes()))
    with pytest.raises(DjepaError, match=r"resume\.safetensors is damaged\. Remove it and run"):
        Train(**small).run()
    path.unlink()
    with pytest.raises(AssertionError, match="it began to work"):
        Train(**small).run()


@pytest.mark.parametrize("given", [{"encoder": "nowhere/at/all"}, {"begin": ("nowhere/at/all",)}])
def test_weights_that_are_not_there_are_named_before_work(
    small: dict[str, Any], given: dict[str, Any]
) -> None:
    with pytest.raises(DjepaError, match="nowhere/at/all"):
        Train(**small, **given).run()


def test_a_training_still_takes_the_weights_that_are_there(
    small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read twice: once to see whether they fit, and when they are due."""
    torch.manual_seed(3)
    save_geometry(LeWM(TINY), tmp_path / "source", {})
    monkeypatch.setattr(train, "collect_each", lambda *_: [])
    config = TrainConfig(
        device="cpu", episodes=4, shrink=64, begin=(str(tmp_path / "source"),),
        encoder=str(tmp_path / "source"),
    )  # fmt: skip
    trainer = Trainer(config, small["out"])
    expected = load_geometry(tmp_path / "source").state_dict()
    found = trainer.model.state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_folders_in_a_store_are_refused_at_once(
    small: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    where = Path("s3://bucket/weights")
    told = "{} s3://bucket/weights lies in a store"
    with pytest.raises(DjepaError, match=told.format("--out")):
        Train(**small | {"out": where}).run()
    with pytest.raises(DjepaError, match=told.format("--data")):
        Train(**small, data=where).run()
    with pytest.raises(DjepaError, match=told.format("--out")):
        Simulate(out=where).run()
    assert not list(tmp_path.iterdir())


# --- djepa simulate


@pytest.fixture
def shards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Shard]:
    """Two shards of two episodes."""
    monkeypatch.setattr(episodes, "SHARD", 2)
    return plan_shards(tmp_path / "episodes", 4, 0, ("T",))


def test_simulate_leaves_other_folders_alone(shards: list[Shard]) -> None:
    folder = shards[0].folder
    before = put(folder, notes__txt="mine", ___DS_Store="hidden")
    with pytest.raises(DjepaError, match=r"not a folder of episodes \(it holds notes.txt\)"):
        simulate(shards)
    assert files(folder) == before
    (folder / "notes.txt").unlink()
    (folder / f"{shards[0].path.name}.part").write_text("cut short")
    simulate(shards)
    assert all(shard.path.exists() for shard in shards)


def test_episodes_of_two_seeds_do_not_mix(shards: list[Shard]) -> None:
    """Nor where those that are there have other numbers."""
    simulate(shards[1:])
    before = files(shards[0].folder)
    for other in ({"seed": 1}, {"shapes": ("L",)}, {"world": "granular"}):
        with pytest.raises(DjepaError, match=rf"00001.* another {next(iter(other))} than"):
            simulate([replace(shards[0], **other)])  # type: ignore[arg-type]
    assert files(shards[0].folder) == before


def test_two_simulations_of_one_folder(shards: list[Shard]) -> None:
    given_up = simulating(shards, LocalEngine(1))
    next(given_up)
    given_up.close()
    shards[0].path.unlink()
    first = simulating(shards, LocalEngine(1))
    assert next(first) is shards[0]
    with pytest.raises(DjepaError, match="Another process is writing into"):
        simulate_all(shards, LocalEngine(1), lambda done, total: None)
    assert next(first) is shards[1]
    simulate(shards)  # all is there, and nobody waits for whoever made it
    assert not (shards[0].folder / ".lock").exists()
    assert {*files(shards[0].folder)} == {shard.path.name for shard in shards}


# --- djepa study


@pytest.mark.parametrize("name", ["notes__txt", "rows___a__csv", "manifest__json", "__git___head"])
def test_a_study_takes_no_folder_that_holds_anything(tmp_path: Path, name: str) -> None:
    before = put(tmp_path, **{name: "mine"})
    with pytest.raises(DjepaError, match=r"not a study \(it holds .*Nothing was changed"):
        claim(tmp_path, CONFIG)
    assert files(tmp_path) == before


def test_what_is_no_bar_to_a_study(tmp_path: Path) -> None:
    """Hidden files, empty folders, what a kill in the first moment leaves, a mark that was lost."""
    put(tmp_path, __DS_Store="x", study__json__part="{")
    (tmp_path / "rows").mkdir()
    claim(tmp_path, CONFIG)
    run_stages([made(tmp_path / "rows/a.csv")], print)
    (tmp_path / "study.json").unlink()
    with pytest.raises(DjepaError, match="not a study"):
        claim(tmp_path, {**CONFIG, "seed": 1})
    claim(tmp_path, CONFIG)
    check_sealed(tmp_path)


def made(path: Path, also: Callable[[], Any] = lambda: None) -> Stage:
    def run(say: Callable[[str], None]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.name)
        also()

    return Stage(path.name, path, run)


def test_a_result_that_is_altered_while_another_stage_runs(tmp_path: Path) -> None:
    claim(tmp_path, CONFIG)
    first, second = tmp_path / "rows/a.csv", tmp_path / "measures/b.json"
    sealed: list[bytes] = []

    def alter() -> None:
        sealed.append((tmp_path / "manifest.json").read_bytes())
        first.write_text("better")

    stages = [made(first), made(second, alter)]
    with pytest.raises(DjepaError, match=r"a\.csv was altered .*Remove it and .*b\.json"):
        run_stages(stages, print)
    assert [(tmp_path / "manifest.json").read_bytes()] == sealed
    with pytest.raises(DjepaError, match=r"a\.csv is damaged"):  # nor is it taken the next time
        run_stages(stages, print)
    first.unlink()
    second.unlink()
    run_stages([made(first), made(second)], print)
    check_sealed(tmp_path)


def test_a_stage_may_write_its_own_anew(tmp_path: Path) -> None:
    """Its file, and frames of the same name beside it; the film of another case is not its own."""
    claim(tmp_path, CONFIG)
    films, texts = tmp_path / "measures/films", iter(("one", "two", "three"))
    own, other = films / "a.safetensors", films / "b.safetensors"
    stage = made(films / "a.json", lambda: own.write_text(next(texts)))
    run_stages([stage, made(films / "b.json", lambda: other.write_text("b"))], print)
    stage.makes.unlink()
    run_stages([stage], print)
    assert own.read_text() == "two"
    check_sealed(tmp_path)
    stage.makes.unlink()
    with pytest.raises(DjepaError, match=r"b\.safetensors was altered"):
        run_stages([made(stage.makes, lambda: other.write_text("c"))], print)


def test_two_runs_of_one_study(tmp_path: Path) -> None:
    claim(tmp_path, CONFIG)
    stages = [made(tmp_path / "rows/a.csv")]

    def meanwhile() -> None:
        with pytest.raises(DjepaError, match="Another process is writing into"):
            run_stages(stages, print)

    run_stages([made(tmp_path / "rows/b.csv", meanwhile), *stages], print)
    assert {*files(tmp_path)} == {"study.json", "manifest.json", "rows/a.csv", "rows/b.csv"}
