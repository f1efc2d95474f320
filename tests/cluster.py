"""Every stage on Ray clusters of several nodes against one process: `make cluster`.

First a cluster of this process, of which in every stage one node is killed once some items are
done and one is added later. Then one that `ray start` began, of two nodes, which the commands join
by address. Each stage must end in the bytes that one process writes; runs/cluster.json says which.
"""

import argparse
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from djepa.align import fit
from djepa.align.driving_fit import fit_anchor
from djepa.align.driving_store import save_readout
from djepa.align.fit import AlignConfig
from djepa.align.methods import Population
from djepa.align.outcomes import Outcomes
from djepa.align.presets import PAIR
from djepa.align.suite import Recipe, fit_suite
from djepa.artefacts.records import sha256
from djepa.bank import read
from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.bench import engine as bench
from djepa.bench.measure import Options
from djepa.control.episodes import EpisodeConfig
from djepa.control.loop import control
from djepa.control.planners import Planner, PlannerConfig
from djepa.evidence.evidence import Evidence
from djepa.files import to_json
from djepa.interop.decide import decide_with, load_decider
from djepa.interop.record import write_decisions
from djepa.models.episodes import plan_shards, simulate_all
from djepa.models.predictions import predict_bank
from djepa.models.weights import load_geometry, weights_hash
from djepa.rollout.cluster import RayEngine
from djepa.rollout.engine import CPU, Engine, Items, LocalEngine, Results, Work
from djepa.rollout.execute import CollectConfig
from djepa.studies.design import Place
from djepa.studies.stages import run_stages
from djepa.studies.study import new_study

QUICKLY = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500}
QUICKLY |= {"health_check_failure_threshold": 3}
PASSING = ("log.jsonl",)


@dataclass
class Disturbed:
    """A Ray engine on a cluster of which it kills a node, and to which it adds one."""

    cluster: Any
    nodes: list[Any]
    kill: int = 2  # results after which a node is lost,
    add: int = 4  # and after which another comes
    done: int = 0
    events: list[str] = field(default_factory=list)

    def map(self, work: Work, items: Items, shared: Any = None, device: str = CPU) -> Results:
        """As `RayEngine` does it."""
        for result in RayEngine().map(work, items, shared, device):
            self.done += 1
            if self.done == self.kill:
                self.cluster.remove_node(self.nodes.pop(), allow_graceful=False)
                self.events.append("killed")
            if self.done == self.add:
                self.nodes.append(self.cluster.add_node(num_cpus=1))
                self.events.append("added")
            yield result


@contextmanager
def cluster_of(nodes: int) -> Iterator[Disturbed]:
    """A head with one core and so many further nodes, each with a raylet of its own."""
    import ray
    from ray.cluster_utils import Cluster

    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    ray.shutdown()  # one that other work began
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": QUICKLY}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.FATAL)
        yield Disturbed(cluster, [cluster.add_node(num_cpus=1) for _ in range(nodes)])
    finally:
        ray.shutdown()
        cluster.shutdown()


# --------------------------------------------------------------------------- the stages


def _collect(home: Path, engine: Engine) -> None:
    config = CollectConfig(starts=16, block=2)
    collect(home / "fit", config, engine)
    collect(home / "cal", replace(config, split="calibration", starts=8), engine)


def _predict(home: Path, engine: Engine) -> None:
    for bank in (Bank(home / "fit"), Bank(home / "cal")):
        for name in PAIR:
            predict_bank(bank, load_geometry(name), weights_hash(name), engine=engine)


def _fit(home: Path, engine: Engine) -> None:
    banks = Bank(home / "fit"), Bank(home / "cal")
    parts = (Population(Evidence.from_bank(b, PAIR, PAIR), Outcomes.from_bank(b)) for b in banks)
    each = {f"seed {seed}": AlignConfig(updates=40, every=10, seed=seed) for seed in range(8)}
    recipe = Recipe({"fusion, two": (PAIR, None)}, each)
    fit_suite(home / "suite", *parts, {"banks": [b.hash for b in banks]}, recipe=recipe,
              engine=engine)  # fmt: skip


