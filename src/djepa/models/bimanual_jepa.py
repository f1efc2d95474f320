"""A patch JEPA of the head view and proprioception: predicts the end of a command sequence.

    z = tokens(image)                      (60, 80, 3) pixels -> 8 x 10 patch tokens of width W
    p = felt(joints)                       (20,): place, two axes and opening of either tool
    s = glance(image, z, p)                (S,): principal directions of z, colours, tools
    z', p' = predict(z, z0, p, asked, s)   after eight commands; five steps make a sequence
    P(z0, p0, a) = (z5, p5)                the predicted end
    G(z0, p0, task) = (zg, pg)             the end that successful demonstrations have there
    x(z, p) = (V (z - m) / √R, (p - n) / √20) / √u        coordinates of an end, R + 20
    cost(a) = |x(P(z0, p0, a)) - x(G(z0, p0, task))|²     patches and proprioception

The encoder is linear and frozen: principal components of overlapping patches, found without
gradients, of the picture and of how vivid each pixel is in four hues. The predictor is trained. Its
inputs include the tools' positions in the view of the unmoved head camera, and s, from which it can
infer how the camera was moved. G is a ridge map of s for each task. V holds R principal directions
of tokens. The weights 1 / u are per task: u is the mean square of P - G over demonstrations that G
was not fitted on, so coordinates in which demonstrations vary have little weight. No outcome is
read.

Legend: N starts, K candidates, B rows, H commands, R directions, W width of a token, S numbers of a
glance.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.spatial.transform import Rotation
from torch import Tensor, nn

from djepa.models.ac import Block
from djepa.models.bimanual import chromatic, grid_of, moments_of
from djepa.models.weights import (
    CARD,
    TENSORS,
    TWO_ARMS_JEPA,
    fill,
    native_hash,
    open_native,
    write_native,
)
from djepa.threads import one_thread
from djepa.worlds.bimanual.experts import HORIZON
from djepa.worlds.bimanual.ik import POSE, TwoArms, tool_poses
from djepa.worlds.bimanual.scene import CAMERAS, FOV, TASKS, camera_axes
from djepa.worlds.protocol import Floats

STEPS, MIDDLE = 5, 2  # steps of a sequence, commanded poses that enter one step
STRIDE = HORIZON // STEPS  # commands of a step
ROWS, COLUMNS, PATCH = 8, 10, 8  # tokens, and pixels between them; windows are twice as wide
HEIGHT, WIDTH_OF_IMAGE, PADDED = 60, 80, 64
CHANNELS, WIDTH, FELT, LOOK = 7, 32, 20, 24  # LOOK: centre, mass, spread of four colours
DIRECTIONS = 128  # principal directions of tokens that G reads and writes
BUMPS, MAPS = (0.6, 1.5), 4  # widths in cells; maps that say where a tool is
GLANCE = LOOK + DIRECTIONS + FELT
ENDS = DIRECTIONS + FELT  # coordinates of an end
PLAIN = 3.0  # scale of what colours say in a glance: ridge shrinks it less


def twenty(poses: Floats) -> Floats:
    """(..., 16) poses of both tools -> (..., 20): place, first two axes and opening of each."""
    arms = poses.reshape(-1, POSE)
    turned = Rotation.from_quat(arms[:, 3:7], scalar_first=True).as_matrix()[:, :, :2]
    found = np.concatenate([arms[:, :3], turned.transpose(0, 2, 1).reshape(-1, 6), arms[:, 7:]], 1)
    return found.reshape(*poses.shape[:-1], FELT)


def felt(world: TwoArms, joints: Floats) -> Floats:
    """(..., 14) joints and openings -> (..., 20) where the tools are."""
    return twenty(tool_poses(world, joints.astype(np.float64)))


def asked(world: TwoArms, commands: Floats) -> Floats:
    """(..., H, 14) commands -> (..., 5, 40): where both tools should be, twice in every step."""
    every = STRIDE // MIDDLE
    found = felt(world, commands[..., every - 1 :: every, :])
    return found.reshape(*commands.shape[:-2], STEPS, MIDDLE * FELT)


def camera() -> Floats:
    """(3, 4): (x, y, z, 1) in m -> w times (column, row, 1) in cells of the unmoved head view."""
    place = np.array(CAMERAS["head"][0])
    right, up = camera_axes(*CAMERAS["head"])
    turn = np.stack([right, up, np.cross(right, up)])
    focal = HEIGHT / 2 / np.tan(np.deg2rad(FOV) / 2)
    centre = WIDTH_OF_IMAGE / 2, PADDED / 2
    lens = np.array([[focal, 0, -centre[0]], [0, -focal, -centre[1]], [0, 0, -1.0]])
    found = lens @ np.column_stack([turn, -turn @ place])
    found[:2] /= PATCH
    return np.asarray(found)


class BimanualJEPA(nn.Module):
    """One model for the four tasks."""

    def __init__(self, hidden: int = 40, depth: int = 3) -> None:
        super().__init__()
        cells = ROWS * COLUMNS * WIDTH
        self.encoder = nn.Conv2d(CHANNELS, WIDTH, 2 * PATCH, PATCH, PATCH // 2)
        self.encoder.requires_grad_(False)
        self.scene = nn.Linear(GLANCE, hidden)
        self.condition = nn.Sequential(
            nn.Linear(FELT * (1 + MIDDLE) + hidden, hidden), nn.GELU(), nn.Linear(hidden, hidden)
        )
        self.place = nn.Parameter(torch.zeros(hidden, ROWS, COLUMNS))
        self.stem = nn.Conv2d(2 * WIDTH + 2 * MAPS * (1 + MIDDLE), hidden, 1)
        self.blocks = nn.ModuleList(Block(hidden) for _ in range(depth))
        self.head = nn.Conv2d(hidden, WIDTH, 1)
        self.reach = nn.Linear(hidden, FELT)
        for name, shape in {
            "camera": (3, 4), "felt_mean": (FELT,), "felt_std": (FELT,),
            "look_mean": (LOOK,), "look_std": (LOOK,), "token_mean": (cells,),
            "directions": (DIRECTIONS, cells), "spread": (DIRECTIONS,),
            "goals": (len(TASKS), GLANCE + 1, ENDS), "units": (len(TASKS), ENDS),
        }.items():  # fmt: skip
            self.register_buffer(name, torch.ones(shape))
        self.camera: Tensor
        self.felt_mean: Tensor
        self.felt_std: Tensor
        self.look_mean: Tensor
        self.look_std: Tensor
        self.token_mean: Tensor
        self.directions: Tensor
        self.spread: Tensor
        self.goals: Tensor
        self.units: Tensor

    def tokens(self, images: Tensor) -> Tensor:
        """uint8 (B, 60, 80, 3) -> (B, 80, W)."""
        return self.encoder(seven(images)).flatten(2).mT

    def feel(self, told: Tensor) -> Tensor:
        """(..., 20) in m, axes and openings -> standardised."""
        return (told - self.felt_mean) / self.felt_std

    def glance(self, images: Tensor, tokens: Tensor, tools: Tensor) -> Tensor:
        """(B, 60, 80, 3), (B, 80, W), (B, 20) -> (B, S): a start in a few numbers."""
        colours = PLAIN * (look(images) - self.look_mean) / self.look_std
        seen, felt = self.flat(tokens, tools).split([DIRECTIONS, FELT], -1)
        return torch.cat([colours, seen / self.spread, felt], 1)

    def flat(self, tokens: Tensor, tools: Tensor) -> Tensor:
        """(..., 80, W), (..., 20) -> (..., R + 20): along principal directions, and tools."""
        seen = (tokens.flatten(-2) - self.token_mean) @ self.directions.T
        return torch.cat([seen, self.feel(tools)], -1)

    def maps(self, told: Tensor) -> Tensor:
        """(B, n 20) -> (B, 8 n, 8, 10): two bumps around every tool, and the way to it."""
        poses = told.unflatten(1, (-1, FELT // 2))
        places = F.pad(poses[..., :3], (0, 1), value=1.0) @ self.camera.T
        at = places[..., :2] / places[..., 2:]
        columns, rows = (torch.arange(n, device=told.device) + 0.5 for n in (COLUMNS, ROWS))
        dx = (columns - at[..., :1])[:, :, None, :].expand(-1, -1, ROWS, -1)
        dy = (rows - at[..., 1:])[:, :, :, None].expand(-1, -1, -1, COLUMNS)
        far = dx.square() + dy.square()
        bumps = [torch.exp(-far / (2 * s * s)) for s in BUMPS]
        return torch.stack([*bumps, torch.tanh(dx / 2), torch.tanh(dy / 2)], 2).flatten(1, 2)

    def predict(
        self, tokens: Tensor, first: Tensor, tools: Tensor, told: Tensor, scene: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Tokens now and at first (B, 80, W), tools (B, 20), (B, 40), (B, hidden) -> the next."""
        every = [self.feel(one) for one in (tools, *told.split(FELT, 1))]
        condition = self.condition(torch.cat([*every, scene], 1))
        grids = [of.mT.unflatten(2, (ROWS, COLUMNS)) for of in (tokens, first)]
        x = self.stem(torch.cat([*grids, self.maps(torch.cat([tools, told], 1))], 1)) + self.place
        for block in self.blocks:
            x = block(x, condition)
        x = F.gelu(x)
        after = tokens + self.head(x).flatten(2).mT
        moved = self.reach(condition + x.mean((2, 3))) * self.felt_std
        return after, told[:, -FELT:] + moved

    def path(
        self, tokens: Tensor, tools: Tensor, told: Tensor, glance: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(B, 80, W), (B, 20), (B, 5, 40), (B, S) -> (B, 5, 80, W), (B, 5, 20) after each step."""
        scene = self.scene(glance)
        now, found = (tokens, tools), []
        for step in range(STEPS):
            now = self.predict(now[0], tokens, now[1], told[:, step], scene)
            found.append(now)
        seen, felt = zip(*found, strict=True)
        return torch.stack(seen, 1), torch.stack(felt, 1)

    def goal(self, glance: Tensor, task: int) -> Tensor:
        """G: (B, S) -> (B, R + 20)."""
        return F.pad(glance, (0, 1), value=1.0) @ self.goals[task]

    def ends(self, tokens: Tensor, tools: Tensor, told: Tensor, glance: Tensor) -> Tensor:
        """P: one start (80, W), (20,), (S,) and its candidates (K, 5, 40) -> (K, R + 20)."""
        K = len(told)
        start = tokens.expand(K, -1, -1), tools.expand(K, -1)
        seen, felt = self.path(*start, told, glance.expand(K, -1))
        return self.flat(seen[:, -1], felt[:, -1])

    def coordinates(self, ends: Tensor, task: int) -> Tensor:
        """(..., R + 20) ends -> coordinates x: their squared distances are native costs."""
        many = torch.tensor([DIRECTIONS] * DIRECTIONS + [FELT] * FELT, device=ends.device)
        return ends / (many * self.units[task]).sqrt()


def cost_of(ends: Tensor, goal: Tensor) -> Tensor:
    """(..., K, R + 20), (..., R + 20) coordinates -> (..., K) native costs."""
    return (ends - goal[..., None, :]).square().sum(-1)


def look(images: Tensor) -> Tensor:
    """uint8 (B, 60, 80, 3) -> (B, 24): centre, mass and spread of four colours."""
    x = images.permute(0, 3, 1, 2).float() / 255
    return moments_of(chromatic(x), *grid_of(x))


def seven(images: Tensor) -> Tensor:
    """uint8 (B, 60, 80, 3) -> (B, 7, 64, 80): colours, and how vivid each of four hues is."""
    x = images.permute(0, 3, 1, 2).float() / 255
    edge = (PADDED - HEIGHT) // 2
    return F.pad(torch.cat([2 * x - 1, chromatic(x)], 1), (0, 0, edge, edge), mode="replicate")


@dataclass(frozen=True)
class Trained:
    """A trained model, its card, and the hash that results are bound to."""

    model: BimanualJEPA
    card: dict[str, Any]
    hash: str

    @torch.no_grad()
    def read(
        self, world: Any, image: np.ndarray[Any, Any], joints: Any, commands: Any
    ) -> tuple[Tensor, Tensor]:
        """(60, 80, 3), (14,), (K, H, 14) of a start -> coordinates of P (K, D) and of G (D,)."""
        model, task = self.model, list(TASKS).index(world.variant)
        tools = torch.from_numpy(felt(world, joints)[None]).float()
        told = torch.from_numpy(asked(world, commands)).float()
        frame = torch.from_numpy(image)[None]
        with one_thread():
            tokens = model.tokens(frame)
            glance = model.glance(frame, tokens, tools)
            ends = model.ends(tokens[0], tools[0], told, glance[0])
            return model.coordinates(ends, task), model.coordinates(
                model.goal(glance, task)[0], task
            )


def save_jepa(folder: Path, model: BimanualJEPA, card: dict[str, Any]) -> None:
    """Weights as 16-bit floats, and a card that says how they were made."""
    write_native(folder, TWO_ARMS_JEPA, model, card, {})


def load_jepa(where: str | Path = "bimanual-jepa") -> Trained:
    """Load from a folder or by name; anything missing or altered is an error."""
    stored = open_native(where, TWO_ARMS_JEPA)
    model = BimanualJEPA()
    fill(model, stored.tensors(TENSORS), stored.path / TENSORS)
    model.eval().requires_grad_(False)
    return Trained(model, stored.record(CARD), native_hash(stored))
