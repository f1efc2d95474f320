"""A small action-conditioned model of camera frames with the interface of V-JEPA 2-AC.

    tokens = model.tokens(frames)                    (B, I, I, 3) pixels -> (B, P, W), layer-normed
    tokens = model.predict(tokens, actions, poses)   actions and poses (B, 7) -> the next tokens
    poses  = next_pose(poses, actions)

A pose is the tool's x, y, z in m, three Euler angles (fixed axes x, y, z) and how far the gripper
is closed, 0 to 1; an action is a change of it. The native cost is the mean L1 distance of the last
predicted tokens and the goal's.

The encoder is frozen, as V-JEPA 2's is, and linear: the principal components of overlapping patches
of training frames. Only the predictor is trained. It is a convolutional network whose inputs
include the tool's present and next position in the frame, by the camera's projection.

A latent is the flat tokens of a frame, then the pose: D = P W + 7.

Legend: N starts, K candidates, H controls, B rows, P tokens of a frame, W width of a token.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from djepa.errors import DjepaError
from djepa.worlds.arms.table import ACTIONS, CLOSE, SMALL, STEP

POSE = 7
EPS = 0.1  # in the norm of a token, so that empty parts of the table are not amplified
GRIP = 0.02  # weight in m of a full gripper stroke in the error of a pose
BUMPS, MAPS = (0.6, 1.5), 4  # widths in cells; maps that say where the tool is
POOLED = 4  # tokens along a side of a summary


@dataclass(frozen=True)
class ACConfig:
    """Sizes."""

    image: int = 64
    patch: int = 16  # pixels of a token's window; windows are half as far apart
    width: int = 32  # of a token
    hidden: int = 40  # of the predictor
    depth: int = 3
    actions: int = ACTIONS
    stride: int = 1

    @property
    def grid(self) -> int:
        """Tokens along a side."""
        return 2 * self.image // self.patch


SIZES = {"small": ACConfig()}


class Block(nn.Module):
    """Two convolutions, the first scaled and shifted by the condition."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.film = nn.Linear(width, 2 * width)
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """(B, C, g, g), (B, C) -> (B, C, g, g)."""
        scale, shift = self.film(condition)[:, :, None, None].chunk(2, dim=1)
        return x + self.second(F.gelu(self.first(x) * (1 + scale) + shift))


