"""Speed and memory of decisions by geometries, against the plain way in one run."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from djepa.bench.measure import (
    Options,
    Row,
    Say,
    figures,
    in_child,
    peak,
    reset_peak,
    seconds_of,
    wait,
)
from djepa.bench.subject import RANDOM, Subject, load_subject, stored_subject
from djepa.models import linear
from djepa.models.fast import Fast, Inputs
from djepa.models.kinds import GEOMETRIES
from djepa.models.protocol import CONTEXT
from djepa.models.weights import shipped

VECTORS, FOUR = ("lewm", "tdjepa"), ("lewm", "tdjepa", "jepawm", "dinowm")
FORMATS = ("float32", "tf32", "bf16")
GRAIN = 0.3  # s of repeated calls on a GPU: one call is too short for the clock


def bench_geometry(options: Options, say: Say) -> Iterator[Row]:
    """All measurements of some geometries; number formats only on a GPU."""
    device, which = options.device, options.geometry
    which = which or (VECTORS if options.size == "paper" else FOUR)
    for where in which:
        subject = load_subject(where, options.size, device)
        say(f"measuring {subject.title} ...")
        given = subject.decisions(options.starts, options.candidates, device)
        yield _starts(subject, given, device)
        if device == "cpu":
            yield _products(subject, given)
        if device == "cuda":
            yield from format_rows(subject, given, options.compiled, device, say)
            if where in GEOMETRIES and where in shipped() and subject.weights == RANDOM:
                stored = stored_subject(where, device)  # formats need trained weights
                given = stored.decisions(options.starts, options.candidates, device)
                yield from format_rows(stored, given, (), device, say)
        yield from _many(subject, where, options)


def start_by_start(fast: Fast, given: Inputs) -> Tensor:
    """Costs (N, K), one start per call: the plain way."""
    rows = zip(*(tensor.split(1) for tensor in given), strict=True)
    return torch.cat([fast.predict(Inputs(*row)).cost for row in rows])


def _starts(subject: Subject, given: Inputs, device: str) -> Row:
    """Encoding of context and goal, rollouts and costs; frames are already drawn."""
    model, (N, K) = subject.model, given.candidates.shape[:2]
    every = torch.cat([given.frames, given.goal[:, None]], dim=1)
    z, fast = model.encode(every, given.proprio), Fast(model, device, record=False)
    ways = {
        "": lambda: fast.predict(given),
        "plain_": lambda: start_by_start(fast, given),
        "encode_": lambda: model.encode(every, given.proprio),
        "rollout_": lambda: model.rollout(z[:, :CONTEXT], given.history, given.candidates),
    }
    spent = {f"{x}ms_per_start": 1e3 * seconds_of(way, device) / N for x, way in ways.items()}
    ours, plain, encode, rollout = spent.values()
    note = (
        f"{N} x {K} candidates against start by start; {figures(ours)} ms a start, "
        f"{encode / (encode + rollout):.0%} of it encoding"
    )
    return subject.row("starts", "starts/s", 1e3 / ours, 1e3 / plain, note, **spent)


def _products(subject: Subject, given: Inputs) -> Row:
    """Linear layers by oneDNN against PyTorch's default."""
    fast, N = Fast(subject.model, "cpu", record=False), len(given.frames)
    work = partial(fast.predict, given)
    ours, seconds = work().cost, seconds_of(work, "cpu")
    with _pytorchs():
        theirs, plain = work().cost, seconds_of(work, "cpu")
    ranks, choices = drift(ours, theirs)
    note = f"oneDNN against PyTorch's choice; {ranks:.1%} of ranks, {choices:.1%} of choices differ"
    changed = {"ranks_changed": ranks, "choices_changed": choices}
    return subject.row("products", "starts/s", N / seconds, N / plain, note, **changed)


@contextmanager
def _pytorchs() -> Iterator[None]:
    """Use PyTorch's default linear layers inside the context."""
    before, linear.PRODUCT = linear.PRODUCT, None
    try:
        yield
    finally:
        linear.PRODUCT = before


