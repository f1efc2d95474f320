"""Kill every long command at random moments, run it again, compare bytes: `make soak`.

Of each command there is first a run that nobody disturbs. Then, as long as time is left, it is
stopped somewhere (SIGKILL, SIGTERM or SIGINT), must leave no process behind, is run again, and
must end in the same bytes. The table says how many were tried and how many survived.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from commands import interruptible

STOPS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
PATIENCE = 20.0  # seconds for workers to notice that they are alone
BEGUN = ("begun.json", "journal.jsonl")
PASSING = (".lock", "log.jsonl", "loss.png")


@dataclass
class Command:
    """One long command, what it needs and what it leaves."""

    name: str
    words: tuple[str, ...]  # with OUT where its folder goes
    needs: tuple[tuple[str, ...], ...] = ()  # commands run once before
    given: Callable[[Path], None] | None = None  # puts somebody's data into its home, once before
    same: str = ""  # pattern of the files whose bytes must be equal; all, if it is empty
    inside: str = ""  # it writes into this folder of what it needs, of which each try has a copy
    tried: int = 0
    survived: int = 0
    faults: list[str] = field(default_factory=list)


def commands() -> dict[str, Command]:
    """All that take long, in a size that takes seconds."""
    collect = ("collect", "push", "--starts", "24", "--block", "4", "--profile", "decoy")
    bank = ("collect", "push", "--starts", "6", "--block", "2", "--workers", "1")
    lewm = ("--geometry", "lewm")
    fit = ("fit", "bank", "--calibration", "other", "--preset", "lewm", "--updates", "60")
    predicted = (
        (*bank, "--out", "bank"),
        (*bank, "--split", "calibration", "--out", "other"),
        ("predict", "bank", *lewm),
        ("predict", "other", *lewm),
    )
    predict = ("predict", "OUT", *lewm)
    study = ("study", "pusht", "--pools", "reference", "--until", "fit reference", "--out", "OUT")
    episodes = ("simulate", "push", "--episodes", "3000", "--workers", "2")
    train = ("train", "push", "--device", "cpu", "--shrink", "64", "--episodes", "2048")
    train = (*train, "--steps", "60", "--development", "4", "--held-out", "4", "--out", "OUT")
    export = ("export", "fitted", *lewm, "--lifted", "lewm", "--out", "OUT/p.safetensors")
    audited = (predicted[0], predicted[2])
    fitted = (*predicted, (*fit, "--out", "fitted"))
    loop = ("control", "push", "--planner", "native-cem", "--episodes", "6", "--block", "2")
    loop = (*loop, "--evaluations", "32", "--samples", "16", "--budget", "25", "--workers", "2")
    found = (
        Command("collect", (*collect, "--workers", "2", "--out", "OUT")),
        Command(
            "predict", (*predict, "--workers", "1"), ((*bank, "--out", "bank"),), inside="bank"
        ),
        Command("predict in two", (*predict, "--workers", "2"), predicted[:1], inside="bank"),
        Command("fit", (*fit, "--out", "OUT"), predicted),
        Command("decide", ("decide", "fitted", "other", "--out", "OUT/record.json"), fitted),
        Command("export", export, fitted),
        Command("audit", ("audit", "bank", *lewm, "--json", "OUT/audit.json"), audited),
        Command("import", ("import", "hdf5", "data.h5", "--out", "OUT"), given=recorded_episodes),
        Command("control", (*loop, "--out", "OUT")),
        Command("simulate", (*episodes, "--out", "OUT")),
        Command("study", study),
        Command(  # its card says how long it took
            "train",
            (*train, "--data", "data"),
            ((*episodes, "--out", "data"),),
            same=r"model\.safetensors",
        ),
    )
    return {command.name: command for command in found}


def recorded_episodes(home: Path) -> None:
    """An HDF5 file of 40 episodes, as another program might record them."""
    import h5py

    rng, count, length = np.random.default_rng(0), 40, 50
    with h5py.File(home / "data.h5", "w", libver="latest") as file:
        file["pixels"] = rng.integers(0, 256, (count * length, 64, 64, 3), np.uint8)
        file["action"] = rng.normal(size=(count * length, 2)).astype(np.float32)
        file["ep_len"] = np.full(count, length, np.int32)
        file["ep_offset"] = np.arange(0, count * length, length)


def soak(
    root: Path, chosen: Sequence[Command], kills: int, until: float, rng: np.random.Generator
) -> None:
    """Kill each command in turn, `kills` times or until time is up; counts are in the commands."""
    wholes: dict[str, tuple[dict[str, bytes], float]] = {}
    for number in range(kills):
        for command in chosen:
            home = root / command.name
            if command.name not in wholes:
                wholes[command.name] = _undisturbed(home, command)
            if time.monotonic() > until:
                return
            whole, seconds = wholes[command.name]
            fault = _one(home, command, f"try-{number}", whole, float(rng.random()) * seconds, rng)
            command.tried += 1
            command.survived += not fault
            command.faults += [fault] if fault else []


def table(chosen: Sequence[Command]) -> str:
    """Markdown: tried and survived, and every exception."""
    lines = ["| command | tried | survived |", "| --- | --- | --- |"]
    lines += [f"| {c.name} | {c.tried} | {c.survived} |" for c in chosen]
    return "\n".join([*lines, *(f"- {c.name}: {fault}" for c in chosen for fault in c.faults)])


def _undisturbed(home: Path, command: Command) -> tuple[dict[str, bytes], float]:
    home.mkdir()
    if command.given:
        command.given(home)
    for words in command.needs:
        _finish(home, words)
    began = time.monotonic()
    _finish(home, _words(home, command, "whole"))
    return _files(home / "whole"), time.monotonic() - began


def _one(
    home: Path,
    command: Command,
    out: str,
    whole: dict[str, bytes],
    after: float,
    rng: np.random.Generator,
) -> str:
    """One stop and one restart; what went wrong, or nothing."""
    words, stop = _words(home, command, out), STOPS[int(rng.integers(len(STOPS)))]
    process = start(home, words)
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        process.send_signal(stop)
        process.communicate()
    stopped = f"{stop.name} after {after:.2f} s"
    if alive := left(process.pid):
        return f"{stopped}: {alive} processes live on"
    if process.returncode != 0:
        again = start(home, words)
        _, complaint = again.communicate()
        if again.returncode != 0 and "holds a" not in complaint:  # it was finished: compare
            return f"{stopped}: the restart ends in {again.returncode}: {complaint.strip()[-300:]}"
    found = _files(home / out)
    every = {*found, *whole}
    counted = {n for n in every if re.fullmatch(command.same, n)} if command.same else every
    odd = sorted(n for n in counted if found.get(n) != whole.get(n))
    return f"{stopped}: other bytes in {', '.join(odd[:3])}" if odd or not counted else ""


def _words(home: Path, command: Command, out: str) -> tuple[str, ...]:
    if command.inside:
        subprocess.run(["cp", "-r", command.inside, out], cwd=home, check=True)
    return tuple(re.sub("^OUT", out, word) for word in command.words)


def start(home: Path, words: Sequence[str]) -> "subprocess.Popen[str]":
    """A command in a process session of its own."""
    line = [sys.executable, "-m", "djepa", *words]
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    one = {**os.environ, "OMP_NUM_THREADS": "1"}  # threads of two commands would fight
    return subprocess.Popen(
        line,
        cwd=home,
        env=one,
        stdout=null,
        stderr=pipe,
        text=True,
        start_new_session=True,
        preexec_fn=interruptible,
    )


def _finish(home: Path, words: Sequence[str]) -> None:
    process = start(home, words)
    _, complaint = process.communicate()
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} failed without being disturbed: {complaint}")


def _files(folder: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    if "manifest.json" in found:  # beside it these say nothing; the next writer removes them
        found = {name: path for name, path in found.items() if name not in BEGUN}
    return {name: path.read_bytes() for name, path in found.items() if path.name not in PASSING}


def left(session: int) -> int:
    """Processes of a session that are still there after a while."""
    until, alive = time.monotonic() + PATIENCE, 1
    while alive and time.monotonic() < until:
        alive = sum(_session(entry) == session for entry in Path("/proc").glob("[0-9]*"))
        time.sleep(0.05)
    return alive


def _session(process: Path) -> int:
    try:
        words = (process / "stat").read_text().rpartition(")")[2].split()
        return -1 if words[0] == "Z" else int(words[3])
    except OSError:
        return -1


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it; exit 1 unless everything survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--kills", type=int, default=10**6, help="of each command, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/soak.md"))
    parser.add_argument("--json", type=Path, help="write the numbers here, for docs/results")
    parser.add_argument("names", nargs="*", help="commands; all without it")
    given = parser.parse_args(arguments)
    known: dict[str, Command] = commands()
    chosen = [known[name] for name in given.names or known]
    until = time.monotonic() + 60 * given.minutes
    with tempfile.TemporaryDirectory() as root:
        soak(Path(root), chosen, given.kills, until, np.random.default_rng(given.seed))
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(table(chosen) + "\n")
    if given.json:
        rows = [{"name": c.name, "tried": c.tried, "survived": c.survived} for c in chosen]
        given.json.write_text(json.dumps({"minutes": given.minutes, "rows": rows}, indent=1) + "\n")
    print(table(chosen))
    sys.exit(any(command.tried > command.survived for command in chosen))


if __name__ == "__main__":
    main()
