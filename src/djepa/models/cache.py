"""Latents of every training episode, encoded once by the frozen encoder.

Legend: B windows, T frames of a window, E episodes, F cached frames of an episode, D latent.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from djepa.models.episodes import FRAMES, Episodes
from djepa.models.kinds import Trainable
from djepa.models.objectives import Draws, draw
from djepa.models.parallel import rows
from djepa.models.predict import encode_states
from djepa.tasks.task import Scene


class Cache:
    """(E, F, D) in fp16, one phase of a stride per episode; grows as episodes come in.

    Episode e is one of scene e modulo their number.
    """

    def __init__(self, model: Trainable, scenes: Sequence[Scene], episodes: Episodes) -> None:
        self._encoder, self._scenes, self._episodes = copy.deepcopy(model).eval(), scenes, episodes
        self._device = model.action_mean.device
        frames, most = FRAMES, episodes.capacity
        width = model.stride * model.config.actions
        self._latents = torch.empty(
            (most, frames, model.latent), dtype=torch.float16, device=self._device
        )
        self._blocks = torch.empty((most, frames - 1, width), device=self._device)
        self._known = 0

    def __len__(self) -> int:
        return self._known

    @torch.no_grad()
    def extend(self, episodes: int) -> None:
        """Encode up to `episodes` episodes, shard by shard, so that batches are always the same."""
        self._episodes.take(episodes)
        shard, n = self._episodes.validation, len(self._scenes)
        while self._known < episodes:
            for i, scene in enumerate(self._scenes):
                rows = torch.arange(self._known + i, self._known + shard, n, device=self._device)
                self._take(rows[:, None], scene)
            self._known += shard

    def _take(self, rows: Tensor, scene: Scene) -> None:
        """(n, 1) episodes of one scene."""
        gpu, stride = self._device.type == "cuda", self._encoder.stride
        phase, L = rows % stride, FRAMES * stride
        at = phase + torch.arange(0, L - stride + 1, stride, device=self._device)
        taken = phase + torch.arange(L - stride, device=self._device)
        with torch.autocast(self._device.type, torch.float16, enabled=gpu):
            states = self._episodes.states[rows, at]
            latents = encode_states(self._encoder, scene, states, batch=8192 if gpu else 32)
        self._latents[rows[:, 0]] = latents.half()
        self._blocks[rows[:, 0]] = self._encoder.blocks(self._episodes.controls[rows, taken])

    def windows(
        self,
        B: int,
        T: int,
        random: torch.Generator,
        noise: float = 0.0,
        validation: bool = False,
    ) -> tuple[Tensor, Tensor, Draws]:
        """Random windows of training or validation episodes; each process gets its own rows.

        Latents (B, T, D), blocks (B, T - 1, stride A), draws.
        """

        def integers(low: int, high: int) -> Tensor:
            return torch.randint(low, high, (B, 1), device=self._device, generator=random)

        first = self._episodes.validation
        episode = integers(0, first) if validation else integers(first, self._known)
        at = integers(0, self._latents.shape[1] - T + 1) + torch.arange(T, device=self._device)
        draws = draw(B, T, self._latents.shape[2], random, noise=noise).rows(rows())
        episode, at = episode[rows()], at[rows()]
        return self._latents[episode, at].float(), self._blocks[episode, at[:, :-1]], draws
