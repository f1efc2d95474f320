"""The stages on a Ray cluster against processes of this machine, with as many workers, in one run.

Workers of both are kept between stages, and the first call of a stage is not timed, so libraries
are loaded. Timed calls alternate, and the faster one of each counts.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from djepa.align.fit import AlignConfig
from djepa.align.methods import Population, fit_each
from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.bench.align import problem
from djepa.bench.measure import Options, Row, Say
from djepa.errors import MissingExtraError
from djepa.models.predictions import predict_bank
from djepa.models.weights import load_geometry, weights_hash
from djepa.rollout.cluster import RayEngine
from djepa.rollout.engine import Engine, LocalEngine, usable_cores
from djepa.rollout.execute import CollectConfig

COLLECTED, PREDICTED, FITS = 64, 16, 4  # starts, starts, alignments
EMPTY = 1000  # items that do nothing
GEOMETRY = "lewm"
Stage = Callable[[Path, Engine], None]


def bench_engine(options: Options, say: Say) -> Iterator[Row]:
    """Both engines with every core; the time to start Ray is a separate row."""
    try:
        import ray
    except ImportError:
        raise MissingExtraError("The bench of engines", "ray") from None
    cores, began = usable_cores(), time.perf_counter()
    say("starting Ray ...")
    engine = RayEngine(workers=cores)
    engine.join(ray)
    list(engine.map(_nothing, [(0, 0)]))
    note = f"until the first of {cores} workers has finished an empty item"
    yield Row("start of a local cluster", "s", time.perf_counter() - began, None, note)
    stages = {
        f"empty items, {EMPTY:,}": (EMPTY, "items", _empty),
        f"collect, {COLLECTED} starts": (COLLECTED, "starts", _collect),
        f"predict, {PREDICTED} starts, {GEOMETRY}": (PREDICTED, "starts", _predict),
        f"fit, {FITS} alignments": (FITS, "fits", lambda out, on: _fit(options.updates, on)),
    }
    for name, (count, unit, stage) in stages.items():
        say(f"measuring {name} ...")
        times = [[_seconds(stage, on) for on in (engine, LocalEngine(cores))] for _ in range(3)]
        there, here = (min(turns) for turns in zip(*times[1:], strict=True))
        yield Row(name, f"{unit}/s", count / there, count / here, f"{cores} workers each")


def _seconds(stage: Stage, engine: Engine) -> float:
    with TemporaryDirectory() as folder:
        if stage is _predict:
            _collect(Path(folder), LocalEngine(1), PREDICTED)
        began = time.perf_counter()
        stage(Path(folder), engine)
        return time.perf_counter() - began


def _nothing(item: int) -> int:
    return item


def _empty(out: Path, engine: Engine) -> None:
    del out
    for _ in engine.map(_nothing, ((n, n) for n in range(EMPTY))):
        pass


def _collect(out: Path, engine: Engine, starts: int = 0) -> None:
    collect(out / "bank", CollectConfig(starts=starts or COLLECTED, split="bench", block=4), engine)


def _predict(out: Path, engine: Engine) -> None:
    geometry, of = load_geometry(GEOMETRY), weights_hash(GEOMETRY)
    predict_bank(Bank(out / "bank"), geometry, of, engine=engine)


def _fit(updates: int, engine: Engine) -> None:
    fit, calibration = (Population(*problem(name, n, 63)) for name, n in (("fit", 64), ("cal", 16)))
    configs = [(f"{n}", AlignConfig(updates=updates, seed=n)) for n in range(FITS)]
    for _ in fit_each(configs, fit, calibration, engine):
        pass
