"""Outcomes, for fitting, calibration and evaluation alone. No deciding function takes them.

Legend: N starts, K candidates.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence


@dataclass(frozen=True, eq=False)
class Outcomes:
    """What execution showed of the candidates of N starts."""

    identities: tuple[str, ...]  # of the starts, as in the evidence
    success: Tensor  # (N, K) bool
    observed: Tensor  # (N, K) bool: executed; what was not executed is not a failure
    cost: Tensor | None = None  # (N, K) task cost, where there is one

    @classmethod
    def from_bank(cls, bank: Bank) -> "Outcomes":
        """Of every start of a bank."""
        outcomes = bank.outcomes
        identities = tuple(bytes(row).hex() for row in bank.decisions.identities)
        arrays = (np.ascontiguousarray(x) for x in (outcomes.success, outcomes.observed))
        success, observed = (torch.from_numpy(x) for x in arrays)
        return cls(identities, success, observed, torch.from_numpy(outcomes.cost.astype(float)))

    @classmethod
    def from_arrays(
        cls, evidence: Evidence, success: Any, observed: Any = None, cost: Any = None
    ) -> "Outcomes":
        """(N, K) outcomes of the starts of some evidence; `observed` says which were executed."""
        won = torch.as_tensor(np.asarray(success))
        seen = torch.ones_like(won) if observed is None else torch.as_tensor(np.asarray(observed))
        paid = None if cost is None else torch.as_tensor(np.asarray(cost, dtype=float))
        found = cls(evidence.identities, won, seen, paid)
        found.check(evidence)
        return found

    def rows(self, chosen: Tensor) -> "Outcomes":
        """Of some starts."""
        at = chosen.nonzero().flatten() if chosen.dtype == torch.bool else chosen
        names = tuple(self.identities[i] for i in at.tolist())
        cost = None if self.cost is None else self.cost[at]
        return Outcomes(names, self.success[at], self.observed[at], cost)

    def to(self, device: str | torch.device) -> "Outcomes":
        """The same on another device."""
        cost = None if self.cost is None else self.cost.to(device)
        return Outcomes(self.identities, self.success.to(device), self.observed.to(device), cost)

    def columns(self, positions: Tensor) -> "Outcomes":
        """Of some candidates: (N, K') positions, as for evidence."""
        arrays = (self.success, self.observed, *(() if self.cost is None else (self.cost,)))
        return Outcomes(self.identities, *(x.gather(1, positions) for x in arrays))

    @property
    def mixed(self) -> Tensor:
        """(N,) bool: starts with an observed success and an observed failure."""
        good, bad = self.success & self.observed, ~self.success & self.observed
        return good.any(1) & bad.any(1)

    def check(self, evidence: Evidence) -> None:
        """Refuse outcomes that are not those of this evidence."""
        if self.identities != evidence.identities:
            raise DjepaError("Evidence and outcomes are not of the same starts in the same order.")
        for name, values in (("success", self.success), ("observed", self.observed)):
            if values.dtype != torch.bool or values.shape != evidence.ids.shape:
                raise DjepaError(
                    f"{name} must be true or false of shape {tuple(evidence.ids.shape)}, "
                    f"got {values.dtype} of {tuple(values.shape)}."
                )
        if self.cost is not None and (
            self.cost.shape != evidence.ids.shape or not self.cost[self.observed].isfinite().all()
        ):
            raise DjepaError(
                f"cost must be of shape {tuple(evidence.ids.shape)}, finite where observed."
            )
        if not self.observed.any(1).all():
            raise DjepaError("A start without a single executed candidate teaches nothing.")
