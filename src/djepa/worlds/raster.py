"""Anti-aliased frames from geometry: one batched rasteriser in plain torch, for CPU and CUDA alike.

Shapes: N frames, P convex parts of a body, V vertices of a part, S side of a patch in pixels.
Geometry is in canvas units, x to the right and y down; the centre of pixel (row i, column j) lies
at ((j + 0.5), (i + 0.5)) * canvas / size.

Distances are formed in the dtype of the geometry (float64 poses keep their digits) and reduced to
float32 relative to the patch; the image stays float32 until one rounding at the end. Every pixel is
a fixed chain of elementwise operations, so neither batching nor chunking changes a bit, and devices
agree to one level. Nothing waits for the device, so it can run inside a training step.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from djepa.errors import DjepaError

Colour: TypeAlias = tuple[float, float, float] | Tensor

_CPU_PIXELS = 1 << 19  # 6 MB of float image stay in cache; measured fastest at 112 and 224 px
_GPU_PIXELS = 1 << 26  # 0.8 GB of float image
_FAR = 1e9  # pixels; beyond any distance that matters, finite so that sums stay finite
_TINY = 1e-3  # pixels; shorter edges have no direction, parts of less area no inside


@dataclass(frozen=True, eq=False)
class Polygons:
    """One rigid body per frame, made of convex parts with disjoint interiors.

    vertices (N,P,V,2), in either orientation; repeat a vertex to pad a part that has fewer, a part
    without area draws nothing. anchor (N,2) and reach bound the body: all vertices lie within
    `reach` of `anchor`. Parts that share an edge leave no seam on it.
    """

    vertices: Tensor
    anchor: Tensor
    reach: float
    colour: Colour
    alpha: float = 1.0

    def coverage(self, x: Tensor, y: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
        """Share of each pixel that is covered (N,S,S), for centres x and y (N,S) in pixels.

        The signed distance to an edge's line is affine, hence the outer sum of a term in x and a
        term in y: one addition and one minimum per edge are all that touches the whole patch.
        """
        along_x, along_y = (term.to(dtype) for term in self._edge_terms(x, y, scale))
        body = _convex(along_x[:, 0], along_y[:, 0])
        for p in range(1, along_x.shape[1]):
            body += _convex(along_x[:, p], along_y[:, p])
        return body.clamp_(max=1.0)

    def _edge_terms(self, x: Tensor, y: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """Two terms (N,P,V,S) whose outer sum is 0.5 + the inward distance from each edge."""
        corner = self.vertices * scale
        edge = corner.roll(-1, dims=2) - corner
        rest = corner - corner[:, :, :1]
        # Twice the area; only its sign is used, so the order of this sum does not reach a pixel.
        area = (rest[..., 0] * edge[..., 1] - rest[..., 1] * edge[..., 0]).sum(-1, keepdim=True)
        length = (edge * edge).sum(-1).sqrt()
        turn = torch.sign(area) / length.clamp(min=_TINY)
        shift = torch.where(length > _TINY, 0.5, _FAR).masked_fill(area.abs() < _TINY, -_FAR)
        from_x = x[:, None, None] - corner[..., :1]
        from_y = y[:, None, None] - corner[..., 1:]
        along_x = (-turn * edge[..., 1])[..., None] * from_x + shift[..., None]
        return along_x, (turn * edge[..., 0])[..., None] * from_y


@dataclass(frozen=True, eq=False)
class Discs:
    """One disc per frame: centres (N,2) and a common radius, in canvas units."""

    centres: Tensor
    radius: float
    colour: Colour
    alpha: float = 1.0

    @property
    def anchor(self) -> Tensor:
        """Middle of the drawn area (N,2)."""
        return self.centres

    @property
    def reach(self) -> float:
        """How far from the anchor anything is drawn, in canvas units."""
        return self.radius

    def coverage(self, x: Tensor, y: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
        """Share of each pixel that is covered (N,S,S), for centres x and y (N,S) in pixels."""
        from_x = (x - self.centres[:, :1] * scale).to(dtype)[:, None, :]
        from_y = (y - self.centres[:, 1:] * scale).to(dtype)[:, :, None]
        distance = (from_x * from_x + from_y * from_y).sqrt_()
        return distance.neg_().add_(0.5 + self.radius * scale).clamp_(0.0, 1.0)


Layer: TypeAlias = Polygons | Discs


@torch.no_grad()
def rasterise(
    layers: Sequence[Layer],
    size: int,
    *,
    canvas: float = 512.0,
    background: Colour = (255, 255, 255),
    max_pixels: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Draw the layers in order, later over earlier: uint8 frames (N,size,size,3).

    `background` is a colour, a colour per frame (N,3) or an image (size,size,3). Memory is bounded
    by working on at most `max_pixels` pixels at a time. `dtype` is the precision of the image
    before rounding; float64 serves as a reference.
    """
    _check(layers, size)
    _check_colour(background)
    device, frames = layers[0].anchor.device, len(layers[0].anchor)
    # Half a level is added to every colour once, so that the final truncation rounds.
    colours = [_levels(layer.colour, device, dtype) + 0.5 for layer in layers]
    backdrop = _levels(background, device, dtype) + 0.5
    backdrop = backdrop[None] if backdrop.ndim == 3 else backdrop[:, None, None]
    out = torch.empty((frames, size, size, 3), dtype=torch.uint8, device=device)
    step = _chunk(frames, size, device, max_pixels)
    image = torch.empty((step, size, size, 3), dtype=dtype, device=device)
    for start in range(0, frames, step):
        part = slice(start, min(start + step, frames))
        view = image[: part.stop - start]
        view.copy_(_rows(backdrop, part))
        for layer, colour in zip(layers, colours, strict=True):
            _draw(view, _cut(layer, part), _rows(colour, part), size / canvas)
        out[part] = view  # the cast truncates
    return out


