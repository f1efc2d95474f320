"""The last population of any sampling search that calls callbacks, kept for `djepa audit`.

Legend: N environments, S samples, T steps of a plan, a width of a step.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from djepa.errors import DjepaError


class Recorder:
    """A callback that keeps the last population of every solve: candidates and costs."""

    output_key = name = "djepa"

    def __init__(self) -> None:
        self.history: list[Any] = []  # stays empty: the arrays are too large for it
        self.solves: list[tuple[Tensor, Tensor]] = []
        self.reset()

    def reset(self) -> None:
        """Clear the populations before a solve."""
        self._done: list[tuple[Tensor, Tensor]] = []
        self._now: tuple[Tensor, Tensor] | None = None

    def start_batch(self) -> None:
        """Prepare for a batch of environments."""
        self._done += [self._now] if self._now is not None else []
        self._now = None

    def __call__(self, **state: Any) -> None:
        """Keep the population of a step; called after each step."""
        self._now = state["candidates"].detach().clone(), state["costs"].detach().clone()

    def end_solve(self) -> None:
        """Join the batches of a solve; called at its end."""
        self.start_batch()
        parts = zip(*self._done, strict=True)
        self.solves.append(tuple(torch.cat(part).cpu() for part in parts))  # type: ignore[arg-type]

    @property
    def last(self) -> tuple[Tensor, Tensor]:
        """(N, S, T, a) candidates and (N, S) costs of the latest solve."""
        if not self.solves:
            raise DjepaError("No population was recorded. MPPI calls no callbacks: use a CEM.")
        return self.solves[-1]

    def save(self, path: str | Path, success: Any) -> None:
        """Write the input of `djepa audit`; `success` (solves · N, S) is from execution."""
        self.last  # noqa: B018
        costs = torch.cat([costs for _, costs in self.solves]).double().numpy()
        won = np.asarray(success)
        if won.shape != costs.shape:
            raise DjepaError(f"success must be {costs.shape}, got {won.shape}.")
        ids = np.tile(np.arange(costs.shape[1]), (len(costs), 1))
        np.savez(path, ids=ids, costs=costs, success=won.astype(bool))
