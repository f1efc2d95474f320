"""Models small enough for tests: 28 px, one layer, 16 numbers of latent; and their episodes."""

from dataclasses import replace

from djepa.models.episodes import Shard, simulate_all
from djepa.models.lewm import LeWMConfig
from djepa.models.patches import PatchConfig
from djepa.rollout.engine import LocalEngine

TINY = LeWMConfig(
    image=28,
    patch=14,
    width=24,
    depth=1,
    heads=3,
    hidden=48,
    latent=16,
    projector=32,
    predictor_depth=1,
    predictor_heads=2,
    predictor_head=8,
    predictor_hidden=32,
    dropout=0.0,
)
TINY_DEEP = replace(TINY, predictor_depth=2, dropout=0.1)  # with layers to freeze, and to not drop
TINY_PATCHES = PatchConfig(
    image=56,
    width=6,
    depth=1,
    heads=3,
    hidden=12,
    predictor_width=16,
    predictor_depth=1,
    predictor_heads=2,
    predictor_head=8,
    predictor_hidden=16,
)


def simulate(shards: list[Shard]) -> None:
    """Write the shards that are not there yet, in this process."""
    simulate_all(shards, LocalEngine(1), lambda done, total: None)
