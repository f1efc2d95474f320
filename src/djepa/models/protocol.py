"""The interface of a predictive model, used by everything that compares its futures."""

from typing import Protocol, runtime_checkable

from torch import Tensor

STRIDE = 5  # controls per block, and between two frames, unless a world has another
CONTEXT = 3  # frames a decision sees
HISTORY = STRIDE * (CONTEXT - 1)  # controls between the first and the last of them


@runtime_checkable
class Geometry(Protocol):
    """One model's latent space; `djepa.testing.check_geometry` tests an implementation.

    All tensors are on one device; a row never depends on the other rows of its batch.
    """

    name: str

    @property
    def image(self) -> int:
        """Side of a frame in pixels."""

    @property
    def latent(self) -> int:
        """D."""

    def encode(self, frames: Tensor, proprio: Tensor) -> Tensor:
        """uint8 frames (..., image, image, 3) and pusher x y vx vy (..., 4) -> (..., D)."""

    def rollout(self, context: Tensor, history: Tensor, candidates: Tensor) -> Tensor:
        """Futures of all candidates of all starts.

        (N, 3, D) context latents five controls apart, (N, 10, A) controls between them,
        (N, K, H, A) candidate controls -> (N, K, B, D), one latent per block of five controls.
        """

    def native_cost(self, futures: Tensor, goal: Tensor) -> Tensor:
        """(N, K, B, D) futures, (N, D) goals -> (N, K) float32 planning cost, lower is better."""
