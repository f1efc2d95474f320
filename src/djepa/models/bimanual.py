"""The native bimanual policy: maps words, a head image and joints to a chunk of commands.

    image (60 x 80) → convolutions → soft positions of 24 features → tokens
                    → four colours → centre, mass, spread of each → token
    words, joints → tokens;   two transformer layers → one summary
    c = head(summary, colours, joints) + Σ_task p(task | words) W_task (colours, joints, 1)
    chunk = mean + B (s ∘ c),   scale = exp(u)

B (R, H · 14) holds principal directions of the demonstrations' commands and s their spreads: the
network gives R coefficients c, and u, the logarithm of the mean error that it expects of itself.

Legend: N starts, H = 40 commands, R directions.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from djepa.errors import DjepaError
from djepa.models.bimanual_scene import SceneMap, read_scene, scene_arrays
from djepa.models.weights import (
    CARD,
    TENSORS,
    TWO_ARMS,
    fill,
    native_hash,
    open_native,
    stored_arrays,
    write_native,
)
from djepa.pools.bimanual import Proposer, arrays_of, read_proposers
from djepa.worlds.bimanual.experts import HORIZON
from djepa.worlds.bimanual.ik import POSE, TwoArms, tool_poses
from djepa.worlds.bimanual.scene import HUES
from djepa.worlds.bimanual.world import COMMAND

HEIGHT, WIDTH_OF_IMAGE = 60, 80
SPOTS, WIDTH, DIRECTIONS, GROUPS = 24, 64, 28, 8
MOMENTS, SHARP = 6 * len(HUES), 4.0  # numbers of four colours; sharpness of the soft positions
RIDGE, SURE = 1e-4, 8.0  # of the first linear maps; of the words that say which one
PROPOSALS, SCENE = "proposals.npz", "scene.npz"
SENTENCES = {
    "grab roller": ("lift the roller with both hands", "grab the orange roller and raise it"),
    "handover block": (
        "hand the red block over to the pad",
        "pass the block and put it on the pad",
    ),
    "bread to skillet": (
        "put the bread into the skillet",
        "lift the skillet and drop the bread in",
    ),
    "object to drawer": (
        "open the drawer and put the object in",
        "store the red object in the drawer",
    ),
}
WORDS = ("", *sorted({w for many in SENTENCES.values() for one in many for w in one.split()}))
LENGTH = max(len(one.split()) for many in SENTENCES.values() for one in many)


def words_of(sentence: str) -> list[int]:
    """Word numbers of a sentence, padded; an unknown word is an error."""
    unknown = [word for word in sentence.split() if word not in WORDS]
    if unknown:
        raise DjepaError(f"The policy does not know the word '{unknown[0]}'.")
    found = [WORDS.index(word) for word in sentence.split()]
    return found[:LENGTH] + [0] * (LENGTH - len(found))


class Policy(nn.Module):
    """One policy for the four tasks."""

    mean: Tensor
    basis: Tensor
    spread: Tensor
    rest: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(9, 32, 5, 2, 2), nn.GELU(),
            nn.Conv2d(32, SPOTS, 3, 1, 1), nn.GELU(),
            nn.Conv2d(SPOTS, SPOTS, 3, 1, 1),
        )  # fmt: skip
        self.words = nn.Embedding(len(WORDS), WIDTH)
        self.joints = nn.Linear(COMMAND, WIDTH)
        self.moments = nn.Linear(MOMENTS, WIDTH)
        self.spots = nn.Linear(3 * SPOTS // GROUPS, WIDTH)
        self.places = nn.Parameter(torch.zeros(GROUPS + LENGTH + 3, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 2 * WIDTH, 0.0, F.gelu, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Sequential(
            nn.Linear(WIDTH + MOMENTS + COMMAND, 128), nn.GELU(),
            nn.Linear(128, 128), nn.GELU(),
            nn.Linear(128, DIRECTIONS + 1),
        )  # fmt: skip
        self.route = nn.Linear(len(WORDS), len(SENTENCES))
        self.linear = nn.Parameter(torch.zeros(len(SENTENCES), MOMENTS + COMMAND + 1, DIRECTIONS))
        self.register_buffer("mean", torch.zeros(HORIZON * COMMAND))
        self.register_buffer("basis", torch.zeros(DIRECTIONS, HORIZON * COMMAND))
        self.register_buffer("spread", torch.ones(DIRECTIONS))
        self.register_buffer("rest", torch.zeros(COMMAND))  # mean joints at starts

    def initialise(self, random: torch.Generator) -> None:
        """Fresh weights from this generator."""
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                bound = parameter[0].numel() ** -0.5
                nn.init.uniform_(parameter, -bound, bound, generator=random)
            else:
                nn.init.constant_(parameter, float("norm" in name and name.endswith("weight")))
        nn.init.zeros_(list(self.head.parameters())[-2])  # the linear map comes first
        nn.init.zeros_(self.linear)

    def forward(self, images: Tensor, joints: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        """(N, 60, 80, 3) uint8, (N, 14), (N, L) -> (N, H, 14) commands, (N,) expected log error."""
        x = images.permute(0, 3, 1, 2).float() / 255
        N, (rows, columns), colours = len(x), grid_of(x), chromatic(x)
        maps = self.stem(torch.cat([x - 0.5, colours, rows, columns], 1))
        weight = (SHARP * maps).flatten(2).softmax(-1).view_as(maps)
        at_x = (weight * columns[:, :, ::2, ::2]).sum((2, 3))
        at_y = (weight * rows[:, :, ::2, ::2]).sum((2, 3))
        seen = torch.stack([at_x, at_y, weight.amax((2, 3))], -1).view(N, GROUPS, -1)
        moments, felt = moments_of(colours, rows, columns), self.feel(joints)
        tokens = [
            felt.new_zeros(N, 1, WIDTH), self.spots(seen), self.joints(felt)[:, None],
            self.moments(moments)[:, None], self.words(words),
        ]  # fmt: skip
        summary = self.layers(torch.cat(tokens, 1) + self.places)[:, 0]
        found = self.head(torch.cat([summary, moments, felt], 1))
        coefficients = found[:, :-1] + self.plain(moments, felt, words)
        chunk = self.mean + (coefficients * self.spread) @ self.basis
        return chunk.view(N, HORIZON, COMMAND), found[:, -1]

    def plain(self, moments: Tensor, felt: Tensor, words: Tensor) -> Tensor:
        """(N, R) a linear map of colours and joints for each task, mixed as the words say."""
        bag = F.one_hot(words, len(WORDS)).float().sum(1)
        share = self.route(bag).softmax(-1)
        inputs = torch.cat([moments, felt, torch.ones_like(felt[:, :1])], 1)
        return torch.einsum("nt,ni,tir->nr", share, inputs, self.linear)

    def feel(self, joints: Tensor) -> Tensor:
        """(N, 14) joints, standardised by their spread over starts."""
        return 10 * (joints - self.rest)

    def look(self, images: Tensor) -> Tensor:
        """(N, 24) moments of the colours in images (N, 60, 80, 3)."""
        x = images.permute(0, 3, 1, 2).float() / 255
        return moments_of(chromatic(x), *grid_of(x))


def grid_of(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of (N, C, h, w) images, from -1 to 1, each (N, 1, h, w)."""
    N, _, h, w = x.shape
    rows = torch.linspace(-1, 1, h, device=x.device).view(1, 1, h, 1).expand(N, 1, h, w)
    columns = torch.linspace(-1, 1, w, device=x.device).view(1, 1, 1, w).expand(N, 1, h, w)
    return rows, columns


