"""One training step: loss, gradients, clipping, AdamW, average. On a GPU it is recorded once and
replayed.
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from djepa.errors import DjepaError
from djepa.models.graph import Recorded, record
from djepa.models.nets import draw_from
from djepa.models.parallel import average, count

Model = TypeVar("Model", bound=nn.Module)
CLIP = 1.0
WARM_UP = 0.02  # share of a phase


class Step(Generic[Model]):
    """Trains every parameter of `model` that takes gradients.

    Keeps an EMA if `keep` is given, and the plain mean of the states at which `snapshot` is called.
    Dropout, where there is any, draws from `random`.
    """

    def __init__(
        self,
        loss: Callable[..., Tensor],
        model: Model,
        rate: float,
        decay: float,
        keep: float | None = None,
        random: torch.Generator | None = None,
    ) -> None:
        self._loss, self._model, self._peak, self._keep = loss, model, rate, keep
        self._trained = [p for p in model.parameters() if p.requires_grad]
        self._device = self._trained[0].device
        self._gpu = self._device.type == "cuda"
        self._rate = torch.zeros((), device=self._device)
        self._optimiser = torch.optim.AdamW(
            self._trained, lr=self._rate, weight_decay=decay, fused=True, capturable=self._gpu
        )
        self.shadow = self._frozen_copy() if keep else None
        self._pairs = [] if self.shadow is None else self._changing(self.shadow)
        self._mean: Model | None = None  # of `_taken` snapshots
        self._taken = torch.zeros((), dtype=torch.int64)
        self._random = random if random is not None and draw_from(model, random) else None
        self._recorded: Recorded[Tensor] | None = None

    @property
    def recorded(self) -> bool:
        """Whether steps are replayed."""
        return self._recorded is not None

    def record(self, inputs: Sequence[Tensor]) -> None:
        """Record the step on inputs of these shapes, without changing the training state."""
        self._recorded = None
        if self._gpu and count() == 1:  # what is gathered on the way is not recorded
            self._rate.zero_()
            before = self.state()
            self._recorded = record(self._run, inputs, self._random)
            self.restore(before)

    def __call__(self, inputs: Sequence[Tensor], progress: float) -> Tensor:
        """One step at this share of the phase; returns the loss."""
        warm = min(1.0, progress / WARM_UP)
        self._rate.fill_(self._peak * warm * (0.5 + 0.5 * math.cos(math.pi * progress)))
        return self._run(*inputs) if self._recorded is None else self._recorded(*inputs)

    def average(self) -> Model:
        """A copy of the averaged model."""
        return copy.deepcopy(self.shadow if self.shadow is not None else self._model).eval()

    @torch.no_grad()
    def snapshot(self) -> None:
        """Add the current weights to the mean of snapshots."""
        self._taken += 1
        if self._mean is None:
            self._mean = self._frozen_copy()
        for mean, live in self._changing(self._mean):
            mean.lerp_(live, 1 / int(self._taken))

    def mean(self) -> Model | None:
        """A copy of the mean of all snapshots; None if there are none."""
        return copy.deepcopy(self._mean)

    def state(self) -> dict[str, Tensor]:
        """Everything a later process needs to go on: weights, averages, the optimiser's moments."""
        return {name: value.detach().to("cpu", copy=True) for name, value in self._live()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore a state in place, so that a recorded step continues with it."""
        if not self._optimiser.state:
            self._begin()
        if "taken" in tensors and int(tensors["taken"]) and self._mean is None:
            self._mean = self._frozen_copy()
        own = dict(self._live())
        missing = [name for name in own if name not in tensors and not name.startswith("moment.")]
        if missing or tensors.keys() - own.keys():
            raise DjepaError("The saved state is of another model. Choose another --out.")
        with torch.no_grad():
            for name, value in own.items():  # what had no gradient so far had no moments either
                value.copy_(tensors[name]) if name in tensors else value.zero_()

    def _live(self) -> Iterator[tuple[str, Tensor]]:
        yield "taken", self._taken
        for prefix, model in (
            ("model", self._model),
            ("average", self.shadow),
            ("mean", self._mean),
        ):
            if model is not None:
                yield from ((f"{prefix}.{n}", v) for n, v in model.state_dict().items())
        for i, parameter in enumerate(self._trained):
            kept = self._optimiser.state[parameter]
            yield from ((f"moment.{i}.{n}", v) for n, v in kept.items())

    def _begin(self) -> None:
        """Let the optimiser make its moments: a step of rate zero on zero gradients."""
        for parameter in self._trained:
            parameter.grad = torch.zeros_like(parameter)
        self._rate.zero_()
        self._optimiser.step()

    def _run(self, *inputs: Tensor) -> Tensor:
        self._optimiser.zero_grad(set_to_none=True)
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._gpu):
            value = self._loss(*inputs)
        value.backward()
        value = average(self._trained, value.detach())
        nn.utils.clip_grad_norm_(self._trained, CLIP)
        self._optimiser.step()
        if self._keep:
            shadow, live = zip(*self._pairs, strict=True)
            torch._foreach_lerp_(shadow, live, 1 - self._keep)
        return value

    def _frozen_copy(self) -> Model:
        return copy.deepcopy(self._model).eval().requires_grad_(False)

    def _changing(self, other: nn.Module) -> list[tuple[Tensor, Tensor]]:
        """Tensors of a copy and live ones: trained parameters, and BatchNorm statistics."""
        live = dict(self._model.named_parameters()) | dict(self._model.named_buffers())
        copied = dict(other.named_parameters()) | dict(other.named_buffers())
        return [
            (copied[name].data, tensor.data)
            for name, tensor in live.items()
            if tensor.is_floating_point() and (tensor.requires_grad or "running" in name)
        ]
