"""How time and memory of every stage grow with the starts of a bank; each in a process of its own.

The world is the Reacher's, because it executes quickly. The geometry is a LeWM of one layer with
random weights: files and memory are measured here, and are those of any geometry of 64 numbers.
Time is that of the processor on one thread, so that other work on the machine does not matter.

Legend: N starts, K candidates.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from djepa.align.fit import AlignConfig, Alignment
from djepa.align.outcomes import Outcomes
from djepa.align.presets import careful
from djepa.align.store import load_alignment
from djepa.audit.bank import report_bank
from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.bench.measure import Options, Row, in_child, peak
from djepa.evidence.evidence import Evidence
from djepa.interop.decide import decide_bank, load_decider
from djepa.interop.record import record, write_decisions
from djepa.models.lewm import LeWM, LeWMConfig
from djepa.models.nets import initialise
from djepa.models.predictions import predict_bank
from djepa.models.weights import load_geometry, save_geometry, weights_hash
from djepa.rollout.engine import LocalEngine
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
Stage = Callable[[], tuple[float, float, float]]  # CPU seconds, peak in MB, MB on disk


def bench_banks(options: Options) -> Iterator[Row]:
    """Every stage on banks of so many starts, each against the smallest bank."""
    first: dict[str, float] = {}
    with TemporaryDirectory(prefix="djepa-growth-") as folder:
        for starts in options.banks:
            home = Path(folder) / str(starts)
            config = _config(options, starts)
            for name, stage in _stages(home, config).items():
                seconds, most, stored = in_child(stage)
                least = first.setdefault(name, seconds)
                details = {"starts": starts, "peak_mb": most, "stored_mb": stored}
                details |= {"candidates": options.candidates, "horizon": config.horizon}
                note = f"{starts / seconds:,.0f} starts/s; peak {most:,.0f} MB"
                yield Row(f"{name}, bank of {starts:,}", "s", seconds, least, note, details)


def _config(options: Options, starts: int, split: str = "bench") -> CollectConfig:
    sizes = {"world": options.world[0] if options.world else "reacher", "starts": starts}
    pool = {"profile": "decoy", "candidates": options.candidates, "horizon": options.horizon}
    return CollectConfig(**sizes, **pool, split=split, block=BLOCK)  # type: ignore[arg-type]


def _stages(home: Path, config: CollectConfig) -> dict[str, Stage]:
    other = replace(config, split="bench-calibration", starts=min(config.starts, CALIBRATION))
    return {
        "collect": partial(_collect, home / "bank", config),
        "predict": partial(_predict, home, home / "bank"),
        "fit": partial(_fit, home, other),
        "decide": partial(_decide, home),
        "audit": partial(_audit, home),
    }


@contextmanager
def _measured(found: list[float], *places: Path) -> Iterator[None]:
    torch.set_num_threads(1)
    began = time.process_time()
    yield
    seconds = time.process_time() - began
    files = (file for place in places for file in (place, *place.rglob("*")) if file.is_file())
    found[:] = [seconds, peak("cpu"), sum(file.stat().st_size for file in files) / 1e6]


def _collect(path: Path, config: CollectConfig) -> tuple[float, float, float]:
    found = list[float]()
    with _measured(found, *(path / kind for kind in ("decision", "outcome", "provenance"))):
        collect(path, config, LocalEngine(1))
    return found[0], found[1], found[2]


def _predict(home: Path, bank: Path) -> tuple[float, float, float]:
    """Weights are made once; they are random, and the same wherever they are made."""
    if not (home / "weights").exists():
        model = LeWM(SIZES)
        initialise(model, torch.Generator().manual_seed(0))
        save_geometry(model, home / "weights", {"recipe": {"world": "reacher"}})
    stored, found = load_geometry(home / "weights"), list[float]()
    with _measured(found, bank / "evidence"):
        predict_bank(Bank(bank), stored, weights_hash(home / "weights"))
    return found[0], found[1], found[2]


def _fit(home: Path, other: CollectConfig) -> tuple[float, float, float]:
    """Base score, density, operator and gate; the calibration bank is made before the clock."""
    _collect(home / "other", other)
    _predict(home, home / "other")
    config: AlignConfig = replace(careful((NAME,), (NAME,), "log"), dense=(NAME,), updates=UPDATES)
    found = list[float]()
    with _measured(found, home / "alignment"):
        fit, calibration = Bank(home / "bank"), Bank(home / "other")
        known = [
            (Evidence.from_bank(bank, config.geometries, config.latents), Outcomes.from_bank(bank))
            for bank in (fit, calibration)
        ]
        Alignment(config).fit(*known[0]).calibrate(*known[1]).save(home / "alignment")
    return found[0], found[1], found[2]


def _decide(home: Path) -> tuple[float, float, float]:
    found, file = list[float](), home / "decisions.json"
    with _measured(found, file):
        bank, decider = Bank(home / "bank"), load_decider(home / "alignment")
        parts = decide_bank(bank, decider)
        write_decisions(file, (one for e, d in parts for one in record(e, d, decider.gate)))
    file.unlink()
    return found[0], found[1], found[2]


def _audit(home: Path) -> tuple[float, float, float]:
    """As `djepa audit --realised False`: encoding frames would only add the time of a geometry."""
    found, file = list[float](), home / "audit.json"
    with _measured(found, file):
        bank, alignment = Bank(home / "bank"), load_alignment(home / "alignment")
        report = report_bank(bank, [NAME], realised=False, alignment=alignment)
        file.write_text(json.dumps(report.as_rows()))
    return found[0], found[1], found[2]
