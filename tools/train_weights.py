"""Train several weights beside each other on one GPU, from one table of recipes.

    python -m tools.train_weights cube-lewm cube-tdjepa --lanes 2 --out runs/w
    python -m tools.train_weights --out runs/w --keep runs/finished --minutes 25   # everything

Episodes of a world are simulated once, beside the training, and shared by its runs. As many runs as
there are lanes go on at once; one whose encoder another run trains waits for it. Every run is a
`djepa train` with a log OUT/NAME.log: what was cut off goes on with the same command. KEEP gets
NAME.tar when a run is finished, and NAME-best.tar of those that the cap on minutes ends.
"""

import argparse
import shlex
import subprocess
import sys
import tarfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from djepa.errors import DjepaError, check_name

FILES = ("card.json", "config.json", "manifest.json", "model.safetensors", "log.jsonl", "loss.png")
EPISODES = {"reacher": 98_304, "granular": 32_768, "cube": 32_768, "shapes": 98_304}
PLAYED = {"shapes": "push --shapes T L Z +"}  # world and shapes, where the name does not say it
JUDGED = {  # starts that choose a checkpoint, and starts of the final evaluation
    "reacher": "--development 512 --held-out 1024",
    "granular": "--development 128 --held-out 256",
    "cube": "--development 128 --held-out 256",
    "shapes": "--development 512 --held-out 512",
}
FEW = "--development 16 --held-out 16"  # of an encoder, whose predictor is not used
ENCODER = "--geometry lewm --steps 4100 --joint 0.976 --seed 2"  # LeWM's loss, for TD-JEPA
VECTOR = "--geometry lewm --steps 12000 --joint 0.375 --late 0.25 --seed 1 --last 4"
PATCHES = "--geometry jepawm --steps 10000 --joint 0.16 --seed 3 --last 4"
TEMPORAL = "--geometry tdjepa --steps 8000 --seed 2 --last 4"
WEIGHTS = {  # name -> flags of `djepa train`; what it is trained on is the first part of the name
    "reacher-jepawm": "--geometry jepawm --steps 19600 --joint 0.0816 --seed 3 --last 4",
    # Trained on one step alone it chooses worse the longer it is trained, so it is also unrolled.
    "reacher-dinowm": "--geometry dinowm --steps 12000 --joint 0.1333 --seed 4 --last 4 --late 0.5",
    "cube-lewm": VECTOR,
    "granular-lewm": VECTOR,
    "cube-encoder": ENCODER,
    "granular-encoder": ENCODER,
    "cube-tdjepa": TEMPORAL,
    "granular-tdjepa": TEMPORAL,
    "granular-jepawm": PATCHES,
    "shapes-jepawm": "--geometry jepawm --look clean --steps 24000 --joint 0.08 --seed 5 --last 4",
}


@dataclass(frozen=True)
class Run:
    """One training."""

    name: str
    out: Path
    device: str

    @property
    def world(self) -> str:
        """What it is trained on."""
        return self.name.split("-")[0]

    @property
    def needs(self) -> str:
        """The run whose encoder it takes, if any."""
        return f"{self.world}-encoder" if self.name.endswith("tdjepa") else ""

    @property
    def finished(self) -> bool:
        """Whether its weights are there."""
        return (self.out / self.name / "manifest.json").exists()

    @property
    def command(self) -> list[str]:
        """The whole `djepa train`."""
        judged = FEW if self.name.endswith("-encoder") else JUDGED[self.world]
        flags = f"{WEIGHTS[self.name]} {judged}"
        if self.needs:
            flags += f" --encoder {self.out / self.needs}"
        data = f"--data {episodes(self.out, self.world)} --episodes {EPISODES[self.world]}"
        whole = f"train {played(self.world)} {flags} {data} --device {self.device}"
        return [*djepa(), *shlex.split(whole), "--out", str(self.out / self.name)]

    def pack(self, keep: Path, best: bool = False) -> None:
        """Its files, or those of the best checkpoint so far, as one archive."""
        folder = self.out / self.name / ("best" if best else "")
        if not (folder / "manifest.json").exists():
            return
        keep.mkdir(parents=True, exist_ok=True)
        with tarfile.open(keep / f"{self.name}{'-best' if best else ''}.tar", "w") as archive:
            for file in (folder / name for name in FILES):
                if file.exists():
                    archive.add(file, f"{self.name}/{file.name}")


def djepa() -> list[str]:
    """The program, as this Python has it."""
    return [sys.executable, "-m", "djepa"]


