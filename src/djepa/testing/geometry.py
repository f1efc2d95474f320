"""Conformance of a geometry: `check_geometry` tests each promise and names the first broken one."""

import torch
from torch import Tensor

from djepa.models.protocol import CONTEXT, STRIDE, Geometry
from djepa.testing.world import try_each

GEOMETRY_PROMISES = (  # each is a method of _Trial
    "it has every attribute",
    "latents have the promised shape",
    "futures and costs have the promised shape",
    "costs are finite float32",
    "it repeats itself",
    "a row does not depend on its batch",
    "the order of candidates changes nothing",
    "the goal itself costs least",
    "actions matter",
    "any number of candidates and blocks will do",
)
N, K, B = 3, 5, 5


def check_geometry(
    model: Geometry, actions: int = 2, seed: int = 0, tolerance: float = 1e-5, device: str = "cpu"
) -> tuple[str, ...]:
    """Try the promises of the `Geometry` protocol on random frames; the first broken one raises.

    Rows are compared to within `tolerance` times the spread of the values: kernels for other batch
    sizes may add up in another order.
    """
    trial = _Trial(model, actions, seed, tolerance, torch.device(device))
    return try_each(trial, GEOMETRY_PROMISES)


class _Trial:
    """One geometry under test, with random frames and controls."""

    def __init__(
        self, model: Geometry, actions: int, seed: int, tolerance: float, device: torch.device
    ) -> None:
        self.model, self.actions, self.tolerance, self.device = model, actions, tolerance, device
        self.stride = int(getattr(model, "stride", STRIDE))
        self.random = torch.Generator().manual_seed(seed)

    def uniform(self, *shape: int) -> Tensor:
        values = torch.empty(shape).uniform_(-1.0, 1.0, generator=self.random)
        return values.to(self.device)

    def it_has_every_attribute(self) -> None:
        for name in ("name", "image", "latent", "encode", "rollout", "native_cost"):
            assert hasattr(self.model, name), f"no attribute '{name}'"
        shape = (N, CONTEXT + 1, self.model.image, self.model.image, 3)
        pixels = torch.randint(0, 256, shape, generator=self.random, dtype=torch.uint8)
        self.frames, self.proprio = pixels.to(self.device), 256 + 200 * self.uniform(*shape[:2], 4)
        self.history = self.uniform(N, self.stride * (CONTEXT - 1), self.actions)
        self.candidates = self.uniform(N, K, B * self.stride, self.actions)

    def latents_have_the_promised_shape(self) -> None:
        z = self.model.encode(self.frames, self.proprio)
        expected = (N, CONTEXT + 1, self.model.latent)
        assert tuple(z.shape) == expected, f"encode gave {tuple(z.shape)} and not {expected}"
        self.context, self.goal = z[:, :CONTEXT], z[:, CONTEXT]

    def futures_and_costs_have_the_promised_shape(self) -> None:
        self.futures = self.rollout(slice(None), slice(None))
        self.cost = self.model.native_cost(self.futures, self.goal)
        expected = (N, K, B, self.model.latent)
        shape = tuple(self.futures.shape)
        assert shape == expected, f"rollout gave {shape} and not {expected}"
        assert tuple(self.cost.shape) == (N, K), f"native_cost gave {tuple(self.cost.shape)}"

    def it_repeats_itself(self) -> None:
        again = self.rollout(slice(None), slice(None))
        assert torch.equal(again, self.futures), "the same rollout twice gave other futures"
        z = self.model.encode(self.frames, self.proprio)
        assert torch.equal(z[:, CONTEXT], self.goal), "the same frames twice gave other latents"

    def a_row_does_not_depend_on_its_batch(self) -> None:
        for n in range(N):
            alone = self.model.encode(self.frames[n : n + 1], self.proprio[n : n + 1])
            self.close(alone[0, CONTEXT], self.goal[n], f"the latent of start {n} alone")
            for k in (0, K - 1):
                one = self.rollout(slice(n, n + 1), slice(k, k + 1))
                self.close(one[0, 0], self.futures[n, k], f"start {n}, candidate {k} alone")

    def the_order_of_candidates_changes_nothing(self) -> None:
        order = torch.randperm(K, generator=self.random)
        mixed = self.rollout(slice(None), order)
        self.close(mixed, self.futures[:, order], "futures of permuted candidates")
        cost = self.model.native_cost(mixed, self.goal)
        self.close(cost, self.cost[:, order], "costs of permuted candidates")

    def costs_are_finite_float32(self) -> None:
        assert self.cost.dtype == torch.float32, f"costs are {self.cost.dtype}"
        assert bool(self.cost.isfinite().all()), "a cost is not finite"

    def the_goal_itself_costs_least(self) -> None:
        there = self.goal[:, None, None].expand(N, 1, B, -1).contiguous()
        least = self.model.native_cost(there, self.goal)
        assert bool((least <= self.cost.min(1, keepdim=True).values).all()), (
            f"staying at the goal costs {least.max().item():.3g}, more than a candidate"
        )

    def actions_matter(self) -> None:
        spread = (self.futures[:, :1] - self.futures[:, 1:]).abs().max().item()
        room = self.tolerance * max(1.0, self.futures.abs().max().item())
        assert spread > room, "all candidates have the same future"

    def any_number_of_candidates_and_blocks_will_do(self) -> None:
        candidates = self.uniform(N, 2, 2 * self.stride, self.actions)
        shape = tuple(self.model.rollout(self.context, self.history, candidates).shape)
        expected = (N, 2, 2, self.model.latent)
        assert shape == expected, f"2 candidates of 2 blocks gave {shape} and not {expected}"

    def rollout(self, rows: slice, columns: slice | Tensor) -> Tensor:
        chosen = self.candidates[rows][:, columns]
        return self.model.rollout(self.context[rows], self.history[rows], chosen)

    def close(self, ours: Tensor, theirs: Tensor, what: str) -> None:
        gap = (ours.float() - theirs.float()).abs().max().item()
        room = self.tolerance * max(1.0, theirs.float().abs().max().item())
        assert gap <= room, f"{what} differs by {gap:.3g}"
