"""One training step: loss, gradients, clipping, AdamW, average. On a GPU it is recorded once and
replayed, because hundreds of small launches would cost more than the arithmetic.
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from djepa.errors import DjepaError

Model = TypeVar("Model", bound=nn.Module)
CLIP = 1.0
WARM_UP = 0.02  # share of a phase


class Step(Generic[Model]):
    """Trains every parameter of `model` that takes gradients; keeps an EMA if `keep` is given."""

    def __init__(
        self,
        loss: Callable[..., Tensor],
        model: Model,
        rate: float,
        decay: float,
        keep: float | None = None,
    ) -> None:
        self._loss, self._model, self._peak, self._keep = loss, model, rate, keep
        self._trained = [p for p in model.parameters() if p.requires_grad]
        self._device = self._trained[0].device
        self._gpu = self._device.type == "cuda"
        self._rate = torch.zeros((), device=self._device)
        self._optimiser = torch.optim.AdamW(
            self._trained, lr=self._rate, weight_decay=decay, fused=True, capturable=self._gpu
        )
        self.shadow = copy.deepcopy(model).eval().requires_grad_(False) if keep else None
        self._pairs = self._floats()
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: list[Tensor] = []
        self._value = torch.zeros(())

    @property
    def recorded(self) -> bool:
        """Whether steps are replayed."""
        return self._graph is not None

    def record(self, inputs: Sequence[Tensor]) -> None:
        """Record the step on inputs of these shapes; the learning rate is still zero."""
        if not self._gpu:
            return
        self._inputs = [tensor.clone() for tensor in inputs]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._run(self._inputs)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self._value = self._run(self._inputs)
        except RuntimeError as error:
            print(f"this step cannot be recorded and runs kernel by kernel: {error}", flush=True)
            torch.cuda.synchronize()
            return
        self._graph = graph

    def __call__(self, inputs: Sequence[Tensor], progress: float) -> Tensor:
        """One step at this share of the phase; returns the loss."""
        warm = min(1.0, progress / WARM_UP)
        self._rate.fill_(self._peak * warm * (0.5 + 0.5 * math.cos(math.pi * progress)))
        if self._graph is None:
            return self._run(inputs)
        for static, fresh in zip(self._inputs, inputs, strict=True):
            static.copy_(fresh)
        self._graph.replay()
        return self._value

    def average(self) -> Model:
        """A copy of the averaged model."""
        return copy.deepcopy(self.shadow if self.shadow is not None else self._model).eval()

    def state(self) -> dict[str, Tensor]:
        """Everything a later process needs to go on: weights, average, the optimiser's moments."""
        return {name: value.detach().cpu().contiguous() for name, value in self._live()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take up a state; in place, so that a recorded step goes on with it."""
        if not self._optimiser.state:
            self._begin()
        own = dict(self._live())
        missing = [name for name in own if name not in tensors and not name.startswith("moment.")]
        if missing or tensors.keys() - own.keys():
            raise DjepaError("The saved state is of another model. Choose another --out.")
        with torch.no_grad():
            for name, value in own.items():  # what had no gradient so far had no moments either
                value.copy_(tensors[name]) if name in tensors else value.zero_()

    def _live(self) -> Iterator[tuple[str, Tensor]]:
        yield from ((f"model.{n}", v) for n, v in self._model.state_dict().items())
        if self.shadow is not None:
            yield from ((f"average.{n}", v) for n, v in self.shadow.state_dict().items())
        for i, parameter in enumerate(self._trained):
            kept = self._optimiser.state[parameter]
            yield from ((f"moment.{i}.{n}", v) for n, v in kept.items())

    def _begin(self) -> None:
        """Let the optimiser make its moments: a step of rate zero on zero gradients."""
        for parameter in self._trained:
            parameter.grad = torch.zeros_like(parameter)
        self._rate.zero_()
        self._optimiser.step()

    def _run(self, inputs: Sequence[Tensor]) -> Tensor:
        self._optimiser.zero_grad(set_to_none=True)
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._gpu):
            value = self._loss(*inputs)
        value.backward()
        nn.utils.clip_grad_norm_(self._trained, CLIP)
        self._optimiser.step()
        if self._keep:
            torch._foreach_lerp_(
                [a for a, _ in self._pairs], [b for _, b in self._pairs], 1 - self._keep
            )
        return value.detach()

    def _floats(self) -> list[tuple[Tensor, Tensor]]:
        """Averaged and live tensors that change: trained parameters, and BatchNorm statistics."""
        if self.shadow is None:
            return []
        live = dict(self._model.named_parameters()) | dict(self._model.named_buffers())
        shadow = dict(self.shadow.named_parameters()) | dict(self.shadow.named_buffers())
        return [
            (shadow[name].data, tensor.data)
            for name, tensor in live.items()
            if tensor.is_floating_point() and (tensor.requires_grad or "running" in name)
        ]
