"""An exported graph beside torch, on the same starts and threads: size, speed, equal choices."""

import importlib.util
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from djepa.bench.measure import Options, Row, Say, figures, seconds_of
from djepa.bench.subject import decisions
from djepa.interop.graph import Graph, Named
from djepa.interop.onnx import export_onnx
from djepa.lift.planner import Planner, load_planner
from djepa.models.fast import Inputs
from djepa.seeds import generator

AT_ONCE = 32  # starts per call
MB = 1e6


def bench_onnx(options: Options, say: Say) -> Iterator[Row]:
    """Rows: size on the disk, parity on real starts and on random inputs, one start, a batch."""
    planner, K = load_planner(options.planner), options.candidates
    image = next(iter(planner.geometries.values())).image
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "planner.onnx"
        say("exporting the graph ...")
        export_onnx(planner, path)
        graph = Graph(path, torch.get_num_threads())
        yield Row("file", "MB", path.stat().st_size / MB, _size(options.planner), _runtimes())
        say(f"comparing choices on {options.parity} starts ...")
        yield _parity("real starts", planner, graph, decisions(image, options.parity, K))
        noise = _noise(decisions(image, min(AT_ONCE, options.parity), K))
        yield _parity("random inputs", planner, graph, noise)
        for N in dict.fromkeys((1, options.starts)):
            say(f"measuring {N} x {K} ...")
            yield _speed(planner, graph, decisions(image, N, K))


def _speed(planner: Planner, graph: Graph, given: Inputs) -> Row:
    """Starts per second, by the graph and by torch."""
    (N, K), arrays = given.candidates.shape[:2], _arrays(given)
    ours = seconds_of(lambda: graph.plan(**arrays), seconds=3.0)
    plain = seconds_of(lambda: _plan(planner, given), seconds=3.0)
    note = f"{1000 * ours:.1f} ms a call, torch {1000 * plain:.1f} ms"
    return Row(f"{N} x {K}", "starts/s", N / ours, N / plain, note)


def _parity(what: str, planner: Planner, graph: Graph, given: Inputs) -> Row:
    """Shares of starts with equal choice and equal order; largest difference of a score."""
    N, same, orders, gates, away = len(given.frames), 0, 0, 0, 0.0
    for rows in torch.arange(N).split(AT_ONCE):
        part = Inputs(*(tensor[rows] for tensor in given))
        one, other = _plan(planner, part), graph.plan(**_arrays(part))
        same += int((one.choice.numpy() == other["choice"]).sum())
        orders += int((one.order.numpy() == other["order"]).all(1).sum())
        gates += int((one.decision.opened.numpy() == other["opened"]).sum())
        refined = one.decision.refined.numpy()
        away = max(away, float(np.abs(refined - other["aligned"]).max()))
    note = f"equal whole orders {orders}, gates {gates}; scores differ by at most {figures(away)}"
    details = {"orders": float(orders), "gates": float(gates), "difference": away}
    return Row(f"equal choices, {what}", "starts", same, N, note, details)


def _noise(given: Inputs) -> Inputs:
    """Random inputs of the same shapes."""
    rng = generator("bench-onnx")

    def drawn(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dtype == torch.uint8:
            return torch.from_numpy(rng.integers(0, 256, tensor.shape, np.uint8))
        return torch.from_numpy(rng.normal(size=tensor.shape).astype(np.float32))

    return Inputs(*(drawn(tensor) for tensor in given))


def _ids(given: Inputs) -> torch.Tensor:
    N, K = given.candidates.shape[:2]
    return torch.arange(K).expand(N, -1).contiguous()


def _plan(planner: Planner, given: Inputs) -> Any:
    known = (given.frames, given.history, given.goal, given.candidates, _ids(given))
    return planner.plan(*known, given.proprio.float(), lift=False)


def _arrays(given: Inputs) -> Named:
    return {**{n: x.numpy() for n, x in given._asdict().items()}, "ids": _ids(given).numpy()}


def _size(place: Path) -> float:
    """Megabytes of a file, or of all files of a folder."""
    files = [place] if place.is_file() else place.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file()) / MB


def _runtimes() -> str:
    """Sizes of both runtimes, if installed, as text."""
    sizes = []
    for package in ("onnxruntime", "torch"):
        found = importlib.util.find_spec(package)
        assert found is not None
        assert found.origin is not None
        sizes.append(f"{package} {_size(Path(found.origin).parent):,.0f} MB")
    return f"installed: {', '.join(sizes)}"
