"""A problem that driving readouts can learn, and that takes seconds."""

import torch
from torch import Tensor

from djepa.align.driving import DrivingEvidence, DrivingOutcomes

K = 8


def problem(
    N: int, seed: int, logs: str, useful: bool = True
) -> tuple[DrivingEvidence, DrivingOutcomes]:
    """Scenes whose quality is in the query (if useful); the native score is half noise."""
    random = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random)

    quality = draw(N, K).mul(0.2).add(0.6).clamp(0, 1)
    queries = 0.1 * draw(N, K, 256)
    if useful:
        queries[..., :64] += (quality - 0.6)[..., None]
    bad = quality < 0.4
    evidence = DrivingEvidence(
        queries=queries,
        logits=draw(N, K, 6),
        poses=draw(N, K, 8, 3),
        score=quality * 0.5 + 0.3 + 0.1 * draw(N, K),
        ids=torch.arange(K).repeat(N, 1),
        logs=tuple(f"{logs}{i % 4}" for i in range(N)),
    )
    return evidence, DrivingOutcomes(quality, bad, bad)