def moments_of(colours: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """(N, 24) centre, mass and spread of each of four colours."""
    mass = colours.sum((2, 3))
    share = colours / (mass[..., None, None] + 1e-3)
    x, y = ((share * at).sum((2, 3)) for at in (columns, rows))
    dx, dy = columns - x[..., None, None], rows - y[..., None, None]
    spread = [(share * a * b).sum((2, 3)) for a, b in ((dx, dx), (dx, dy), (dy, dy))]
    return torch.cat([x, y, mass / 100, *(20 * one for one in spread)], 1)


def chromatic(x: Tensor) -> Tensor:
    """(N, 3, h, w) in [0, 1] -> (N, 4, h, w): how vivid a pixel is in each of four hues."""
    angles = torch.deg2rad(torch.tensor(list(HUES.values()), device=x.device))
    r, g, b = x.unbind(1)
    along, across = r - (g + b) / 2, (g - b) * 3**0.5 / 2  # the plane of hues
    hue = torch.atan2(across, along)
    near = (hue[:, None] - angles.view(1, -1, 1, 1)).cos()
    return (along.hypot(across)[:, None] - 0.2).clamp(min=0) * (40 * (near - 0.95)).sigmoid()


@torch.no_grad()
def begin(policy: Policy, images: Tensor, joints: Tensor, chunks: Tensor, tasks: Tensor) -> None:
    """Principal directions of (N, H, 14) demonstrated commands, and by ridge the linear maps."""
    flat = chunks.flatten(1).double()
    mean = flat.mean(0)
    _, s, basis = torch.linalg.svd(flat - mean, full_matrices=False)
    R = min(DIRECTIONS, len(s))
    policy.mean.copy_(mean)
    policy.basis[:R] = basis[:R].float()
    policy.spread[:R] = (s[:R] / len(flat) ** 0.5).float()
    policy.rest.copy_(joints.mean(0))
    wanted = (flat - mean) @ basis[:R].T / policy.spread[:R]
    colours = torch.cat([policy.look(part) for part in images.split(256)])
    inputs = torch.cat([colours, policy.feel(joints), torch.ones(len(joints), 1)], 1).double()
    for task in range(len(SENTENCES)):
        x, y = inputs[tasks == task], wanted[tasks == task]
        weights = torch.linalg.solve(x.T @ x + RIDGE * len(x) * torch.eye(x.shape[1]), x.T @ y)
        policy.linear[task, :, :R] = weights.float()
    bags, answers = [], []
    for task, many in enumerate(SENTENCES.values()):
        for one in many:
            bags.append(F.one_hot(torch.tensor(words_of(one)), len(WORDS)).sum(0))
            answers.append(F.one_hot(torch.tensor(task), len(SENTENCES)))
    bag, answer = torch.stack(bags).double(), torch.stack(answers).double()
    # The default driver reads uninitialised memory, so its solution varies from run to run.
    found = torch.linalg.lstsq(bag, SURE * answer, driver="gelsd").solution
    policy.route.weight.copy_(found.T)
    policy.route.bias.zero_()


@dataclass(frozen=True, eq=False)
class Native:
    """A trained policy with the proposers of variants of its chunk."""

    policy: Policy
    proposers: dict[str, Proposer]
    scene: SceneMap
    card: dict[str, Any]
    hash: str

    @torch.no_grad()
    def act(self, task: str, image: np.ndarray[Any, Any], joints: Any) -> tuple[Any, float]:
        """(60, 80, 3) image and (14,) joints -> (H, 14) commands, expected error in rad."""
        words = torch.tensor([words_of(SENTENCES[task][0])])
        given = torch.from_numpy(image)[None], torch.from_numpy(joints)[None].float(), words
        chunk, log_scale = self.policy(*given)
        return chunk[0].double().numpy(), float(log_scale.exp())

    def poses(self, world: TwoArms, task: str, image: np.ndarray[Any, Any], joints: Any) -> Any:
        """The same chunk as end-effector commands: (H, 16) poses and openings of both tools."""
        found = tool_poses(world, self.act(task, image, joints)[0])
        found[:, POSE - 1 :: POSE] = found[:, POSE - 1 :: POSE].clip(0, 1)
        return found


def save_policy(
    folder: Path,
    policy: Policy,
    proposers: dict[str, Proposer],
    scene: SceneMap,
    card: dict[str, Any],
) -> None:
    """Write a policy, the proposers of its variants, and a card that says how they were made."""
    arrays = {PROPOSALS: arrays_of(proposers), SCENE: scene_arrays(scene)}
    write_native(folder, TWO_ARMS, policy, card, arrays)


def load_policy(where: str | Path = "bimanual") -> Native:
    """Load from a folder or by name; anything missing or altered is an error."""
    stored = open_native(where, TWO_ARMS)
    policy, path = Policy(), stored.path
    fill(policy, stored.tensors(TENSORS), path / TENSORS)
    proposers = read_proposers(path / PROPOSALS, stored_arrays(stored, PROPOSALS))
    scene = read_scene(path / SCENE, stored_arrays(stored, SCENE))
    return Native(policy.eval(), proposers, scene, stored.record(CARD), native_hash(stored))
