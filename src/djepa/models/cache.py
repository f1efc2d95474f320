"""Latents of every training episode, encoded once by the frozen encoder.

Legend: B windows, T frames of a window, E episodes, F cached frames of an episode, D latent.
"""

import copy

import torch
from torch import Tensor

from djepa.models.episodes import LENGTH, Episodes
from djepa.models.kinds import Model
from djepa.models.objectives import Draws, draw
from djepa.models.predict import encode_states
from djepa.models.protocol import STRIDE
from djepa.worlds.shapes import Shape

EPISODES = 4096  # encoded at a time


class Cache:
    """(E, F, D) in fp16, one phase of five per episode; grows as episodes come in."""

    def __init__(self, model: Model, shape: Shape, episodes: Episodes) -> None:
        self._encoder, self._shape, self._episodes = copy.deepcopy(model).eval(), shape, episodes
        self._device = model.action_mean.device
        frames, most = LENGTH // STRIDE, episodes.capacity
        width = STRIDE * model.config.actions
        self._latents = torch.empty(
            (most, frames, model.latent), dtype=torch.float16, device=self._device
        )
        self._blocks = torch.empty((most, frames - 1, width), device=self._device)
        self._known = 0
        self.extend()

    def __len__(self) -> int:
        return self._known

    @torch.no_grad()
    def extend(self) -> None:
        """Encode the episodes that have come since."""
        ready = self._episodes.refresh(least=self._episodes.validation + 1)
        gpu = self._device.type == "cuda"
        for begin in range(self._known, ready, EPISODES):
            rows = torch.arange(begin, min(begin + EPISODES, ready), device=self._device)[:, None]
            phase = rows % STRIDE
            at = phase + torch.arange(0, LENGTH - STRIDE + 1, STRIDE, device=self._device)
            taken = phase + torch.arange(LENGTH - STRIDE, device=self._device)
            with torch.autocast(self._device.type, torch.float16, enabled=gpu):
                states = self._episodes.states[rows, at]
                latents = encode_states(
                    self._encoder, self._shape, states, batch=8192 if gpu else 32
                )
            self._latents[rows[:, 0]] = latents.half()
            self._blocks[rows[:, 0]] = self._encoder.blocks(self._episodes.controls[rows, taken])
        self._known = ready

    def windows(
        self, B: int, T: int, random: torch.Generator, validation: bool = False
    ) -> tuple[Tensor, Tensor, Draws]:
        """Random windows of training or of validation episodes.

        Latents (B, T, D), blocks (B, T - 1, 10), draws.
        """

        def integers(low: int, high: int) -> Tensor:
            return torch.randint(low, high, (B, 1), device=self._device, generator=random)

        held = self._episodes.validation
        episode = integers(0, held) if validation else integers(held, self._known)
        at = integers(0, self._latents.shape[1] - T + 1) + torch.arange(T, device=self._device)
        draws = draw(B, T, self._encoder.config.width, random)
        return self._latents[episode, at].float(), self._blocks[episode, at[:, :-1]], draws
