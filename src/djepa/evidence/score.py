"""Scores and their direction.

Shared code (ranks, gates, losses) reads costs: lower is better. Which way a score points is a
property of the score, so that no rule is written twice.
"""

from dataclasses import dataclass

from torch import Tensor

from djepa.evidence.ranks import best, check_pools


@dataclass(frozen=True)
class Score:
    """(N, K) numbers of N pools, and which end of them is good."""

    values: Tensor
    higher_is_better: bool = False

    @property
    def cost(self) -> Tensor:
        """(N, K), lower is better."""
        return -self.values if self.higher_is_better else self.values

    def winners(self, ids: Tensor) -> Tensor:
        """(N,) positions; ties go to the smaller ID."""
        check_pools(ids, score=self.values)
        return best(self.cost, ids)
