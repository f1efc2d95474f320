"""Batches of the first phase: states of episodes, from which frames are drawn inside the step.

Legend: B windows or frames of a batch, T frames of a window, S numbers in a state, A action width.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from djepa.models.distil import draw_views
from djepa.models.episodes import Episodes, length
from djepa.models.kinds import Trainable
from djepa.models.objectives import draw
from djepa.models.parallel import check_batch, rows
from djepa.models.patches import PatchGeometry
from djepa.seeds import seed_for
from djepa.tasks.task import Scene

SOME = 1024  # episodes for the statistics of features, controls and proprioception


class Batches:
    """Batches of size B; batch i depends only on the seed, i and the number of loaded episodes."""

    def __init__(self, scenes: Sequence[Scene], episodes: Episodes, B: int, seed: int) -> None:
        self.scenes, self.episodes, self.seed = scenes, episodes, seed
        self.size = B - B % len(scenes)  # every batch has as many of each
        check_batch(self.size, len(scenes))
        self.device = episodes.device
        self._length = length(scenes[0].world)
        self._random = torch.Generator(self.device)

    def windows(self, i: int, model: Trainable, T: int, noise: float) -> tuple[Tensor, ...]:
        """Random windows: states (B, T, S) a stride apart, blocks (B, T - 1, stride A), draws.

        Here and below, each of several processes gets its own rows.
        """
        self._random.manual_seed(seed_for("window", self.seed, i))
        span = model.stride * (T - 1)
        episode, first = self.training(), self._integers(0, self._length - span + 1)
        episode, first = episode[rows()], first[rows()]
        at = first + torch.arange(0, span + 1, model.stride, device=self.device)
        taken = first + torch.arange(span, device=self.device)
        blocks = model.blocks(self.episodes.controls[episode, taken])
        draws = draw(self.size, T, model.latent, self._random, sigreg=True, noise=noise)
        return self.episodes.states[episode, at], blocks, *draws.rows(rows())

    def views(self, i: int, patches: int) -> tuple[Tensor, ...]:
        """Random states (B, S), and the random numbers and masks of `draw_views`."""
        self._random.manual_seed(seed_for("distil", self.seed, i))
        episode, at = self.training(), self._integers(0, self._length + 1)
        numbers, masked = draw_views(self.size, patches, self._random)
        own = masked.view(-1, self.size, patches)[:, rows()].flatten(0, 1)
        return self.episodes.states[episode[rows()], at[rows()]][:, 0], numbers[:, rows()], own

    def training(self) -> Tensor:
        """(B, 1) random training episodes: of the first scene, then of the second, ..."""
        n = len(self.scenes)
        some = self._integers(self.episodes.validation // n, self.episodes.ready // n)
        which = torch.arange(n, device=self.device).repeat_interleave(self.size // n)
        return n * some + which[:, None]

    def frames(self, states: Tensor, image: int) -> Tensor:
        """States (B, ..., S) of episodes in the order of `training` -> frames."""
        parts = states.chunk(len(self.scenes))
        drawn = [s.observe(part, image)[0] for s, part in zip(self.scenes, parts, strict=True)]
        return torch.cat(drawn) if len(drawn) > 1 else drawn[0]

    def standardise(self, model: Trainable) -> None:
        """Means and spreads of controls, and of proprioception where the model takes it."""
        controls = self.episodes.controls.flatten(0, 1)
        model.action_mean.copy_(controls.mean(0))
        model.action_std.copy_(controls.std(0))
        if isinstance(model, PatchGeometry):
            some = self.episodes.states[:SOME].flatten(0, 1)
            body = torch.cat([self.scenes[0].observe(part, 16)[1] for part in some.split(4096)])
            model.proprio_mean.copy_(body.mean(0))
            model.proprio_std.copy_(body.std(0).clamp(min=1e-6))  # without proprioception it is 0

    @torch.no_grad()
    def standardise_features(self, model: PatchGeometry) -> None:
        """Means and spreads of the features of the frozen encoder."""
        n = len(self.scenes)
        some = [self.episodes.states[i:SOME:n, self._length // 2] for i in range(n)]
        features = model.patch_features(self.frames(torch.cat(some), model.image)).flatten(0, 1)
        model.feature_mean.copy_(features.mean(0))
        model.feature_std.copy_(features.std(0))

    def _integers(self, low: int, high: int) -> Tensor:
        """(B, 1) random integers from the generator of this batch."""
        return torch.randint(low, high, (self.size, 1), device=self.device, generator=self._random)