def _folds(home: Path, engine: Engine) -> None:
    """Cross-validation of the driving readout: each fold leaves one of twelve logs out."""
    sys.path.insert(0, str(Path(__file__).parent / "traffic"))
    from readouts import problem

    evidence, outcomes = problem(48, 0, "log")
    evidence = replace(evidence, logs=tuple(f"log {i % 12}" for i in range(48)))
    found = fit_anchor(evidence, outcomes, risk=True, engine=engine)
    save_readout(found, home / "readout", {})


def _decide(home: Path, engine: Engine) -> None:
    read.PART, fit.AT_ONCE = 2, 2 * 63  # starts and candidates of a part: there are several
    decider = load_decider(home / "suite" / "seed-3")
    parts = decide_with(engine, Bank(home / "fit"), decider)
    write_decisions(home / "decided.json", (one for part in parts for one in part.records))


def _control(home: Path, engine: Engine) -> None:
    config = EpisodeConfig("push", block=2, episodes=16, split="cluster", budget=10)
    search = PlannerConfig("native-cem", geometry="lewm", evaluations=32, samples=16, horizon=25)
    control(home / "control", config, Planner(search, "push"), engine)


def _simulate(home: Path, engine: Engine) -> None:
    simulate_all(plan_shards(home / "episodes", 6 * 1024, 0, ("T",)), engine, lambda *_: None)


def _study(home: Path, engine: Engine) -> None:
    """Tiny: collect, predict, fit and decide."""
    import pytest

    sys.path.insert(0, str(Path(__file__).parent / "studies"))
    from study_kit import tiny_design

    with pytest.MonkeyPatch.context() as patch:
        design = tiny_design("shapes", patch)
        study = new_study(design, Place(home / "study", engine), "tiny")
        last = [stage.name for stage in study.stages() if stage.name.startswith("decide")][-1]
        run_stages(study.stages(), lambda line: None, last)


STAGES: dict[str, Callable[[Path, Engine], None]] = {
    "collect": _collect,
    "predict": _predict,
    "fit": _fit,
    "folds": _folds,
    "decide": _decide,
    "control": _control,
    "simulate": _simulate,
    "study": _study,
}


# --------------------------------------------------------------------------- by address


def commands() -> dict[str, tuple[str, ...]]:
    """The same as a user types it; `--engine ray --address` comes last."""
    geometries, two = ("--geometry", *PAIR), ("--preset", "published", "tdjepa")
    search = ("--planner", "native-cem", "--geometry", "lewm", "--evaluations", "32")
    return {
        "collect": ("collect", "push", "--starts", "16", "--block", "4", "--out", "fit"),
        "collect ": ("collect", "push", "--starts", "8", "--split", "cal", "--out", "cal"),
        "predict": ("predict", "fit", *geometries),
        "predict ": ("predict", "cal", *geometries),
        "fit": ("fit", "fit", "--calibration", "cal", *two, "--updates", "40", "--out", "fits"),
        "decide": ("decide", "fits/published", "fit", "--out", "decided.json"),
        "control": ("control", "push", *search, "--episodes", "8", "--budget", "10",
                    "--samples", "16", "--split", "cluster", "--out", "control"),
        "simulate": ("simulate", "push", "--episodes", "2048", "--out", "episodes"),
        "study": ("study", "pusht", "--pools", "reference", "--until", "collect reference",
                  "--out", "study"),
    }  # fmt: skip


