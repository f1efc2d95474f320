"""Scores and their direction.

Shared code (ranks, gates, losses) reads costs, where lower is better. A score carries its direction
so that this code need not exist twice.
"""

from dataclasses import dataclass

from torch import Tensor

from djepa.evidence.ranks import best, check_pools


@dataclass(frozen=True)
class Score:
    """(N, K) values of N pools, and whether higher or lower is better."""

    values: Tensor
    higher_is_better: bool = False

    @property
    def cost(self) -> Tensor:
        """(N, K) values with the sign for which lower is better."""
        return -self.values if self.higher_is_better else self.values

    def winners(self, ids: Tensor) -> Tensor:
        """(N,) positions of the best candidates; ties go to the smaller ID."""
        check_pools(ids, score=self.values)
        return best(self.cost, ids)
