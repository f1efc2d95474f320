"""The frozen patch encoder, taught by an average of itself (after DINO and iBOT).

For views of one frame, cropped, rotated and recoloured at random, the student's class token must
match the teacher's on other views, and its masked patch tokens the teacher's on the same view. The
teacher is the running average of the student and sees no masks.

Legend: B frames of a batch, V views, P patches, W width, C prototypes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from djepa.models.lewm import IMAGENET_MEAN, IMAGENET_STD
from djepa.models.nets import ViT
from djepa.models.parallel import count, everyones, mean_of_all, rows

GLOBAL, LOCAL = 2, 4  # views of each kind
NUMBERS = 24  # random numbers that make a view
HIDDEN, CODE, PROTOTYPES = 512, 64, 1024  # widths of the heads
STUDENT_HEAT, TEACHER_HEAT = 0.1, 0.05
SPREAD_WEIGHT = 0.1
AVERAGE = 0.996  # of the teacher, per step


class Head(nn.Module):
    """Tokens -> logits over prototypes, by direction alone."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(width, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, HIDDEN), nn.GELU()
        )
        self.code = nn.Linear(HIDDEN, CODE)
        self.prototypes = nn.Linear(CODE, PROTOTYPES, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(n, W) -> (n, C)."""
        code = F.normalize(self.code(self.layers(x)), dim=-1)
        return F.linear(code, F.normalize(self.prototypes.weight, dim=-1))


class Student(nn.Module):
    """An encoder, the embedding of masked patches, and two heads."""

    def __init__(self, encoder: ViT) -> None:
        super().__init__()
        width = encoder.position.shape[-1]
        self.encoder, self.mask = encoder, nn.Parameter(torch.zeros(width))
        self.whole, self.parts = Head(width), Head(width)
        mean, std = torch.tensor(IMAGENET_MEAN), torch.tensor(IMAGENET_STD)
        self.register_buffer("pixel_mean", mean[:, None, None], persistent=False)
        self.register_buffer("pixel_std", std[:, None, None], persistent=False)
        self.pixel_mean: Tensor
        self.pixel_std: Tensor

    def tokens(self, images: Tensor, masked: Tensor | None = None) -> Tensor:
        """(n, 3, side, side), (n, P) bool -> (n, 1 + P, W); smaller images have fewer patches."""
        encoder, pixels = self.encoder, (images - self.pixel_mean) / self.pixel_std
        patches = encoder.embed(pixels).flatten(2).transpose(1, 2)
        if masked is not None:
            patches = torch.where(masked[..., None], self.mask.to(patches.dtype), patches)
        x = torch.cat([encoder.token.expand(len(images), -1, -1), patches], dim=1)
        x = x + _positions(encoder, patches.shape[1])
        for block in encoder.blocks:
            x = block(x)
        out: Tensor = encoder.norm(x)
        return out


def distil_loss(
    student: Student, teacher: Student, images: Tensor, numbers: Tensor, masked: Tensor
) -> Tensor:
    """Images (B, 3, side, side) in [0, 1], numbers (V, B, 24) in [0, 1), masks (2 B, P) -> loss."""
    side, B = images.shape[-1], len(images)
    large = _views(images, numbers[:GLOBAL], side, (0.4, 1.0))
    small = _views(images, numbers[GLOBAL:], side // 2, (0.15, 0.4))
    with torch.no_grad():
        taught = teacher.tokens(large)
        whole = _assign(teacher.whole(taught[:, 0])).view(GLOBAL, B, -1)
        parts = _assign(teacher.parts(taught[:, 1:].flatten(0, 1)))
    seen = student.tokens(large, masked)
    said = torch.cat([seen[:, 0], student.tokens(small)[:, 0]])
    logs = (student.whole(said).float() / STUDENT_HEAT).log_softmax(-1).view(-1, B, PROTOTYPES)
    pairs = [(i, j) for i in range(GLOBAL) for j in range(len(logs)) if i != j]
    views = -sum(((whole[i] * logs[j]).sum(-1).mean() for i, j in pairs), logs.new_zeros(()))
    guess = (student.parts(seen[:, 1:].flatten(0, 1)).float() / STUDENT_HEAT).log_softmax(-1)
    hidden = masked.flatten().float()
    masks = mean_of_all(hidden.sum()).clamp(min=1 / count())
    patches = -((parts * guess).sum(-1) * hidden).sum() / masks
    return views / len(pairs) + patches + SPREAD_WEIGHT * _spread(seen[:, 0].view(GLOBAL, B, -1))


def draw_views(B: int, patches: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Numbers (V, B, 24) of the views, masks (2 B, P): half of the views lose 10 to 50 %."""
    device = generator.device

    def uniform(*size: int) -> Tensor:
        return torch.rand(size, device=device, generator=generator)

    share = (0.1 + 0.4 * uniform(GLOBAL * B, 1)) * (uniform(GLOBAL * B, 1) < 0.5)
    return uniform(GLOBAL + LOCAL, B, NUMBERS), uniform(GLOBAL * B, patches) < share


def _positions(encoder: ViT, patches: int) -> Tensor:
    """(1, 1 + P, W) positions, resampled for another number of patches."""
    if patches == encoder.patches:
        return encoder.position
    side, wanted = round(encoder.patches**0.5), round(patches**0.5)
    grid = encoder.position[:, 1:].unflatten(1, (side, side)).permute(0, 3, 1, 2)
    grid = F.interpolate(grid, size=(wanted, wanted), mode="bilinear", align_corners=False)
    return torch.cat([encoder.position[:, :1], grid.flatten(2).transpose(1, 2)], dim=1)


def _views(images: Tensor, numbers: Tensor, side: int, area: tuple[float, float]) -> Tensor:
    """(B, 3, ., .) images, (V, B, 24) numbers -> (V B, 3, side, side) crops in other colours."""
    V, B, _ = numbers.shape
    u = numbers.flatten(0, 1)
    scale = (area[0] + (area[1] - area[0]) * u[:, 0]).sqrt()
    angle = 2 * torch.pi * u[:, 1]
    flip = torch.where(u[:, 2] < 0.5, 1.0, -1.0)
    c, s = scale * angle.cos(), scale * angle.sin()
    shift = (1 - scale)[:, None] * (2 * u[:, 3:5] - 1)
    rows = [
        torch.stack([c * flip, -s, shift[:, 0]], -1),
        torch.stack([s * flip, c, shift[:, 1]], -1),
    ]
    where = F.affine_grid(torch.stack(rows, 1), [V * B, 3, side, side], align_corners=False)
    crops = F.grid_sample(
        images.repeat(V, 1, 1, 1), where, padding_mode="border", align_corners=False
    )
    return _recoloured(_blurred(crops, u[:, 5]), u[:, 6:])


def _blurred(images: Tensor, u: Tensor) -> Tensor:
    """A third of the images lose their sharp edges."""
    soft = F.avg_pool2d(images, 3, stride=1, padding=1, count_include_pad=False)
    return torch.lerp(images, soft, ((u - 0.67) * 3).clamp(0, 1)[:, None, None, None])


def _recoloured(images: Tensor, u: Tensor) -> Tensor:
    """Colours mixed, shifted, at times grey or inverted: (n, 3, ., .), (n, 18) -> (n, 3, ., .)."""
    eye = torch.eye(3, device=images.device)
    mix = eye + 0.6 * (u[:, :9].view(-1, 3, 3) - 0.5)
    mix = torch.where((u[:, 9] < 0.2)[:, None, None], torch.full_like(eye, 1 / 3), mix)
    mix = torch.where((u[:, 10] < 0.15)[:, None, None], -mix, mix)
    light = (0.6 + 0.8 * u[:, 11])[:, None, None, None]
    mean = images.mean((1, 2, 3), keepdim=True)
    out = torch.einsum("nij,njhw->nihw", mix, images - mean) * light
    return out + mean + 0.3 * (u[:, 12:15] - 0.5)[:, :, None, None]


@torch.no_grad()
def _assign(logits: Tensor) -> Tensor:
    """Shares of prototypes per row, so that all are used alike over the batch (Sinkhorn-Knopp)."""
    highest = everyones(logits.float().max()[None]).max()
    q = ((logits.float() - highest) / TEACHER_HEAT).exp()
    for _ in range(3):
        q = q / everyones(q.sum(0, keepdim=True)).sum(0, keepdim=True).clamp(min=1e-12)
        q = q / q.sum(1, keepdim=True).clamp(min=1e-12)
    return q


def _spread(tokens: Tensor) -> Tensor:
    """KoLeo: minus the log distance to the nearest other frame, in each view (V, B, W)."""
    x = F.normalize(tokens.float(), dim=-1)
    every = everyones(x.transpose(0, 1)).transpose(0, 1)  # frames of all processes
    near = x @ every.transpose(1, 2)
    near = near - 3.0 * torch.eye(every.shape[1], device=x.device)[rows()]
    gap = (2 - 2 * near.amax(-1)).clamp(min=1e-6).sqrt()
    return -gap.log().mean()
