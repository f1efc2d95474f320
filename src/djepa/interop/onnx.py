"""`djepa export --onnx`: a planner as one ONNX graph. `graph.Graph` runs it without torch.

Frames, history, goal, candidates, IDs and proprioception in; choice, order, gate, costs and scores
out; any number of starts and candidates.
"""

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from djepa.artefacts.claim import GRAPH, claim_file
from djepa.errors import DjepaError, MissingExtraError
from djepa.evidence.logs import LogMixture
from djepa.evidence.tokens import NEIGHBOURS
from djepa.files import write_atomically
from djepa.interop.decision_graph import DecisionGraph
from djepa.interop.graph import INPUTS, OUTPUTS
from djepa.lift.planner import Planner
from djepa.models.protocol import CONTEXT, STRIDE

MOST = 2**10  # starts of a call, and candidates of a start


def export_onnx(planner: Planner, path: Path, horizon: int = 25, made_from: str = "") -> None:
    """Write the graph for candidates of `horizon` controls; any N, any K.

    Weights are inside the single file. A file that is not such a graph is not overwritten.
    """
    if planner.composition is not None:
        raise DjepaError("A graph holds no composition: export the planner without --patch.")
    claim_file(path, GRAPH)
    try:
        import onnx
        import onnxscript  # noqa: F401
    except ImportError:
        raise MissingExtraError("Exporting a graph", "onnx") from None
    graph = DecisionGraph(planner).eval()
    given = _example(graph, horizon)
    density = isinstance(graph.fusion, LogMixture) and graph.fusion.density
    least = NEIGHBOURS + 2 if density else 2
    N, K = torch.export.Dim("N", max=MOST), torch.export.Dim("K", min=least, max=MOST)
    shapes = {name: {0: N} for name in INPUTS}
    shapes["candidates"] = shapes["ids"] = {0: N, 1: K}
    nets: list[Any] = list(graph.nets)
    chunks = [net.chunk for net in nets]
    try:
        for net in nets:
            net.chunk = 2 * MOST**2  # one piece: the graph has no loop
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            found = torch.onnx.export(
                graph,
                given,
                dynamo=True,
                dynamic_shapes=tuple(shapes[name] for name in INPUTS),
                input_names=INPUTS,
                output_names=OUTPUTS,
                optimize=False,  # ONNX Runtime optimises at loading; here it doubles the time
                verbose=False,
            )
    finally:
        for net, chunk in zip(nets, chunks, strict=True):
            net.chunk = chunk
    assert found is not None
    proto = found.model_proto
    proto.producer_name = "djepa"  # identifies such a file
    about = {"geometries": ",".join(graph.names), "least": str(least), "planner": made_from}
    about["feels"] = ",".join(planner.feeling())
    onnx.helper.set_model_props(proto, about)
    write_atomically(path, proto.SerializeToString())


def _example(graph: DecisionGraph, horizon: int) -> tuple[Tensor, ...]:
    """Inputs of the right shapes, to trace with."""
    net: Any = graph.nets[0]
    px, A, stride = net.image, net.config.actions, getattr(net, "stride", STRIDE)
    if horizon < 1 or horizon % stride:
        raise DjepaError(f"The horizon must be whole blocks of {stride} controls, not {horizon}.")
    N, K = 3, NEIGHBOURS + 3
    random = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (N, CONTEXT + 1, px, px, 3), dtype=torch.uint8, generator=random)
    controls = torch.rand(N, (CONTEXT - 1) * stride, A, generator=random)
    candidates = torch.rand(N, K, horizon, A, generator=random)
    ids = torch.arange(K).expand(N, -1).contiguous()
    proprio = torch.rand(N, CONTEXT + 1, 4, generator=random)
    return pixels[:, :CONTEXT], controls, pixels[:, CONTEXT], candidates, ids, proprio