def paint_background(
    size: int,
    canvas: float,
    colour: Colour,
    walls: Sequence[tuple[tuple[float, float], tuple[float, float]]] = (),
    wall_radius: float = 0.0,
    wall_colour: Colour = (0, 0, 0),
    *,
    device: torch.device | str = "cpu",
) -> Tensor:
    """A static backdrop with round-ended walls: float32 image (size,size,3) for `background`.

    It is painted once on the CPU, in float64, so that every device starts from the same image.
    """
    _check_size(size)
    for each in (colour, wall_colour):
        _check_colour(each)
    ends = torch.tensor(walls, dtype=torch.float64).reshape(-1, 2, 2) * (size / canvas)
    centre = torch.arange(size, dtype=torch.float64) + 0.5
    point = torch.stack((centre.expand(size, size), centre[:, None].expand(size, size)), -1)
    cover = torch.zeros(size, size, dtype=torch.float64)
    for first, last in ends:
        along = last - first
        share = ((point - first) @ along / (along @ along).clamp(min=1e-12)).clamp(0, 1)
        distance = torch.linalg.vector_norm(point - first - share[..., None] * along, dim=-1)
        # The largest coverage, not the sum: walls overlap where they meet.
        cover = torch.maximum(cover, (0.5 + wall_radius * size / canvas - distance).clamp(0, 1))
    under, over = (_levels(c, torch.device("cpu"), torch.float64) for c in (colour, wall_colour))
    return (under + cover[..., None] * (over - under)).to(device, torch.float32)


def _convex(along_x: Tensor, along_y: Tensor) -> Tensor:
    """Coverage (N,S,S) of one convex part from its edge terms (N,V,S)."""
    part = along_x[:, 0, None, :] + along_y[:, 0, :, None]
    for v in range(1, along_x.shape[1]):
        part = torch.minimum(part, along_x[:, v, None, :] + along_y[:, v, :, None])
    return part.clamp_(0.0, 1.0)


