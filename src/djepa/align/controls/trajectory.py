"""A variational code of a candidate's trajectory, decoded into a change of the frozen futures.

    h_i = [z_0; ẑ_{i,1:B}; a_i]                    present latent, frozen futures, actions
    prior     p(u | h_i) = N(μ_p, σ_p²)            used at inference
    posterior q(u | h_i, z_{i,1:B}) = N(μ_q, σ_q²) sees the realised latents, in training only
    z̃_i = ẑ_i + Dec(h_i, u)                        the last layer of Dec is zero at the start

Legend: N starts, K candidates, B blocks of five controls, D latent, U width of the code, I of h.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from djepa.align.operator import draw_weights
from djepa.align.plastic import Patch, base_hash
from djepa.align.plastic_fit import Encoded
from djepa.errors import DjepaError
from djepa.models.lewm import LeWM

LOG_SCALE = (-6.0, 2.0)  # of σ_p and σ_q


class Gaussian(NamedTuple):
    """A diagonal Gaussian; mean and log scale are (..., U)."""

    mean: Tensor
    log_scale: Tensor

    def at(self, noise: Tensor) -> Tensor:
        """μ + σ ε."""
        return self.mean + self.log_scale.exp() * noise


def divergence(q: Gaussian, p: Gaussian) -> Tensor:
    """KL(q ‖ p) = Σ_U log σ_p/σ_q + (σ_q² + (μ_q - μ_p)²) / 2σ_p² - ½, (...)."""
    spread = (2 * (q.log_scale - p.log_scale)).exp()
    apart = (q.mean - p.mean).square() * (-2 * p.log_scale).exp()
    return (p.log_scale - q.log_scale + (spread + apart - 1) / 2).sum(-1)


class TrajectoryCode(nn.Module):
    """Prior, posterior and residual decoder: two layers each."""

    def __init__(self, inputs: int, shape: tuple[int, int], code: int, hidden: int) -> None:
        super().__init__()
        self.shape, self.code = shape, code  # (B, D), U
        out = shape[0] * shape[1]
        self.prior_net = _two_layers(inputs, hidden, 2 * code)
        self.posterior_net = _two_layers(inputs + out, hidden, 2 * code)
        self.decoder = _two_layers(inputs + code, hidden, out)
        self._zero()

    def initialise(self, random: torch.Generator) -> None:
        """Draw initial weights; the decoder's last layer is zero, so the residual is zero."""
        draw_weights(self, random)
        self._zero()

    def _zero(self) -> None:
        for parameter in self.decoder[-1].parameters():
            nn.init.zeros_(parameter)

    def prior(self, known: Tensor) -> Gaussian:
        """(..., I) what is known before execution -> p(u | h)."""
        return _gaussian(self.prior_net(known))

    def posterior(self, known: Tensor, realised: Tensor) -> Gaussian:
        """(..., I) and (..., B, D) realised latents -> q(u | h, z). Training only."""
        return _gaussian(self.posterior_net(torch.cat([known, realised.flatten(-2)], dim=-1)))

    def residual(self, known: Tensor, code: Tensor) -> Tensor:
        """(..., I), (..., U) -> (..., B, D) the change of the futures."""
        change: Tensor = self.decoder(torch.cat([known, code], dim=-1))
        return change.unflatten(-1, self.shape)


def known_of(model: LeWM, starts: Encoded, frozen: Tensor) -> Tensor:
    """Inputs h (N, K, I): present latent, frozen futures (N, K, B, D), standardised actions."""
    present = starts.context[:, -1:].expand(-1, frozen.shape[1], -1)
    return torch.cat([present, frozen.flatten(2), model.blocks(starts.actions).flatten(2)], dim=-1)


@torch.no_grad()
def each_start(
    model: LeWM, starts: Encoded, frozen: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Known (K, I), frozen futures (K, B, D), IDs and goal of one start after the other, by ID.

    One start at a time and sorted by ID: neither the other starts nor the order of candidates can
    change how sums are rounded.
    """
    for n in range(len(starts)):
        row = torch.tensor([n], device=starts.ids.device)
        known = known_of(model, starts.rows(row), frozen[row])[0]
        by_id = starts.ids[n].argsort()
        yield known[by_id], frozen[n, by_id], starts.ids[n, by_id], starts.goal[n]


def to_given_order(parts: list[Tensor], ids: Tensor) -> Tensor:
    """Stack N parts sorted by ID into (N, K, ...), in the original order of the candidates."""
    places = ids.argsort(dim=1).argsort(dim=1)
    return torch.stack([part[at] for part, at in zip(parts, places, strict=True)])


@torch.no_grad()
def prior_futures(model: LeWM, code: TrajectoryCode, starts: Encoded, frozen: Tensor) -> Tensor:
    """z̃ (N, K, B, D) with u = μ_p, used by Var-JEPA and conflict-safe adaptation to decide."""
    parts = [
        base + code.residual(known, code.prior(known).mean)
        for known, base, _, _ in each_start(model, starts, frozen)
    ]
    return to_given_order(parts, starts.ids)


def code_of(model: LeWM, patch: Patch) -> TrajectoryCode:
    """The trajectory code stored in a patch; raises if it belongs to other weights."""
    if (model.name, own := base_hash(model)) != (patch.geometry, patch.base):
        raise DjepaError(
            f"The residual belongs to {patch.geometry} weights {patch.base[:12]}, "
            f"not to {model.name} weights {own[:12]}."
        )
    try:
        config, (blocks, latent) = patch.card["config"], patch.card["shape"]
        sizes = patch.card["inputs"], (blocks, latent), config["code"], config["hidden"]
    except KeyError as missing:
        raise DjepaError(f"This patch holds no trajectory code: it has no {missing}.") from None
    code = TrajectoryCode(*sizes)
    try:
        code.load_state_dict(patch.tensors)
    except RuntimeError as error:
        raise DjepaError(f"The residual does not fit its card ({error}).") from None
    return code.to(next(model.parameters()).device).eval().requires_grad_(False)


def _two_layers(inputs: int, hidden: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, out))


def _gaussian(both: Tensor) -> Gaussian:
    mean, log_scale = both.chunk(2, dim=-1)
    return Gaussian(mean, log_scale.clamp(*LOG_SCALE))
