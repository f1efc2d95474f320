"""A call on tensors of fixed shapes, recorded once as a CUDA graph and then replayed.

A training step or a decision is a thousand small kernels: launching them one by one takes longer
than their arithmetic.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

Out = TypeVar("Out")
WARM_UPS = 3  # libraries set up their workspaces, compilers compile
KEPT = 4  # recorded shapes; each holds memory of its own


@dataclass(frozen=True)
class Recorded(Generic[Out]):
    """A graph, the tensors that it reads, and what it writes."""

    graph: Any  # torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    out: Out

    def __call__(self, *fresh: Tensor) -> Out:
        """Replay on these inputs. The next replay overwrites what this one returns."""
        for static, tensor in zip(self.inputs, fresh, strict=True):
            static.copy_(tensor)
        self.graph.replay()
        return self.out


def record(
    work: Callable[..., Out], inputs: Sequence[Tensor], random: torch.Generator | None = None
) -> Recorded[Out] | None:
    """Record `work(*inputs)` on the current CUDA device; None, with a warning, where it cannot be.

    `random` is the generator that the work draws from, if it draws at all: a replay goes on with
    the state that the generator has by then.
    """
    static = tuple(tensor.clone() for tensor in inputs)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UPS):
            work(*static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    if random is not None:
        graph.register_generator_state(random)
    try:
        with torch.cuda.graph(graph):
            out = work(*static)
    except RuntimeError as error:
        warnings.warn(f"Not recorded, kernels are launched one by one: {error}", stacklevel=2)
        torch.cuda.synchronize()
        return None
    return Recorded(graph, static, out)


class Calls:
    """Work on tensors, recorded once for each of the latest KEPT shapes; on a CPU plainly called.

    The current device must be the one of the tensors.
    """

    def __init__(self, work: Callable[..., Sequence[Tensor]], records: bool) -> None:
        self.work, self.records = work, records
        self.kept: dict[tuple[torch.Size, ...], Recorded[Sequence[Tensor]] | None] = {}

    @property
    def recorded(self) -> bool:
        """Whether the latest shape is replayed."""
        return next(reversed(self.kept.values()), None) is not None

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        """What the work gives; the next call leaves it alone."""
        if not self.records:
            return [*self.work(*inputs)]
        shapes = tuple(tensor.shape for tensor in inputs)
        call = self.kept.pop(shapes) if shapes in self.kept else record(self.work, inputs)
        self.kept[shapes] = call  # the latest comes last
        if len(self.kept) > KEPT:
            self.kept.pop(next(iter(self.kept)))
        if call is None:
            return [*self.work(*inputs)]
        return [part.clone() for part in call(*inputs)]  # the next replay overwrites it
