"""Training losses of the predictive models, one function per published term.

Legend: B windows, T frames of a window, D latent.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from djepa.models.lewm import LeWM
from djepa.models.parallel import count, everyones, mean_of_all
from djepa.models.parallel import rows as own_rows
from djepa.models.patches import PatchGeometry
from djepa.models.protocol import CONTEXT
from djepa.models.tdjepa import TDJEPA

SIGREG_WEIGHT = 0.09
ROLLOUT_WEIGHT = 0.5
KNOTS, DIRECTIONS, SPAN = 17, 1024, 3.0
Model = LeWM | PatchGeometry


class Draws(NamedTuple):
    """The random numbers of one step, drawn outside so that the step itself can be recorded."""

    directions: Tensor  # (D, 1024) normal: where SIGReg looks; (0, 1024) where it does not
    pairs: Tensor  # (3, B) int: first frame, gap to the second, frame of the foreign window
    noise: Tensor  # (B, T, D) added to latents that the predictor reads; (B, 0, D) for none

    def rows(self, own: slice) -> "Draws":
        """Those of some windows."""
        return Draws(self.directions, self.pairs[:, own], self.noise[own])

    def disturb(self, latents: Tensor, first: int = 0) -> Tensor:
        """Latents (B, t, D) of frames `first`, ... as the predictor reads them."""
        if not self.noise.shape[1]:
            return latents
        return latents + self.noise[:, first : first + latents.shape[1]]


def draw(
    B: int, T: int, D: int, generator: torch.Generator, sigreg: bool = False, noise: float = 0.0
) -> Draws:
    """Draws for B windows of T frames: SIGReg's directions and noise of that spread if wanted."""
    device = generator.device

    def integers(low: int, high: int) -> Tensor:
        return torch.randint(low, high, (B,), device=device, generator=generator)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, device=device, generator=generator)

    pairs = torch.stack([integers(0, T - 1), integers(1, T), integers(0, T)])
    directions = normal(D if sigreg else 0, DIRECTIONS)
    return Draws(directions, pairs, noise * normal(B, T if noise else 0, D))


def sigreg(latents: Tensor, directions: Tensor) -> Tensor:
    """Distance of the latents (B, T, D) from a standard normal, seen along random directions.

    Per frame and direction: B times the integral over t in [0, 3], doubled by symmetry and weighted
    by exp(-t²/2), of |mean exp(i t x) - exp(-t²/2)|²; then the mean over directions and frames.
    """
    device = latents.device
    x = latents.float() @ F.normalize(directions, dim=0)  # (B, T, directions)
    t = torch.linspace(0.0, SPAN, KNOTS, device=device)
    normal = torch.exp(-0.5 * t.square())
    weight = torch.full((KNOTS,), 2 * SPAN / (KNOTS - 1), device=device)
    weight[:1].mul_(0.5)  # in place on the device: assigning a number would copy it there
    weight[-1:].mul_(0.5)
    angles = x[..., None] * t  # (B, T, directions, knots)
    real, imaginary = mean_of_all(angles.cos().mean(0)), mean_of_all(angles.sin().mean(0))
    gap = (real - normal).square() + imaginary.square()
    return (gap @ (weight * normal)).mean() * len(latents) * count()


def one_step(model: LeWM, latents: Tensor, blocks: Tensor, draws: Draws, detach: bool) -> Tensor:
    """Mean squared error of the next latent at the first three frames of a window."""
    predicted = model.predict(draws.disturb(latents[:, :CONTEXT]), blocks[:, :CONTEXT])
    target = latents[:, 1 : CONTEXT + 1]
    return F.mse_loss(predicted.float(), (target.detach() if detach else target).float())


def open_loop(model: Model, latents: Tensor, blocks: Tensor, draws: Draws) -> Tensor:
    """Mean squared error of all later latents, predicted from the first three alone.

    Gradients flow through the predictions that are fed back.
    """
    futures = model.unroll(latents[:, :CONTEXT], blocks, draws.noise[:, CONTEXT:])
    target = latents[:, CONTEXT:].detach()
    if isinstance(model, PatchGeometry):
        return patch_error(model, futures, target)
    return F.mse_loss(futures.float(), target.float())


def temporal_distance(model: TDJEPA, latents: Tensor, pairs: Tensor) -> Tensor:
    """Fit d to the number of blocks between two frames; d ≥ T - 1 to frames of other episodes."""
    B, T, _ = latents.shape
    rows = torch.arange(B, device=latents.device)
    first, gap, other = pairs
    last = (first + gap).clamp(max=T - 1)
    source, target = latents[rows, first].float(), latents[rows, last].float()
    fit = F.smooth_l1_loss(model.distance(source, target), (last - first).float())
    foreign = everyones(latents).roll(1, dims=0)[own_rows()][rows, other].float()
    return fit + F.relu(T - 1 - model.distance(source, foreign)).mean()


def patch_error(model: PatchGeometry, predicted: Tensor, target: Tensor) -> Tensor:
    """Mean squared error of the patches + that of proprioception, (..., D) each."""
    seen, felt = model.split((predicted.float() - target.float()).square())
    return seen.mean() + felt.mean()


def dinowm_loss(model: Model, latents: Tensor, blocks: Tensor, draws: Draws, joint: bool) -> Tensor:
    """DINO-WM: one step ahead of every frame of a window but the last."""
    assert isinstance(model, PatchGeometry)
    return patch_error(model, model.predict(draws.disturb(latents[:, :-1]), blocks), latents[:, 1:])


def jepawm_loss(model: Model, latents: Tensor, blocks: Tensor, draws: Draws, joint: bool) -> Tensor:
    """JEPA-WM: one step ahead of three frames, then each further frame from the prediction before
    it, through which no gradient flows; all terms weigh the same.
    """
    assert isinstance(model, PatchGeometry)
    ahead, past = model.advance(latents[:, :CONTEXT], blocks[:, :CONTEXT])
    loss = patch_error(model, ahead, latents[:, 1 : CONTEXT + 1])
    now, last = ahead[:, -1:], latents.shape[1] - 1
    for frame in range(CONTEXT, last):
        read = draws.disturb(now.detach(), frame)
        now, past = model.advance(read, blocks[:, frame : frame + 1], frame, past)
        loss = loss + patch_error(model, now, latents[:, frame + 1 : frame + 2])
    return loss / (last - CONTEXT + 1)


def lewm_loss(model: Model, latents: Tensor, blocks: Tensor, draws: Draws, joint: bool) -> Tensor:
    """LeWM: one step, targets not detached, + 0.09 SIGReg. A frozen encoder has only the step."""
    assert isinstance(model, LeWM)
    loss = one_step(model, latents, blocks, draws, detach=False)
    return loss + SIGREG_WEIGHT * sigreg(latents, draws.directions) if joint else loss


def tdjepa_loss(model: Model, latents: Tensor, blocks: Tensor, draws: Draws, joint: bool) -> Tensor:
    """TD-JEPA: one step (detached) + 0.5 open loop + temporal distance + 0.09 SIGReg."""
    assert isinstance(model, TDJEPA)
    loss = one_step(model, latents, blocks, draws, detach=True)
    loss = loss + ROLLOUT_WEIGHT * open_loop(model, latents, blocks, draws)
    loss = loss + temporal_distance(model, latents, draws.pairs)
    return loss + SIGREG_WEIGHT * sigreg(latents, draws.directions) if joint else loss
