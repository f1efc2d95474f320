"""Growth of time and memory of every stage with the starts of a bank; each in its own process.

The world is Reacher, because it executes quickly. The geometry is a LeWM of one layer with random
weights: sizes of files and memory are those of any geometry with 64 latent numbers. Time is CPU
time, each process on one thread, so that other work on the machine does not matter; wall time is
also given.
"""

import json
import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch

from djepa.align.fit import AlignConfig, Alignment
from djepa.align.outcomes import Outcomes
from djepa.align.presets import careful
from djepa.align.store import load_alignment
from djepa.audit.bank import report_bank
from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.bench.measure import Options, Row, in_child, peak, peak_of
from djepa.evidence.evidence import Evidence
from djepa.interop.decide import decide_bank, load_decider, record
from djepa.interop.record import write_decisions
from djepa.models.lewm import LeWM, LeWMConfig
from djepa.models.nets import initialise
from djepa.models.predictions import predict_bank
from djepa.models.weights import load_geometry, save_geometry, weights_hash
from djepa.rollout.engine import LocalEngine, end_workers
from djepa.rollout.execute import CollectConfig

NAME, LATENT, BLOCK, CALIBRATION, UPDATES = "lewm", 64, 64, 1024, 200
SIZES = LeWMConfig(
    image=28,
    width=24,
    depth=1,
    hidden=48,
    latent=LATENT,
    projector=32,
    predictor_depth=1,
    predictor_heads=2,
    predictor_head=8,
    predictor_hidden=32,
    dropout=0.0,
)


class Cost(NamedTuple):
    """Time and memory of a stage."""

    seconds: float  # of the processor: this process and its workers
    wall_s: float
    peak_mb: float  # of this process
    worker_mb: float  # of the largest of its workers; 0 without
    stored_mb: float


Stage = Callable[[], Cost]


def bench_banks(options: Options) -> Iterator[Row]:
    """Every stage on banks of the given sizes, each against the smallest bank."""
    first: dict[str, float] = {}
    with TemporaryDirectory(prefix="djepa-growth-") as folder:
        for starts in options.banks:
            home = Path(folder) / str(starts)
            config = _config(options, starts)
            for name, stage in _stages(home, config, options.workers).items():
                cost = in_child(stage)
                least = first.setdefault(name, cost.seconds)
                details = {"starts": starts, **cost._asdict()}
                details |= {"candidates": options.candidates, "horizon": config.horizon}
                details |= {"workers": options.workers}
                note = f"{starts / cost.seconds:,.0f} starts/s; peak {cost.peak_mb:,.0f} MB"
                yield Row(f"{name}, bank of {starts:,}", "s", cost.seconds, least, note, details)


def _config(options: Options, starts: int, split: str = "bench") -> CollectConfig:
    sizes = {"world": options.world[0] if options.world else "reacher", "starts": starts}
    pool = {
        "profile": options.profile,
        "candidates": options.candidates,
        "horizon": options.horizon,
    }
    return CollectConfig(**sizes, **pool, split=split, block=BLOCK)  # type: ignore[arg-type]


def _stages(home: Path, config: CollectConfig, workers: int) -> dict[str, Stage]:
    other = replace(config, split="bench-calibration", starts=min(config.starts, CALIBRATION))
    gather = partial(_collect, home / "bank", config, workers)
    return {
        "collect": gather,
        "collect again": gather,  # finds the finished bank, verifies it and prints its summary
        "predict": partial(_predict, home, home / "bank"),
        "fit": partial(_fit, home, other),
        "decide": partial(_decide, home),
        "audit": partial(_audit, home),
    }


@contextmanager
def _measured(found: list[Cost], *places: Path) -> Iterator[None]:
    """Measure the cost of the context's body, and the size of the files at `places`."""
    torch.set_num_threads(1)
    before, began = _processor(), time.monotonic()
    yield
    wall = time.monotonic() - began
    workers = [peak_of(child.pid) for child in multiprocessing.active_children() if child.pid]
    end_workers()  # their CPU time is counted only after they end
    files = (file for place in places for file in (place, *place.rglob("*")) if file.is_file())
    stored = sum(file.stat().st_size for file in files) / 1e6
    spent = _processor() - before
    found[:] = [Cost(spent, wall, peak("cpu"), max(workers, default=0.0), stored)]


def _processor() -> float:
    """CPU seconds of this process and of its children that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def _collect(path: Path, config: CollectConfig, workers: int = 1) -> Cost:
    found = list[Cost]()
    with _measured(found, *(path / kind for kind in ("decision", "outcome", "provenance"))):
        collect(path, config, LocalEngine(workers))
    return found[0]


def _predict(home: Path, bank: Path) -> Cost:
    """Predict a bank. Weights are random from a fixed seed, and made once."""
    if not (home / "weights").exists():
        model = LeWM(SIZES)
        initialise(model, torch.Generator().manual_seed(0))
        save_geometry(model, home / "weights", {"recipe": {"world": "reacher"}})
    stored, found = load_geometry(home / "weights"), list[Cost]()
    with _measured(found, bank / "evidence"):
        predict_bank(Bank(bank), stored, weights_hash(home / "weights"))
    return found[0]


def _fit(home: Path, other: CollectConfig) -> Cost:
    """Base score, density, operator and gate; the calibration bank is made before the clock."""
    _collect(home / "other", other)
    _predict(home, home / "other")
    config: AlignConfig = replace(careful((NAME,), (NAME,), "log"), dense=(NAME,), updates=UPDATES)
    found = list[Cost]()
    with _measured(found, home / "alignment"):
        fit, calibration = Bank(home / "bank"), Bank(home / "other")
        known = [
            (Evidence.from_bank(bank, config.geometries, config.latents), Outcomes.from_bank(bank))
            for bank in (fit, calibration)
        ]
        Alignment(config).fit(*known[0]).calibrate(*known[1]).save(home / "alignment")
    return found[0]


def _decide(home: Path) -> Cost:
    found, file = list[Cost](), home / "decisions.json"
    with _measured(found, file):
        bank, decider = Bank(home / "bank"), load_decider(home / "alignment")
        parts = decide_bank(bank, decider)
        write_decisions(file, (one for e, d in parts for one in record(e, d, decider.gate)))
    file.unlink()
    return found[0]


def _audit(home: Path) -> Cost:
    """As `djepa audit --no-realised`: encoding frames would only add the time of a geometry."""
    found, file = list[Cost](), home / "audit.json"
    with _measured(found, file):
        bank, alignment = Bank(home / "bank"), load_alignment(home / "alignment")
        report = report_bank(bank, [NAME], realised=False, alignment=alignment)
        file.write_text(json.dumps(report.as_rows()))
    return found[0]
