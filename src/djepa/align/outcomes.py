"""Outcomes, for fitting, calibration and evaluation alone. No deciding function takes them."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.evidence.blocks import Filled, in_blocks
from djepa.evidence.evidence import Evidence, to_tensor

MILLION = 10**6


def millionths(quality: Tensor) -> Tensor:
    """Quality in [0, 1] -> integers from 0 to 10⁶, whose sums are exact in any order."""
    return (MILLION * quality.double()).round().long()


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Execution results of the candidates of N starts."""

    identities: tuple[str, ...]  # of the starts, as in the evidence
    success: Tensor  # (N, K) bool
    observed: Tensor  # (N, K) bool: executed; what was not executed is not a failure
    cost: Tensor | None = None  # (N, K) task cost, where there is one

    @classmethod
    def from_bank(cls, bank: Bank) -> "Outcomes":
        """The outcomes of every start of a bank."""
        whole = Filled(len(bank))
        for part in bank.parts():  # one part at a time; its states are not kept
            shown = part.outcomes
            kept = {"success": shown.success, "observed": shown.observed, "cost": shown.cost}
            whole.add(**{name: torch.from_numpy(x.copy()) for name, x in kept.items()})
        return cls(bank.identities, **whole.arrays)

    @classmethod
    def from_arrays(
        cls, evidence: Evidence, success: Any, observed: Any = None, cost: Any = None
    ) -> "Outcomes":
        """Copy (N, K) outcomes of the starts of `evidence`; `success` is bool, or 0 and 1.

        `observed` marks executed candidates, by default all; `cost` is the task cost, finite where
        observed.
        """
        won = _truth("success", success)
        seen = torch.ones_like(won) if observed is None else _truth("observed", observed)
        paid = None if cost is None else to_tensor("cost", cost).double()
        found = cls(evidence.identities, *(x.to(evidence.ids.device) for x in (won, seen)))
        found = found if paid is None else replace(found, cost=paid.to(evidence.ids.device))
        found.check(evidence)
        return found

    @classmethod
    def of(cls, evidence: Evidence, given: "Outcomes | Any") -> "Outcomes":
        """Convert `given` (outcomes, or (N, K) successes), and check it against the evidence."""
        if not isinstance(given, Outcomes):
            return cls.from_arrays(evidence, given)
        given.check(evidence)
        return given

    def rows(self, chosen: Tensor) -> "Outcomes":
        """The outcomes of the chosen starts."""
        at = chosen.nonzero().flatten() if chosen.dtype == torch.bool else chosen
        names = tuple(self.identities[i] for i in at.tolist())
        cost = None if self.cost is None else self.cost[at]
        return Outcomes(names, self.success[at], self.observed[at], cost)

    def to(self, device: str | torch.device) -> "Outcomes":
        """A copy on another device."""
        cost = None if self.cost is None else self.cost.to(device)
        return Outcomes(self.identities, self.success.to(device), self.observed.to(device), cost)

    def columns(self, positions: Tensor) -> "Outcomes":
        """The outcomes of the candidates at (N, K') positions, as for evidence."""
        arrays = (self.success, self.observed, *(() if self.cost is None else (self.cost,)))
        return Outcomes(self.identities, *(x.gather(1, positions) for x in arrays))

    @property
    def quality(self) -> Tensor:
        """(N, K) quality 1 - cost of graded outcomes, whose costs lie in [0, 1]."""
        cost = self.cost
        if cost is None or ((cost < -1e-9) | (cost > 1 + 1e-9))[self.observed].any():
            raise DjepaError("Graded outcomes need costs between 0 and 1: cost is 1 - quality.")
        return (1 - cost).clamp(0, 1)

    @property
    def mixed(self) -> Tensor:
        """(N,) bool: starts with an observed success and an observed failure."""
        good, bad = self.success & self.observed, ~self.success & self.observed
        return good.any(1) & bad.any(1)

    def teaching(self) -> Tensor:
        """Positions of the mixed starts; raises if there is none to learn from."""
        rows = self.mixed.nonzero().flatten()
        if not len(rows):
            raise DjepaError(
                "Every fitting start has outcomes of one class only: there is nothing to learn. "
                "Collect more starts, or pools with both successes and failures."
            )
        return rows

    def check(self, evidence: Evidence) -> None:
        """Raise unless these outcomes belong to the starts and candidates of this evidence."""
        if self.identities != evidence.identities:
            raise DjepaError("Evidence and outcomes are not of the same starts in the same order.")
        for name, values in (("success", self.success), ("observed", self.observed)):
            if values.dtype != torch.bool or values.shape != evidence.ids.shape:
                raise DjepaError(
                    f"{name} must be true or false of shape {tuple(evidence.ids.shape)}, "
                    f"got {values.dtype} of {tuple(values.shape)}."
                )
        if self.cost is not None and (
            self.cost.shape != evidence.ids.shape
            or not in_blocks(_finite, self.cost, self.observed).all()
        ):
            raise DjepaError(
                f"cost must be of shape {tuple(evidence.ids.shape)}, finite where observed."
            )
        if not self.observed.any(1).all():
            raise DjepaError("A start without a single executed candidate teaches nothing.")


def _finite(cost: Tensor, observed: Tensor) -> Tensor:
    """(N,) bool: starts whose observed candidates all have a finite cost."""
    return (cost.isfinite() | ~observed).all(1)


def _truth(what: str, array: Any) -> Tensor:
    """Booleans, or integers that are all 0 or 1, as a bool tensor; nothing is rounded."""
    values = to_tensor(what, array)
    if values.dtype == torch.bool:
        return values
    if (
        values.is_floating_point()
        or values.is_complex()
        or not ((values == 0) | (values == 1)).all()
    ):
        raise DjepaError(
            f"{what} must be true or false, or 1 and 0 as integers, got {values.dtype}; "
            "make it of a threshold, such as cost < 0.5."
        )
    return values.bool()
