"""Decisions at speed: frames in, costs and futures out, in one call for all geometries.

On a GPU the call is recorded once per shape as a CUDA graph and then replayed.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from djepa.errors import DjepaError, check_name
from djepa.models.compiled import compile_blocks
from djepa.models.graph import Calls
from djepa.models.precision import PRECISIONS, arithmetic, in_format
from djepa.models.protocol import CONTEXT, STRIDE, Geometry

ENCODING = ("encoder.", "projector.", "feature_", "proprio_mean", "proprio_std", "pixel_")


class Inputs(NamedTuple):
    """The inputs of one batch of decisions."""

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


@dataclass(frozen=True)
class Way:
    """How predictions are computed; the default is float32, recorded on a GPU.

    With `again`, frames are encoded in float32, all candidates are rolled out in `precision`, and
    then each geometry's best `again` candidates once more in float32.
    """

    precision: str = "float32"
    record: bool = True
    compiled: bool = False  # block by block; needs a compiler on the machine
    again: int = 0

    def __post_init__(self) -> None:
        check_name("precision", self.precision, PRECISIONS)

    @property
    def label(self) -> str:
        """In words."""
        words = [self.precision, "compiled" * self.compiled, "recorded" * self.record]
        words += [f"best {self.again} again in float32" if self.again else ""]
        return " + ".join(word for word in words if word)


RECORDED = Way()


def predict_frames(geometry: Geometry, given: Inputs) -> Predicted:
    """The plain call in float32: PyTorch alone would convolve in TF32 on a GPU.

    Context and goal are encoded in one call, once per start; candidates are rolled out in batches
    of the geometry's `chunk`. On a CPU nothing else gained over 7 % (docs/performance.md).
    """
    with arithmetic(given.candidates.device, "float32"):
        z = geometry.encode(_four(given), given.proprio)
        futures = geometry.rollout(z[:, :CONTEXT], given.history, given.candidates)
        goal = z[:, CONTEXT]
        return Predicted(geometry.native_cost(futures, goal).float(), futures, goal)


class Nets:
    """One geometry on a device, in one way; costs are computed in float32 whatever it is.

    The geometry is moved to the device and put into eval mode.
    """

    def __init__(self, geometry: Geometry, device: torch.device, way: Way) -> None:
        module: object = geometry
        if not isinstance(module, nn.Module):
            raise DjepaError(f"Geometry '{geometry.name}' is not a torch module.")
        module.eval().to(device)
        self.geometry, self.device, self.way = geometry, device, way
        self.first = "float32" if way.again else way.precision
        self._exact = self._made(module, self.first)
        self._quick = self._made(module, way.precision) if way.again else self._exact

    def _made(self, module: nn.Module, precision: str) -> Any:
        made = in_format(module, precision, copied=self.way.compiled)
        return compile_blocks(made) if self.way.compiled else made

    def encode(self, given: Inputs) -> Tensor:
        """Latents (N, 4, D) of the context and the goal."""
        with arithmetic(self.device, self.first):
            z: Tensor = self._exact.encode(_four(given), given.proprio).float()
            return z

    def predict(self, given: Inputs, z: Tensor) -> Predicted:
        """Roll out from latents and compute costs; with `again`, the best once more in float32."""
        found = self._rolled(self._quick, self.way.precision, given, z)
        if not self.way.again:
            return found
        best = found.cost.argsort(dim=1, stable=True)[:, : self.way.again, None, None]
        some = given.candidates.gather(1, best.expand(-1, -1, *given.candidates.shape[2:]))
        exact = self._rolled(self._exact, self.first, given._replace(candidates=some), z)
        cost = found.cost.scatter(1, best[..., 0, 0], exact.cost)
        futures = found.futures.scatter(1, best.expand_as(exact.futures), exact.futures)
        return Predicted(cost, futures, found.goal)

    def _rolled(self, nets: Any, precision: str, given: Inputs, z: Tensor) -> Predicted:
        with arithmetic(self.device, precision):
            context, goal = z[:, :CONTEXT], z[:, CONTEXT]
            futures = nets.rollout(context, given.history, given.candidates).float()
        with arithmetic(self.device, "float32"):
            cost = self.geometry.native_cost(futures, goal).float()
        return Predicted(cost, futures, goal)


class Together:
    """Several geometries in one call; encoders with the same weights run once.

    Set a geometry's `chunk` and planning cost before: a recorded call keeps them as they were.
    """

    def __init__(
        self,
        geometries: Mapping[str, Geometry],
        device: str | torch.device = "cpu",
        way: Way = RECORDED,
    ) -> None:
        self.device, self.way = torch.device(device), way
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise DjepaError("No CUDA device here. Use the device cpu.")
        self.nets = {name: Nets(of, self.device, way) for name, of in geometries.items()}
        first: dict[Any, str] = {}
        self.encoded_by = {n: first.setdefault(encoder_key(g), n) for n, g in geometries.items()}
        self.calls = Calls(self._all, way.record and self.device.type == "cuda")

    @torch.inference_mode()
    def predict(self, given: Inputs) -> dict[str, Predicted]:
        """Native costs, futures and goals of all candidates of all starts, by geometry."""
        for nets in self.nets.values():
            check_inputs(given, nets.geometry)
        with torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext():
            parts = self.calls(*self._here(given))
        return {n: Predicted(*parts[3 * i : 3 * i + 3]) for i, n in enumerate(self.nets)}

    def _all(self, *inputs: Tensor) -> list[Tensor]:
        """Cost, futures and goal of the first geometry, then of the next."""
        given, z = Inputs(*inputs), dict[str, Tensor]()
        parts: list[Tensor] = []
        for name, nets in self.nets.items():
            by = self.encoded_by[name]
            if by not in z:
                z[by] = nets.encode(given)
            parts += nets.predict(given, z[by])
        return parts

    def _here(self, given: Inputs) -> Inputs:
        pixels = (tensor.to(self.device) for tensor in given[:2])
        return Inputs(*pixels, *(tensor.to(self.device, torch.float32) for tensor in given[2:]))


class Fast:
    """One geometry; see `Together`."""

    def __init__(
        self,
        geometry: Geometry,
        device: str | torch.device = "cpu",
        precision: str = "float32",
        record: bool = True,
        compiled: bool = False,
    ) -> None:
        way = Way(precision, record, compiled)
        self._together = Together({geometry.name: geometry}, device, way)

    @property
    def recorded(self) -> bool:
        """Whether the latest shape is replayed."""
        return self._together.calls.recorded

    def predict(self, given: Inputs) -> Predicted:
        """Native costs, futures and goals of all candidates of all starts."""
        (found,) = self._together.predict(given).values()
        return found


def encoder_key(geometry: Geometry) -> Any:
    """Equal for geometries with the same `encode`, weights and buffers of it."""
    module: Any = geometry
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    own = {n: x.detach().float().cpu() for n, x in tensors.items() if n.startswith(ENCODING)}
    parts = [(n, own[n].shape, own[n].numpy().tobytes()) for n in sorted(own)]
    return (type(module).encode, geometry.image, *parts) if parts else id(geometry)


def check_inputs(given: Inputs, geometry: Geometry) -> None:
    """Refuse tensors of other shapes than the geometry takes."""
    px, stride = geometry.image, int(getattr(geometry, "stride", STRIDE))
    N, (*_, K, H, A) = len(given.frames), (0, 0, 0, *given.candidates.shape)
    history = (CONTEXT - 1) * stride
    shapes = (N, CONTEXT, px, px, 3), (N, px, px, 3), (N, CONTEXT + 1, 4), (N, history, A)
    for name, tensor, shape in zip(Inputs._fields, given, (*shapes, (N, K, H, A)), strict=True):
        if tuple(tensor.shape) != shape:
            raise DjepaError(f"{name} must be {shape}, got {tuple(tensor.shape)}.")
    if min(N, K, H) < 1 or H % stride or {given.frames.dtype, given.goal.dtype} != {torch.uint8}:
        raise DjepaError(f"Give uint8 frames, candidates, and whole blocks of {stride} controls.")


def _four(given: Inputs) -> Tensor:
    """Context frames and the goal's, (N, 4, image, image, 3)."""
    return torch.cat([given.frames, given.goal[:, None]], dim=1)
