"""The native driving model: a small joint-embedding model of the scene from above.

    z = Encoder(raster)             latent of the scene
    u_k = max over 8 poses of Query(features under the car there, pose, ego state)   (K, 256)
    ẑ_k = z + Predictor(z, u_k)     latent of the scene 4 s on, seen from trajectory k
    q_k = u_k + W ẑ_k + b           the exposed query, which includes the predicted latent
    logits_k = Scorer(q_k);  score_k = sigmoid(last of six logits)           higher is better

The maximum is per coordinate; Query also reads the index of the pose. The scorer reads only q_k.

Legend: B scenes, K candidates, C channels, D = 256.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from djepa.artefacts.folder import Folder
from djepa.models.traffic_raster import BACK, CHANNELS, HALF, SIDE
from djepa.models.weights import DRIVING, TENSORS, fill, stored_arrays, write_native
from djepa.pools.driving import Vocabulary, read_vocabulary
from djepa.worlds.traffic.scene import FRONT, POSES, REAR

LATENT, PARTS = 256, 6  # NC, DAC, EP, TTC, C, PDMS: only the last is trained, as in Drive-JEPA
SIDEWAYS = 1.15  # m, half the width of the car
POINTS = (  # m along and across the car: its middle and corners, where features are read
    (1.461, 0.0),
    *((along, across) for along in (-REAR, FRONT) for across in (-SIDEWAYS, SIDEWAYS)),
)
MAP, WIDTHS = 64, (48, 96, 128)
VOCABULARY = "vocabulary.npz"


class Native(NamedTuple):
    """What a scorer exposes."""

    queries: Tensor  # (B, K, 256)
    logits: Tensor  # (B, K, 6)
    score: Tensor  # (B, K)
    latent: Tensor  # (B, D)
    predicted: Tensor  # (B, K, D)


@dataclass(frozen=True)
class Inputs:
    """A batch of scenes, as the model reads them."""

    rasters: Tensor  # (B, C, 64, 64) uint8
    ego: Tensor  # (B, 3) speed, acceleration, steering angle
    poses: Tensor  # (B, K, 8, 3)


class Block(nn.Module):
    """Half the size, then a residual convolution."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.down = nn.Conv2d(inputs, outputs, 3, 2, 1)
        self.norm, self.more = nn.GroupNorm(8, outputs), nn.Conv2d(outputs, outputs, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, S, S) -> (B, C', S/2, S/2)."""
        x = F.gelu(self.norm(self.down(x)))
        return x + F.gelu(self.more(x))


class TrafficModel(nn.Module):
    """Scene and trajectories in, queries, logits, scores and predicted latents out."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (len(CHANNELS), *WIDTHS)
        self.blocks = nn.ModuleList(Block(a, b) for a, b in pairwise(sizes))
        self.sides = nn.ModuleList(nn.Conv2d(size, MAP, 1) for size in sizes[1:])
        self.whole = nn.Sequential(
            nn.Flatten(), nn.Linear(sizes[-1] * 64, LATENT), nn.LayerNorm(LATENT)
        )
        self.project = nn.Linear(LATENT, LATENT)
        inputs = MAP * len(POINTS) + 5 + 3 + POSES
        self.query = nn.Sequential(
            nn.Linear(inputs, LATENT),
            nn.GELU(),
            nn.Linear(LATENT, LATENT),
            nn.GELU(),
            nn.Linear(LATENT, LATENT),
        )
        self.predict = nn.Sequential(
            nn.Linear(2 * LATENT, LATENT), nn.GELU(), nn.Linear(LATENT, LATENT)
        )
        self.shift = nn.Linear(LATENT, LATENT)
        self.scorer = nn.Sequential(nn.Linear(LATENT, 512), nn.GELU(), nn.Linear(512, PARTS))

    def encode(self, rasters: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, 64, 64) uint8 -> latents (B, D), features (B, 64, 32, 32)."""
        x = rasters.float() / 128 - 1
        features = x.new_zeros(1)
        for block, side in zip(self.blocks, self.sides, strict=True):
            x = block(x)
            more = F.interpolate(side(x), size=SIDE // 2, mode="nearest")
            features = features + more
        return self.project(self.whole(x)), features

    def forward(self, inputs: Inputs) -> Native:
        """A batch of scenes with K trajectories each."""
        latent, features = self.encode(inputs.rasters)
        poses = inputs.poses.float()
        B, K = poses.shape[:2]
        under = self._under(features, poses)  # (B, K, 8, 5 * 64)
        moved = torch.diff(F.pad(poses[..., :2], (0, 0, 1, 0)), dim=2)
        x, y, h = poses.unbind(-1)
        place = torch.stack([x / 30, y / 10, h.sin(), h.cos(), moved.norm(dim=-1) / 5], -1)
        ego = (inputs.ego.float() / poses.new_tensor([10.0, 2.0, 0.2]))[:, None, None]
        when = torch.eye(POSES, device=poses.device).expand(B, K, POSES, POSES)
        tokens = torch.cat([under, place, ego.expand(B, K, POSES, 3), when], -1)
        queries = self.query(tokens).amax(2)
        both = torch.cat([latent[:, None].expand(B, K, LATENT), queries], -1)
        predicted = latent[:, None] + self.predict(both)
        # Only this vector of 256 numbers is exposed, so it includes the predicted latent.
        queries = queries + self.shift(predicted)
        logits = self.scorer(queries)
        return Native(queries, logits, logits[..., -1].sigmoid(), latent, predicted)

    def _under(self, features: Tensor, poses: Tensor) -> Tensor:
        """Features at five points of the car at every pose, (B, K, 8, 5 * 64)."""
        h = poses[..., 2:]
        along, across = poses.new_tensor(POINTS).unbind(1)
        x = poses[..., :1] + along * h.cos() - across * h.sin()
        y = poses[..., 1:2] + along * h.sin() + across * h.cos()  # (B, K, 8, 5)
        grid = torch.stack([(x + BACK) / (SIDE / 2) - 1, (y + HALF) / (SIDE / 2) - 1], -1)
        flat = F.grid_sample(features, grid.flatten(2, 3), align_corners=False)  # (B, 64, K, 40)
        return flat.unflatten(3, (POSES, len(POINTS))).permute(0, 2, 3, 4, 1).flatten(3)


def save_native(
    folder: Path, model: TrafficModel, vocabulary: Vocabulary, card: dict[str, Any]
) -> None:
    """A model, the motions that its candidates come from, and a card that says how it was made."""
    write_native(folder, DRIVING, model, card, {VOCABULARY: vars(vocabulary)})


def load_native(stored: Folder) -> tuple[TrafficModel, Vocabulary]:
    """Load model and motions; a missing, altered or foreign file raises an error that names it."""
    tensors, arrays = stored.tensors(TENSORS), stored_arrays(stored, VOCABULARY)
    vocabulary, model = read_vocabulary(stored.path / VOCABULARY, arrays), TrafficModel()
    fill(model, tensors, stored.path / TENSORS)
    return model.eval(), vocabulary
