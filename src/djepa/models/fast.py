"""Decisions at speed: frames in, costs and futures out, in one call.

On a GPU the call is recorded once per shape as a CUDA graph and then replayed.

Legend: N starts, K candidates, B blocks of five controls, A action width, D latent.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from djepa.errors import DjepaError, check_name
from djepa.models.graph import Recorded, record
from djepa.models.precision import PRECISIONS, arithmetic, narrowed
from djepa.models.protocol import CONTEXT, STRIDE, Geometry

KEPT = 4  # recorded shapes; each holds memory of its own


class Inputs(NamedTuple):
    """What one batch of decisions sees."""

    frames: Tensor  # (N, 3, image, image, 3) uint8
    goal: Tensor  # (N, image, image, 3) uint8
    proprio: Tensor  # (N, 4, 4): pusher x y vx vy in the three frames, then in the goal
    history: Tensor  # (N, 10, A)
    candidates: Tensor  # (N, K, 5 B, A)


class Predicted(NamedTuple):
    """What a geometry predicts of one batch of decisions."""

    cost: Tensor  # (N, K) float32
    futures: Tensor  # (N, K, B, D)
    goal: Tensor  # (N, D)


def predict_frames(geometry: Geometry, given: Inputs) -> Predicted:
    """The plain call in float32: PyTorch alone would convolve in TF32 on a GPU.

    Context and goal are encoded in one call, once per start; candidates are rolled out in batches
    of the geometry's `chunk`. On a CPU nothing else gained over 7 % (docs/performance.md).
    """
    with arithmetic(given.candidates.device, "float32"):
        futures, goal = _futures(geometry.encode, geometry.rollout, given)
        return Predicted(geometry.native_cost(futures, goal).float(), futures, goal)


def _futures(
    encode: Callable[..., Tensor], rollout: Callable[..., Tensor], given: Inputs
) -> tuple[Tensor, Tensor]:
    """Futures (N, K, B, D) and goals (N, D); one encoder call for the four frames."""
    z = encode(torch.cat([given.frames, given.goal[:, None]], dim=1), given.proprio)
    return rollout(z[:, :CONTEXT], given.history, given.candidates), z[:, CONTEXT]


class Fast:
    """A geometry on a device, in one precision; costs are computed in float32 whatever it is.

    The geometry is moved to the device and put into eval mode; `tf32` is float32 on a CPU. Set its
    `chunk` and planning cost before: a recorded call keeps them as they were.
    """

    def __init__(
        self,
        geometry: Geometry,
        device: str | torch.device = "cpu",
        precision: str = "float32",
        record: bool = True,
        compiled: bool = False,
    ) -> None:
        module: object = geometry
        check_name("precision", precision, PRECISIONS)
        if not isinstance(module, nn.Module):
            raise DjepaError(f"Geometry '{geometry.name}' is not a torch module.")
        if torch.device(device).type == "cuda" and not torch.cuda.is_available():
            raise DjepaError("No CUDA device here. Use the device cpu.")
        self.device, self.precision = torch.device(device), precision
        module.eval().to(self.device)
        self._geometry = geometry
        nets: Geometry = narrowed(module) if precision == "bf16" else geometry
        self._both: Callable[[Inputs], tuple[Tensor, Tensor]]
        self._both = partial(_futures, nets.encode, nets.rollout)
        if compiled:
            inner = partial(_futures, _beneath(nets.encode), _beneath(nets.rollout))
            self._both = torch.compile(inner, dynamic=False)
        self._records = record and self.device.type == "cuda"
        self._calls: dict[tuple[torch.Size, ...], Recorded[Predicted] | None] = {}

    @property
    def recorded(self) -> bool:
        """Whether the latest shape is replayed."""
        return next(reversed(self._calls.values()), None) is not None

    @torch.inference_mode()
    def predict(self, given: Inputs) -> Predicted:
        """Native costs, futures and goals of all candidates of all starts."""
        _check(given, self._geometry.image, int(getattr(self._geometry, "stride", STRIDE)))
        if not self._records:
            return self._predicted(*self._here(given))
        with torch.cuda.device(self.device):
            return self._replayed(given)

    def _predicted(self, *inputs: Tensor) -> Predicted:
        with arithmetic(self.device, self.precision):
            futures, goal = self._both(Inputs(*inputs))
        with arithmetic(self.device, "float32"):
            cost = self._geometry.native_cost(futures.float(), goal.float()).float()
        return Predicted(cost, futures, goal)

    def _replayed(self, given: Inputs) -> Predicted:
        shapes = tuple(tensor.shape for tensor in given)
        call = (
            self._calls.pop(shapes)
            if shapes in self._calls
            else record(self._predicted, self._here(given))
        )
        self._calls[shapes] = call  # the latest comes last
        if len(self._calls) > KEPT:
            self._calls.pop(next(iter(self._calls)))
        if call is None:
            return self._predicted(*self._here(given))
        return Predicted(*(part.clone() for part in call(*given)))  # the next replay overwrites it

    def _here(self, given: Inputs) -> Inputs:
        pixels = (tensor.to(self.device) for tensor in given[:2])
        return Inputs(*pixels, *(tensor.to(self.device, torch.float32) for tensor in given[2:]))


def _beneath(method: Any) -> Callable[..., Tensor]:
    """The function under `inference_mode`: a compiler cannot enter that mode, its caller has."""
    inner = getattr(method, "__wrapped__", None)
    return method if inner is None else partial(inner, method.__self__)


def _check(given: Inputs, px: int, stride: int) -> None:
    N, (*_, K, H, A) = len(given.frames), (0, 0, 0, *given.candidates.shape)
    history = (CONTEXT - 1) * stride
    shapes = (N, CONTEXT, px, px, 3), (N, px, px, 3), (N, CONTEXT + 1, 4), (N, history, A)
    for name, tensor, shape in zip(Inputs._fields, given, (*shapes, (N, K, H, A)), strict=True):
        if tuple(tensor.shape) != shape:
            raise DjepaError(f"{name} must be {shape}, got {tuple(tensor.shape)}.")
    if min(N, K, H) < 1 or H % stride or {given.frames.dtype, given.goal.dtype} != {torch.uint8}:
        raise DjepaError(f"Give uint8 frames, candidates, and whole blocks of {stride} controls.")