def _draw(image: Tensor, layer: Layer, colour: Tensor, scale: float) -> None:
    """Blend one layer into image (N,size,size,3), touching only a patch around each anchor."""
    size = image.shape[1]
    side = min(size, math.ceil(2 * layer.reach * scale) + 3)
    steps = torch.arange(side, device=image.device)
    # nan_to_num: an index from NaN would lie outside the image, and a GPU cannot check values.
    origin = (layer.anchor * scale - side / 2).floor().nan_to_num(0.0).clamp(0, size - side)
    centres = origin[..., None] + (steps + 0.5)
    cover = layer.coverage(centres[:, 0], centres[:, 1], scale, image.dtype)
    if layer.alpha != 1:
        cover = cover * layer.alpha
    cell = origin.long()[..., None] + steps
    pixel = cell[:, 1, :, None] * (3 * size) + cell[:, 0, None, :] * 3
    # Channel-major patches: long contiguous rows for the blend, whatever the image's layout.
    channel = torch.arange(3, device=image.device)[:, None]
    index = (pixel.flatten(1)[:, None] + channel).flatten(1)
    flat = image.view(len(image), -1)
    patch = flat.gather(1, index).view(len(image), 3, -1)
    patch += (colour[..., None] - patch).mul_(cover.flatten(1)[:, None])
    flat.scatter_(1, index, patch.flatten(1))  # indices are unique in a frame: deterministic


def _levels(colour: Colour, device: torch.device, dtype: torch.dtype) -> Tensor:
    """A colour as (1,3) or (N,3), an image unchanged; levels clamped to 0..255."""
    if isinstance(colour, Tensor):
        levels = colour.to(dtype).clamp(0.0, 255.0)
        return levels[None] if levels.ndim == 1 else levels
    # Filled on the device: copying a host list would wait for it.
    return torch.stack([torch.full((1,), c, dtype=dtype, device=device) for c in colour], -1)


def _rows(values: Tensor, part: slice) -> Tensor:
    """The values of a chunk, given per frame or common to all."""
    return values if len(values) == 1 else values[part]


def _cut(layer: Layer, part: slice) -> Layer:
    if isinstance(layer, Discs):
        return replace(layer, centres=layer.centres[part])
    return replace(layer, vertices=layer.vertices[part], anchor=layer.anchor[part])


def _chunk(frames: int, size: int, device: torch.device, max_pixels: int | None) -> int:
    """Frames drawn at a time; a compiled graph is not unrolled over chunks unless asked to."""
    if max_pixels is None and torch.compiler.is_compiling():
        return max(1, frames)
    limit = max_pixels or (_CPU_PIXELS if device.type == "cpu" else _GPU_PIXELS)
    return max(1, min(frames, limit // (size * size)))


def _check(layers: Sequence[Layer], size: int) -> None:
    """Check what users pass: sizes, colours, states. Worlds set the shapes of layers."""
    _check_size(size)
    for layer in layers:
        _check_colour(layer.colour)
        for value in (
            (layer.centres,) if isinstance(layer, Discs) else (layer.anchor, layer.vertices)
        ):
            if not value.is_floating_point():
                raise DjepaError(f"States are {value.dtype}; convert them to float32 or float64.")
            free_look = value.device.type == "cpu" and not torch.compiler.is_compiling()
            if free_look and not value.isfinite().all():
                raise DjepaError("A frame is drawn from values that are not finite.")


def _check_size(size: int) -> None:
    if not isinstance(size, int) or size < 8:
        raise DjepaError(f"size is {size}; give a whole number of pixels, 8 or more.")


def _check_colour(colour: Colour) -> None:
    if isinstance(colour, Tensor):
        return
    if len(colour) != 3 or not all(0 <= level <= 255 for level in colour):
        raise DjepaError(f"A colour is {colour}; give three levels from 0 to 255.")
