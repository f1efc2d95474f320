"""Speed of a planner from frames to decision, and agreement of its choices with float32.

At the shipped size with shipped weights, or at the published size with random ones.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

import djepa
from djepa.align.fit import Alignment
from djepa.align.store import load_alignment
from djepa.bench.measure import Options, Row, Say, wait
from djepa.bench.subject import decisions, random_model
from djepa.errors import check_name
from djepa.lift.planner import Planner
from djepa.models.fallback import REFUSED
from djepa.models.fast import RECORDED, Inputs, Way
from djepa.models.weights import load_geometry

PAIR, LIFTED = ("lewm", "tdjepa"), "tdjepa"
ALIGNMENT = Path(djepa.__file__).parent / "suites" / "pusht" / "reference" / "relational"
SPLIT = "plan-bench-2"  # plan-bench was used in development
BATCH, WARM, FEW = 16, 2, 3
Batch = tuple[Inputs, Tensor]  # and candidate IDs
PLAIN = Way(record=False)  # always measured, before the others
WAYS = {  # unmeasured ones first, since the time limit drops the last
    "bf16-compiled": Way("bf16", compiled=True, again=16),
    "tf32-compiled": Way("tf32", compiled=True, again=16),
    "fp16x3-compiled": Way("fp16x3", compiled=True),
    "float32-compiled": Way(compiled=True),
    "bf16": Way("bf16", again=16),
    "tf32": Way("tf32", again=16),
    "fp16x3": Way("fp16x3"),
    "float32": RECORDED,
}


@dataclass(frozen=True)
class Setting:
    """Models, an alignment over them, and starts in batches."""

    name: str
    models: dict[str, Any]
    alignment: Alignment
    given: Inputs
    device: str

    @property
    def batches(self) -> list[Batch]:
        """Inputs and candidate IDs."""
        N, K = self.given.candidates.shape[:2]
        ids = torch.arange(K, device=self.device).expand(N, K)
        parts = zip(*(tensor.split(BATCH) for tensor in (*self.given, ids)), strict=True)
        return [(Inputs(*part[:-1]), part[-1]) for part in parts]


def bench_plan(options: Options, say: Say) -> Iterator[Row]:
    """The ways that were named, or all that the device has."""
    for name in options.ways:
        check_name("way", name, WAYS)
    here = [name for name in WAYS if options.device == "cuda" or not WAYS[name].compiled]
    yield from way_rows(_setting(options), options.ways or here, options, say)


def _setting(options: Options) -> Setting:
    """Models, alignment and starts; the published alignment reads 192 latent numbers per model."""
    size, device = options.size, options.device
    models: dict[str, Any] = {}
    check_name("size", size, ("small", "paper"))
    for seed, name in enumerate(PAIR):
        stored = size == "small"
        models[name] = load_geometry(name) if stored else random_model(name, size, seed)
        models[name].to(device)
    alignment = load_alignment(ALIGNMENT)
    assert alignment.operator is not None
    alignment.operator.to(device)
    starts = max(options.inputs, options.compared)
    given = decisions(models[LIFTED].image, starts, options.candidates, device, split=SPLIT)
    name = "shipped weights" if size == "small" else "paper size, random weights"
    return Setting(name, models, alignment, given, device)


def way_rows(setting: Setting, ways: Sequence[str], options: Options, say: Say) -> Iterator[Row]:
    """Two rows of each way: its models alone, then plans. One that fails is left out."""
    until, plain = time.perf_counter() + options.limit, Measured(setting, PLAIN, options)
    for measured in (plain, *(Measured(setting, WAYS[name], options) for name in ways)):
        if measured is not plain and time.perf_counter() > until:
            say(f"{measured.title}: left out, the time is spent")
            continue
        try:
            for row in measured.rows(plain, until):
                say(f"{row.what}: {row.ours:.3f} ms; {row.note}")
                yield row
        except Exception as error:  # one failing way must not stop the others
            reason = (str(error).splitlines() or [""])[0]
            say(f"{measured.title} does not work here: {type(error).__name__}: {reason}")


class Measured:
    """A way under measurement, in milliseconds a start."""

    def __init__(self, setting: Setting, way: Way, options: Options) -> None:
        self.setting, self.repeats, self.batches = setting, options.repeats, setting.batches
        self.title = f"{setting.name}, {way.label}"
        self.timed = self.batches[: -(-options.inputs // BATCH)]
        self.planner = Planner(setting.models, setting.alignment, LIFTED)
        self.planner.way = way
        self.ms: dict[str, float] = {}
        self.choices: list[Tensor] = []

    def rows(self, plain: "Measured", until: float) -> Iterator[Row]:
        """Rows of the models alone, then of plans: compiling a way may use up the time."""
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.filterwarnings("error", REFUSED)  # float32 must not be measured instead
            self._models()
            wait(self.setting.device)
        first = time.perf_counter() - began
        times = self._repeated("models", self._models, FEW)
        note = f"first call {first:.1f} s: compiles, records, checks"
        yield self._row("models", plain, note, {"first_seconds": first, **times})
        times = self._repeated("plans", lambda: self._plan(self.timed), self.repeats)
        seconds = max(0.0, until - time.perf_counter()) / 2
        few = max(1, int(1000 * seconds / (BATCH * self.ms["plans"])))
        self.choices = self._plan(self.batches if self is plain else self.batches[:few])
        same = torch.cat([a == b for a, b in zip(self.choices, plain.choices, strict=False)])
        counts = {"compared": len(same), "changed": int((~same).sum())}
        note = f"{counts['changed']} of {counts['compared']} choices differ"
        yield self._row("plans", plain, note, {**counts, **times})

    def _row(self, what: str, plain: "Measured", note: str, details: dict[str, float]) -> Row:
        return Row(f"{self.title}, {what}", "ms", self.ms[what], plain.ms[what], note, details)

    @torch.inference_mode()
    def _models(self) -> None:
        for given, _ in self.timed:
            self.planner.predict(tuple(self.setting.models), given)

    def _plan(self, batches: list[Batch]) -> list[Tensor]:
        return [
            self.planner.plan(frames, history, goal, candidates, ids, proprio, lift=False).choice
            for (frames, goal, proprio, history, candidates), ids in batches
        ]

    def _repeated(self, what: str, work: Callable[[], object], repeats: int) -> dict[str, float]:
        """The fastest and the slowest repeat; the median is kept."""
        times, starts = [], sum(len(ids) for _, ids in self.timed)
        for _ in range(WARM + repeats):
            wait(self.setting.device)
            began = time.perf_counter()
            work()
            wait(self.setting.device)
            times.append(1000 * (time.perf_counter() - began) / starts)
        self.ms[what] = median(times[WARM:])
        return {"fastest_ms": min(times[WARM:]), "slowest_ms": max(times[WARM:])}