def format_rows(
    subject: Subject, given: Inputs, compiled: Sequence[str], device: str, say: Say
) -> Iterator[Row]:
    """Number formats, then recorded calls, then compiled ones, each against plain float32."""
    tried = [(name, record, False) for record in (False, True) for name in FORMATS]
    tried += [(name, True, True) for name in compiled]
    exact = Fast(subject.model, device, record=False).predict(given).cost
    plain = None
    for precision, record, compile_ in tried:
        label = precision + " + compiled" * compile_ + " + recorded" * record
        try:
            fast = Fast(subject.model, device, precision, record, compile_)
            ranks, choices = drift(fast.predict(given).cost, exact)
            grain = GRAIN if device == "cuda" else 0.0
            seconds = seconds_of(partial(fast.predict, given), device, grain)
        except Exception as error:  # a compiler may fail in many ways; keep the other rows
            if not compile_:
                raise
            say(f"{label} does not work here: {str(error).splitlines()[0]}")
            continue
        if compile_:
            torch.compiler.reset()
        ms = 1e3 * seconds / len(given.frames)
        note = f"{figures(ms)} ms a start; {ranks:.1%} of ranks, {choices:.1%} of choices changed"
        note += "; could not be recorded" * (record and not fast.recorded)
        changed = {"ms_per_start": ms, "ranks_changed": ranks, "choices_changed": choices}
        yield subject.row(label, "starts/s", 1e3 / ms, plain, note, **changed)
        plain = plain or 1e3 / ms


def drift(cost: Tensor, exact: Tensor) -> tuple[float, float]:
    """(N, K) costs and exact ones -> share of changed ranks, share of changed choices."""
    ours, theirs = (x.argsort(dim=1, stable=True) for x in (cost, exact))
    ranks = (ours.argsort(dim=1) != theirs.argsort(dim=1)).float().mean()
    return ranks.item(), (ours[:, 0] != theirs[:, 0]).float().mean().item()


class _Rollout(NamedTuple):
    seconds: float
    grown: float  # MB at the peak, above the memory before
    futures: float  # MB of the result


def _many(subject: Subject, where: str, options: Options) -> Iterator[Row]:
    """Many candidates of one start in chunks of two sizes: the chunk bounds the memory."""
    many, chunk = options.many, min(subject.model.chunk, options.many)
    sizes = max(1, chunk // 4), chunk
    work = [partial(_rollout, where, options, size) for size in sizes]
    small, large = (w() if options.device == "cuda" else in_child(w) for w in work)
    note = f"at most {sizes[0]} at a time against {sizes[1]}"
    about = {"chunk": sizes[0], "plain_chunk": sizes[1]}
    rate = many / small.seconds, many / large.seconds
    took = f"{note}; {figures(small.seconds)} s against {figures(large.seconds)} s"
    yield subject.row(f"{many} candidates", "candidates/s", *rate, took, **about)
    what, grown = f"memory of {many} candidates", (small.grown, large.grown or None)
    fits = f"{note}; the futures themselves are {figures(small.futures)} MB of it"
    yield subject.row(what, "MB", *grown, fits, **about)


def _rollout(where: str, options: Options, chunk: int) -> _Rollout:
    device = options.device
    subject = load_subject(where, options.size, device)
    model, given = subject.model, subject.decisions(1, options.many, device)
    context = model.encode(given.frames, given.proprio[:, :CONTEXT])
    model.chunk = chunk
    model.rollout(context, given.history, given.candidates[:, :1])  # initialises libraries
    before, began = reset_peak(device), time.perf_counter()
    futures = model.rollout(context, given.history, given.candidates)
    wait(device)
    seconds = time.perf_counter() - began  # once: it takes seconds
    return _Rollout(seconds, peak(device) - before, futures.numel() * futures.element_size() / 1e6)