@contextmanager
def started_cluster() -> Iterator[tuple[str, dict[str, str]]]:
    """Two nodes that `ray start` began; the address, and the environment of who joins."""
    port, scratch = _free_port(), tempfile.mkdtemp(prefix="r")  # paths of sockets must be short
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": scratch}
    ray, address = str(Path(sys.executable).with_name("ray")), f"127.0.0.1:{port}"
    head = ["--head", f"--port={port}", "--include-dashboard=false"]
    nodes = []
    try:
        for words in (head, [f"--address={address}"]):
            line = [ray, "start", *words, "--num-cpus=1", "--block"]
            null = subprocess.DEVNULL
            nodes.append(
                subprocess.Popen(
                    line, env=environment, stdout=null, stderr=null, start_new_session=True
                )
            )
            _wait_for(port)
        yield address, environment
    finally:
        for node in nodes:
            os.killpg(node.pid, signal.SIGKILL)
            node.wait()
        shutil.rmtree(scratch, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _wait_for(port: int) -> None:
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("the cluster did not start")


def _run(home: Path, words: Sequence[str], environment: dict[str, str]) -> None:
    home.mkdir(parents=True, exist_ok=True)
    line = [sys.executable, "-m", "djepa", *words]
    done = subprocess.run(line, cwd=home, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed: {done.stderr}")


# --------------------------------------------------------------------------- the comparison


def differing(one: Path, other: Path) -> list[str]:
    """Files that are not the same, by name."""
    first, second = (_hashes(folder) for folder in (one, other))
    return sorted(name for name in {*first, *second} if first.get(name) != second.get(name))


def _hashes(folder: Path) -> dict[str, str]:
    found = [path for path in folder.rglob("*") if path.is_file() and path.name not in PASSING]
    return {str(path.relative_to(folder)): sha256(path.read_bytes()) for path in found}


def in_this_process(root: Path, nodes: int, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Every stage on a cluster of which one node is killed, and to which one is added."""
    one, other, before = root / "local", root / "ray", 0
    with cluster_of(nodes) as engine:
        for name in names:
            stage = STAGES[name]
            stage(one, LocalEngine(1))
            engine.done, engine.events = 0, []
            stage(other, engine)
            what = f"{1 + nodes}, one {' and one '.join(engine.events) or 'idle'}"
            yield {"stage": name, "cluster": "of one process", "nodes": what, "items": engine.done,
                   "files": len(_hashes(other)) - before, "odd": differing(one, other)}  # fmt: skip
            before = len(_hashes(other))
        if len(names) == len(STAGES):
            _bench()


def _bench() -> None:
    """`djepa bench engine`, small: every row is measured."""
    bench.COLLECTED, bench.PREDICTED, bench.FITS, bench.EMPTY = 4, 2, 1, 1
    rows = list(bench.bench_engine(Options(updates=1), print))
    assert len(rows) == 5, rows
    assert all(row.ours > 0 for row in rows)


def by_address(root: Path) -> Iterator[dict[str, Any]]:
    """Every command on a cluster that was there before."""
    one, other, before = root / "typed", root / "joined", 0
    with started_cluster() as (address, environment):
        for name, words in commands().items():
            _run(one, words, environment)
            _run(other, (*words, "--engine", "ray", "--address", address), environment)
            yield {"stage": f"djepa {name.strip()}", "cluster": "joined by address", "nodes": "2",
                   "items": "", "files": len(_hashes(other)) - before,
                   "odd": differing(one, other)}  # fmt: skip
            before = len(_hashes(other))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it; exit 1 unless every stage gives equal bytes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/cluster.json"))
    parser.add_argument("--nodes", type=int, default=2, help="beside the head")
    parser.add_argument("--stages", choices=STAGES, nargs="+", help="of the first cluster, alone")
    given, rows = parser.parse_args(arguments), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        first = in_this_process(root, given.nodes, given.stages or tuple(STAGES))
        for row in chain(first, () if given.stages else by_address(root)):
            rows.append(row)
            print(row, flush=True)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(to_json(rows))
    sys.exit(any(row["odd"] for row in rows))


if __name__ == "__main__":
    main()