class ACGeometry(nn.Module, ABC):
    """A `Geometry` made of `tokens` and `predict`: V-JEPA 2-AC's two functions."""

    name: str
    image: int
    grid: int  # tokens along a side
    width: int  # W
    chunk: int
    stride = 1

    @abstractmethod
    def tokens(self, frames: Tensor) -> Tensor:
        """uint8 frames (B, I, I, 3) -> (B, P, W)."""

    @abstractmethod
    def predict(self, tokens: Tensor, actions: Tensor, poses: Tensor) -> Tensor:
        """(B, P, W), (B, 7), (B, 7) -> (B, P, W), the tokens after the action."""

    @property
    def latent(self) -> int:
        """D."""
        return self.grid**2 * self.width + POSE

    @torch.inference_mode()
    def encode(self, frames: Tensor, proprio: Tensor) -> Tensor:
        """Frames (..., I, I, 3) and poses (..., 7) -> latents (..., D)."""
        if proprio.shape[-1] != POSE:
            raise DjepaError(
                f"{self.name} reads poses of {POSE} numbers, as the world 'arm' gives them, not of "
                f"{proprio.shape[-1]}."
            )
        tokens = self.tokens(frames.flatten(0, -4)).flatten(1)
        latents = torch.cat([tokens, proprio.float().reshape(-1, POSE)], dim=1)
        return latents.view(*frames.shape[:-3], -1)

    @torch.inference_mode()
    def rollout(self, context: Tensor, history: Tensor, candidates: Tensor) -> Tensor:
        """Futures (N, K, H, D) from the last context frame, at most `chunk` candidates at once."""
        N, K, H, _ = candidates.shape
        moves = to_moves(candidates).flatten(0, 1)
        futures = context.new_empty(N * K, H, self.latent)
        for begin in range(0, N * K, self.chunk):
            rows = torch.arange(begin, min(begin + self.chunk, N * K), device=context.device)
            tokens, pose = self.split(context[rows // K, -1])
            for h in range(H):
                tokens = self.predict(tokens, moves[rows, h], pose)
                pose = next_pose(pose, moves[rows, h])
                futures[rows, h] = torch.cat([tokens.flatten(1), pose], dim=1)
        return futures.unflatten(0, (N, K))

    def split(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        """(..., D) -> tokens (..., P, W), poses (..., 7)."""
        tokens, pose = latents.split([self.latent - POSE, POSE], dim=-1)
        return tokens.unflatten(-1, (-1, self.width)), pose

    def parts(self, futures: Tensor, goal: Tensor) -> dict[str, Tensor]:
        """Terminal L1 errors of the tokens and of the pose, (N, K) float32 each."""
        away = (futures[:, :, -1].float() - goal[:, None].float()).abs()
        place, grip = away[..., -POSE : 3 - POSE], away[..., -1]
        return {"visual": away[..., :-POSE].mean(-1), "proprio": place.sum(-1) + GRIP * grip}

    def native_cost(self, futures: Tensor, goal: Tensor) -> Tensor:
        """(N, K, H, D), (N, D) -> (N, K): mean L1 of the last tokens, as V-JEPA 2-AC plans."""
        return self.parts(futures, goal)["visual"]

    def summary(self, latents: Tensor) -> Tensor:
        """(..., D) -> (..., 16 W): means of the tokens of each sixteenth of the frame."""
        g = self.grid
        grid = self.split(latents)[0].mT.unflatten(-1, (g, g))
        pooled = F.adaptive_avg_pool2d(grid.flatten(0, -4), POOLED)
        return pooled.reshape(*latents.shape[:-1], -1)


class ActionConditioned(ACGeometry):
    """The small model: a frozen linear encoder and a convolutional predictor."""

    name = "ac"

    def __init__(self, config: ACConfig, chunk: int = 64) -> None:
        super().__init__()
        c = self.config = config
        self.image, self.grid, self.width, self.chunk = c.image, c.grid, c.width, chunk
        self.encoder = nn.Conv2d(3, c.width, c.patch, c.patch // 2, c.patch // 4)
        self.encoder.requires_grad_(False)
        self.condition = nn.Sequential(
            nn.Linear(2 * POSE, c.hidden), nn.GELU(), nn.Linear(c.hidden, c.hidden)
        )
        self.place = nn.Parameter(torch.zeros(c.hidden, c.grid, c.grid))
        self.stem = nn.Conv2d(c.width + 2 * MAPS, c.hidden, 1)
        self.blocks = nn.ModuleList(Block(c.hidden) for _ in range(c.depth))
        self.head = nn.Conv2d(c.hidden, c.width, 1)
        for name, size in (("pose", POSE), ("move", POSE), ("action", ACTIONS)):
            self.register_buffer(f"{name}_mean", torch.zeros(size))
            self.register_buffer(f"{name}_std", torch.ones(size))
        self.register_buffer("camera", torch.eye(3, 4))  # projection to cells of the grid
        self.camera: Tensor
        self.pose_mean: Tensor
        self.pose_std: Tensor
        self.move_mean: Tensor
        self.move_std: Tensor
        self.action_std: Tensor

    def tokens(self, frames: Tensor) -> Tensor:
        """uint8 frames (B, I, I, 3) -> (B, P, W), every token normalised."""
        grid = self.encoder(frames.permute(0, 3, 1, 2) / 127.5 - 1.0)
        return self._normed(grid.flatten(2).mT)

    def maps(self, poses: Tensor) -> Tensor:
        """(B, 7) -> (B, 4, g, g): position maps of the tool in the frame, by camera projection.

        A narrow and a wide Gaussian around it, and the offsets to it along both axes.
        """
        place = torch.cat([poses[:, :3], torch.ones_like(poses[:, :1])], dim=1) @ self.camera.T
        at = place[:, :2] / place[:, 2:]  # column and row
        cells = torch.arange(self.grid, device=poses.device, dtype=poses.dtype) + 0.5
        dx = (cells[None, None, :] - at[:, 0, None, None]).expand(-1, self.grid, -1)
        dy = (cells[None, :, None] - at[:, 1, None, None]).expand(-1, -1, self.grid)
        far = dx.square() + dy.square()
        bumps = [torch.exp(-far / (2 * s * s)) for s in BUMPS]
        return torch.stack([*bumps, torch.tanh(dx / 2), torch.tanh(dy / 2)], dim=1)

    def _normed(self, tokens: Tensor) -> Tensor:
        return F.layer_norm(tokens, (self.width,), eps=EPS)

    def predict(self, tokens: Tensor, actions: Tensor, poses: Tensor) -> Tensor:
        """(B, P, W), (B, 7), (B, 7) -> (B, P, W), the tokens after the action."""
        g = self.grid
        known = (
            (actions - self.move_mean) / self.move_std,
            (poses - self.pose_mean) / self.pose_std,
        )
        condition = self.condition(torch.cat(known, dim=-1))
        here, there = self.maps(poses), self.maps(next_pose(poses, actions))
        x = torch.cat([tokens.mT.unflatten(2, (g, g)), here, there], dim=1)
        x = self.stem(x) + self.place
        for block in self.blocks:
            x = block(x, condition)
        after = tokens + self.head(F.gelu(x)).flatten(2).mT
        return self._normed(after)


def to_moves(controls: Tensor) -> Tensor:
    """(..., 4) controls of the arm world -> (..., 7) actions, by the world's own mapping."""
    grip = CLOSE * controls[..., 3:]
    grip = torch.where(grip.abs() < SMALL * CLOSE, torch.zeros_like(grip), grip)
    return torch.cat([STEP * controls[..., :3], torch.zeros_like(controls[..., :3]), grip], dim=-1)


def next_pose(poses: Tensor, actions: Tensor) -> Tensor:
    """(..., 7) poses, actions -> (..., 7): positions add, rotations compose, gripper in [0, 1]."""
    place = poses[..., :3] + actions[..., :3]
    turn = _euler(_turn(actions[..., 3:6]) @ _turn(poses[..., 3:6]))
    grip = (poses[..., 6:] + actions[..., 6:]).clamp(0.0, 1.0)
    return torch.cat([place, turn, grip], dim=-1)


def _turn(angles: Tensor) -> Tensor:
    """(..., 3) -> (..., 3, 3) = Rz Ry Rx."""
    (cx, cy, cz), (sx, sy, sz) = angles.cos().unbind(-1), angles.sin().unbind(-1)
    rows = [
        torch.stack([cz * cy, cz * sy * sx - sz * cx, cz * sy * cx + sz * sx], dim=-1),
        torch.stack([sz * cy, sz * sy * sx + cz * cx, sz * sy * cx - cz * sx], dim=-1),
        torch.stack([-sy, cy * sx, cy * cx], dim=-1),
    ]
    return torch.stack(rows, dim=-2)


def _euler(R: Tensor) -> Tensor:
    """(..., 3, 3) rotations -> (..., 3) Euler angles; undefined at ry = ±90°."""
    rx = torch.atan2(R[..., 2, 1], R[..., 2, 2])
    ry = torch.atan2(-R[..., 2, 0], torch.hypot(R[..., 0, 0], R[..., 1, 0]))
    return torch.stack([rx, ry, torch.atan2(R[..., 1, 0], R[..., 0, 0])], dim=-1)