def episodes(out: Path, world: str) -> Path:
    """Where those of a world are."""
    return out / "episodes" / world


def played(world: str) -> str:
    """The world and its shapes, as the commands take them."""
    return PLAYED.get(world, world)


class Lanes:
    """Runs that go on beside each other."""

    def __init__(self, runs: list[Run], lanes: int, keep: Path | None, deadline: float) -> None:
        self.waiting, self.lanes, self.keep, self.deadline = runs, lanes, keep, deadline
        self.going: dict[Run, subprocess.Popen[bytes]] = {}
        self.failed: set[str] = set()

    def go(self, pause: float = 1.0) -> bool:
        """Until all are done or the time is over; whether all are finished."""
        while self.waiting or self.going:
            if time.monotonic() > self.deadline:
                self._stop()
                return False
            self._collect()
            self._start()
            time.sleep(pause)
        return not self.failed

    def _start(self) -> None:
        """Fill free lanes with runs that can begin."""
        for run in [run for run in self.waiting if run.needs in self.failed]:
            self._end(run, f"not begun: {run.needs} failed")
            self.waiting.remove(run)
        unmade = {run.name for run in (*self.waiting, *self.going)}
        ready = [run for run in self.waiting if run.needs not in unmade]
        for run in ready[: self.lanes - len(self.going)]:
            self.waiting.remove(run)
            run.out.mkdir(parents=True, exist_ok=True)
            with (run.out / f"{run.name}.log").open("ab") as log:
                self.going[run] = subprocess.Popen(run.command, stdout=log, stderr=log)
            print(f"{run.name}: begun", flush=True)

    def _collect(self) -> None:
        """Pack what is finished, name what failed."""
        for run in [run for run, process in self.going.items() if process.poll() is not None]:
            code = self.going.pop(run).returncode
            if code or not run.finished:
                self._end(run, f"failed with {code}: see {run.out / run.name}.log")
                continue
            print(f"{run.name}: finished", flush=True)
            if self.keep:
                run.pack(self.keep)

    def _end(self, run: Run, why: str) -> None:
        self.failed.add(run.name)
        print(f"{run.name}: {why}", flush=True)

    def _stop(self) -> None:
        """Out of time: end what goes on and pack the best so far; states stay for the next time."""
        for run, process in self.going.items():
            process.terminate()
            process.wait()
            print(f"{run.name}: out of time", flush=True)
            if self.keep:
                run.pack(self.keep, best=True)


class Simulation(threading.Thread):
    """Episodes of these worlds, one world after the other, on every core."""

    def __init__(self, worlds: list[str], out: Path) -> None:
        super().__init__(daemon=True)
        self.worlds, self.out, self.over = worlds, out, threading.Event()
        self.process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Each in a process of its own; a run whose episodes do not come says so itself."""
        for world in self.worlds:
            if self.over.is_set():
                return
            where = ["--episodes", str(EPISODES[world]), "--out", str(episodes(self.out, world))]
            self.process = subprocess.Popen([*djepa(), "simulate", *played(world).split(), *where])
            self.process.wait()

    def stop(self) -> None:
        """No more episodes."""
        self.over.set()
        if self.process is not None:
            self.process.terminate()
        self.join()


def main(given: list[str] | None = None) -> int:
    """Train what is named, or everything."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(WEIGHTS))
    parser.add_argument("--out", type=Path, default=Path("runs/w"))
    parser.add_argument("--keep", type=Path, help="folder for archives of finished weights")
    parser.add_argument("--lanes", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--device", default="cuda")
    wanted = parser.parse_args(given)
    for name in wanted.names:
        check_name("weights", name, WEIGHTS)
    if wanted.lanes < 1 or wanted.minutes <= 0:
        raise DjepaError("lanes must be 1 or more, and minutes above 0.")
    runs = [Run(name, wanted.out, wanted.device) for name in wanted.names or WEIGHTS]
    needed = [Run(run.needs, run.out, run.device) for run in runs if run.needs]
    runs = [run for run in dict.fromkeys([*needed, *runs]) if not run.finished]
    deadline = time.monotonic() + 60 * wanted.minutes
    worlds = list(dict.fromkeys(run.world for run in runs))
    simulation = Simulation(worlds, wanted.out)
    simulation.start()
    try:
        return 0 if Lanes(runs, wanted.lanes, wanted.keep, deadline).go() else 1
    finally:
        simulation.stop()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DjepaError as error:
        sys.exit(f"error: {error}")
