import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from djepa.errors import DjepaError
from djepa.worlds.raster import Discs, Layer, Polygons, paint_background, rasterise

CANVAS = 512.0
BLUE, GREY, GREEN = (65, 105, 225), (119, 136, 153), (144, 238, 144)
TEE = torch.tensor(
    [
        [[-60, -15], [60, -15], [60, 15], [-60, 15]],
        [[-15, 15], [15, 15], [15, 105], [-15, 105]],
    ],
    dtype=torch.float64,
)
TEE_REACH = math.hypot(15, 105)


def box(width: float, height: float) -> Tensor:
    return torch.tensor([[[-1, -1], [1, -1], [1, 1], [-1, 1]]], dtype=torch.float64) * (
        torch.tensor([width, height], dtype=torch.float64) / 2
    )


def place(shape: Tensor, centres: list[tuple[float, float]], angles: list[float]) -> Tensor:
    """Pose (P,V,2) per frame: (N,P,V,2)."""
    frames = []
    for centre, angle in zip(centres, angles, strict=True):
        c, s = math.cos(angle), math.sin(angle)
        turn = torch.tensor([[c, s], [-s, c]], dtype=torch.float64)
        frames.append(shape @ turn + torch.tensor(centre, dtype=torch.float64))
    return torch.stack(frames)


def body(
    shape: Tensor,
    centres: list[tuple[float, float]],
    angles: list[float],
    colour: object = (0, 0, 0),
    reach: float | None = None,
    alpha: float = 1.0,
) -> Polygons:
    reach = float(shape.norm(dim=-1).max()) if reach is None else reach
    anchor = torch.tensor(centres, dtype=torch.float64)
    return Polygons(place(shape, centres, angles), anchor, reach, colour, alpha)  # type: ignore[arg-type]


def scene(frames: int, seed: int = 0) -> list[Layer]:
    rng = np.random.default_rng(seed)

    def poses() -> tuple[list[tuple[float, float]], list[float]]:
        centres = rng.uniform(-20, 532, (frames, 2)).tolist()
        return centres, rng.uniform(-4, 4, frames).tolist()

    goal, block, pusher = poses(), poses(), poses()
    return [
        body(TEE, *goal, GREEN),
        body(TEE, *block, GREY, alpha=0.9),
        Discs(torch.tensor(pusher[0], dtype=torch.float64), 15.0, BLUE),
    ]


def cast(layer: Layer, dtype: torch.dtype, device: str = "cpu") -> Layer:
    if isinstance(layer, Discs):
        return replace(layer, centres=layer.centres.to(device, dtype))
    vertices, anchor = layer.vertices.to(device, dtype), layer.anchor.to(device, dtype)
    return replace(layer, vertices=vertices, anchor=anchor)


def only(layer: Layer, i: int) -> Layer:
    if isinstance(layer, Discs):
        return replace(layer, centres=layer.centres[i : i + 1])
    part = slice(i, i + 1)
    return replace(layer, vertices=layer.vertices[part], anchor=layer.anchor[part])


def ink(frames: Tensor) -> Tensor:
    """Covered pixels per frame, for black on white."""
    return (1 - frames[..., 0].double() / 255).sum((1, 2))


def sampled(parts: np.ndarray, size: int, grid: int = 16) -> np.ndarray:
    """Brute force: share of grid x grid points of each pixel that lie in any of the parts."""
    line = (np.arange(size * grid) + 0.5) * CANVAS / (size * grid)
    x, y = np.meshgrid(line, line)
    inside = np.zeros_like(x, dtype=bool)
    for part in parts:
        cross = []
        for (ax, ay), (bx, by) in zip(part, np.roll(part, -1, 0), strict=True):
            cross.append((bx - ax) * (y - ay) - (by - ay) * (x - ax))
        inside |= (np.min(cross, 0) >= 0) | (np.max(cross, 0) <= 0)
    return inside.reshape(size, grid, size, grid).mean((1, 3))


def near(points: np.ndarray, size: int, reach: float) -> np.ndarray:
    """Pixels whose centre lies within `reach` pixels of a point."""
    line = np.arange(size) + 0.5
    points = points.reshape(-1, 1, 1, 2) * size / CANVAS
    distance = np.hypot(line[None, None] - points[..., 0], line[None, :, None] - points[..., 1])
    return (distance < reach).any(0)


# ── against an independent reference ────────────────────────────────────────────────────────────


@pytest.mark.parametrize("angle", [0.0, 0.3, math.pi / 4, 1.9])
def test_tee_matches_supersampling(angle: float) -> None:
    layer = body(TEE, [(250.3, 243.1)], [angle])
    size = 64
    drawn = 1 - rasterise([layer], size)[0, ..., 0].numpy() / 255
    error = np.abs(drawn - sampled(layer.vertices[0].numpy(), size))
    assert error.mean() < 0.002
    # A half plane at 45 degrees differs by up to 0.043 from the box filter, sampling by 1/16.
    corners = near(layer.vertices[0].numpy(), size, 1.5)
    assert error[~corners].max() < 0.08
    assert error.max() < 0.3


def test_pixel_centres_and_axes() -> None:
    """A box over exactly columns 8..15 and rows 2..3 covers these and no others."""
    layer = body(box(128, 32), [(192, 48)], [0.0])
    want = torch.full((32, 32), 255, dtype=torch.uint8)
    want[2:4, 8:16] = 0
    assert torch.equal(rasterise([layer], 32)[0, ..., 0], want)


def test_half_covered_pixel_is_half_the_level() -> None:
    layer = body(box(128, 32), [(200, 48)], [0.0])  # half a pixel to the right of the one above
    row = rasterise([layer], 32)[0, 2, :, 0].tolist()
    assert row[8] == row[16] == 128
    assert row[9:16] == [0] * 7


@pytest.mark.parametrize("size", [64, 96, 112, 224])
def test_area_of_rotated_box_and_disc(size: int) -> None:
    angles = [0.0, 0.2, 0.5, math.pi / 4, 1.3]
    centres = [(250 + 3.7 * i, 260 - 2.9 * i) for i in range(5)]
    unit = (size / CANVAS) ** 2
    boxes = ink(rasterise([body(box(220, 130), centres, angles)], size))
    assert boxes / (220 * 130 * unit) == pytest.approx(np.ones(5), rel=0.005)
    discs = ink(rasterise([Discs(torch.tensor(centres), 80.0, (0, 0, 0))], size))
    assert discs / (math.pi * 80**2 * unit) == pytest.approx(np.ones(5), rel=0.005)


@settings(max_examples=40, deadline=None)
@given(
    st.floats(40, 200),
    st.floats(40, 200),
    st.floats(-7, 7),
    st.tuples(st.floats(-100, 612), st.floats(-100, 612)),
)
def test_any_box_is_right_inside_and_outside(
    width: float, height: float, angle: float, centre: tuple[float, float]
) -> None:
    size = 48
    layer = body(box(width, height), [centre], [angle], colour=(10, 20, 30))
    frame = rasterise([layer], size)[0].numpy()
    truth = sampled(layer.vertices[0].numpy(), size, grid=4)
    around = [
        np.lib.stride_tricks.sliding_window_view(np.pad(truth, 1, constant_values=v), (3, 3))
        for v in (0, 1)
    ]
    assert (frame[around[0].min((2, 3)) == 1] == (10, 20, 30)).all()
    assert (frame[around[1].max((2, 3)) == 0] == 255).all()
    covered = (255 - frame[..., 0].astype(float)) / 245
    assert np.abs(covered - truth).mean() < 0.02


# ── geometry ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [112, 224])
def test_no_seam_on_the_shared_edge(size: int) -> None:
    angles = np.linspace(0, 6.2, 23).tolist()
    centres = [(250 + 1.3 * i, 256 - 0.7 * i) for i in range(23)]
    frames = rasterise([body(TEE, centres, angles, GREY)], size, background=(255, 0, 255))
    # Points along and beside the shared edge, two pixels away from the sides of the stem.
    inset = 15 - 2 * CANVAS / size
    line = torch.linspace(-inset, inset, 9, dtype=torch.float64)
    for offset in (-3.0, -1.0, 0.0, 1.0, 3.0):
        points = torch.stack((line, torch.full_like(line, 15 + offset)), -1)[None]
        pixel = (place(points, centres, angles)[:, 0] * size / CANVAS).floor().long()
        seen = torch.stack([f[p[:, 1], p[:, 0]] for f, p in zip(frames, pixel, strict=True)])
        assert (seen == torch.tensor(GREY, dtype=torch.uint8)).all()


def test_disc_is_symmetric() -> None:
    frame = rasterise([Discs(torch.tensor([[256.0, 256.0]]), 77.0, BLUE)], 112)[0]
    assert torch.equal(frame, frame.flip(0))
    assert torch.equal(frame, frame.flip(1))
    assert torch.equal(frame, frame.transpose(0, 1))


def test_orientation_and_first_vertex_do_not_matter() -> None:
    layer = body(TEE, [(200, 220), (300.5, 280)], [0.4, 2.0])
    want = rasterise([layer], 112)
    for vertices in (layer.vertices.flip(2), layer.vertices.roll(1, 2), layer.vertices.flip(1)):
        assert torch.equal(rasterise([replace(layer, vertices=vertices)], 112), want)


def test_padding_with_repeated_vertices_and_empty_parts() -> None:
    shape = torch.tensor([[[-60.0, -40], [70, -30], [10, 50]]], dtype=torch.float64)
    layer = body(shape, [(250, 250)], [0.7])
    padded = torch.cat((layer.vertices, layer.vertices[:, :, -1:]), 2)
    empty = padded[:, :, :1].expand_as(padded)
    want = rasterise([layer], 96)
    assert ink(want)[0] > 100
    assert torch.equal(rasterise([replace(layer, vertices=padded)], 96), want)
    both = replace(layer, vertices=torch.cat((padded, empty), 1))
    assert torch.equal(rasterise([both], 96), want)


@pytest.mark.parametrize("size", [32, 112])
def test_patch_equals_whole_image(size: int) -> None:
    layers = scene(24, seed=3)
    whole = [replace(layer, reach=CANVAS) for layer in layers if isinstance(layer, Polygons)]
    assert torch.equal(rasterise(layers[:2], size), rasterise(whole, size))
    disc = layers[2]
    assert isinstance(disc, Discs)
    line = (torch.arange(size, dtype=torch.float64) + 0.5) * CANVAS / size
    x, y = line[None, None, :], line[None, :, None]
    distance = torch.hypot(x - disc.centres[:, :1, None], y - disc.centres[:, 1:, None])
    cover = (0.5 - (distance - 15) * size / CANVAS).clamp(0, 1)[..., None]
    want = 255 + cover * (torch.tensor(BLUE, dtype=torch.float64) - 255)
    assert (rasterise([disc], size).double() - want).abs().max() <= 0.51


def test_partly_outside_shows_the_visible_part() -> None:
    """The left half of a canvas shifted by half its side is the right half of the other."""
    size, half = 64, CANVAS / 2
    for angle in (0.0, 0.6, 2.2):
        inside = rasterise([body(TEE, [(half, 200)], [angle], GREY)], size)
        left = rasterise([body(TEE, [(0, 200)], [angle], GREY)], size)
        right = rasterise([body(TEE, [(CANVAS, 200)], [angle], GREY)], size)
        assert torch.equal(left[:, :, : size // 2], inside[:, :, size // 2 :])
        assert torch.equal(right[:, :, size // 2 :], inside[:, :, : size // 2])
        assert (left[:, :, size // 2 :] == 255).all()


@pytest.mark.parametrize("where", [(-200.0, 250.0), (900.0, 900.0), (250.0, 1e9), (-1e30, 1e30)])
def test_wholly_outside_draws_nothing(where: tuple[float, float]) -> None:
    centres = [where, (256.0, 256.0)]
    disc = Discs(torch.tensor(centres), 30.0, BLUE)
    for layer in (body(TEE, centres, [0.3, 0.3]), disc):
        frames = rasterise([layer], 64)
        assert (frames[0] == 255).all()
        assert (frames[1] != 255).any()


# ── colours, layers, backgrounds ────────────────────────────────────────────────────────────────


def test_later_layers_cover_earlier_ones() -> None:
    disc = Discs(torch.tensor([[256.0, 256.0]]), 20.0, BLUE)
    tee = body(box(100, 100), [(256, 256)], [0.5], GREY)
    assert rasterise([tee, disc], 64)[0, 32, 32].tolist() == list(BLUE)
    assert rasterise([disc, tee], 64)[0, 32, 32].tolist() == list(GREY)


def test_colour_per_frame_and_alpha() -> None:
    colours = torch.tensor([[255, 0, 0], [0, 255, 0], [10, 20, 30]])
    centres = torch.full((3, 2), 256.0)
    frames = rasterise([Discs(centres, 60.0, colours)], 64, max_pixels=2 * 64 * 64)
    assert torch.equal(frames[:, 32, 32].long(), colours)
    same = rasterise([Discs(centres, 60.0, colours[0])], 64)
    assert (same[:, 32, 32] == colours[0]).all()
    faint = rasterise([Discs(centres, 60.0, (0, 0, 0), alpha=0.25)], 64, background=(200, 100, 40))
    assert faint[0, 32, 32].tolist() == [150, 75, 30]


def test_backgrounds() -> None:
    disc = Discs(torch.tensor([[20.0, 20.0], [400.0, 400.0]]), 15.0, (1, 2, 3))
    image = torch.randint(0, 256, (64, 64, 3), dtype=torch.uint8)
    frames = rasterise([disc], 64, background=image)
    assert torch.equal(frames[0, 10:], image[10:])
    assert torch.equal(rasterise([disc], 64, background=image.double()), frames)
    per_frame = rasterise([disc], 64, background=torch.tensor([[9, 8, 7], [6, 5, 4]]))
    assert per_frame[:, 30, 30].tolist() == [[9, 8, 7], [6, 5, 4]]
    assert rasterise([disc], 64, background=torch.tensor([9, 8, 7]))[1, 30, 30].tolist() == [
        9,
        8,
        7,
    ]


def test_painted_background_has_walls() -> None:
    walls = [((100, 100), (400, 100)), ((400, 100), (400, 400)), ((50, 450), (50, 450))]
    size = 128
    image = paint_background(size, CANVAS, (250, 240, 230), walls, 20.0, (10, 20, 30))
    assert image.shape == (size, size, 3)
    assert image[25, 60].tolist() == [10, 20, 30]
    assert image[70, 60].tolist() == [250, 240, 230]
    assert torch.equal(
        image, paint_background(size, CANVAS, (250, 240, 230), walls[::-1], 20.0, (10, 20, 30))
    )
    covered = ((250 - image[..., 0]) / 240)[:108, :].sum() * (CANVAS / size) ** 2
    # Two capsules, less what they share: at a right angle, three quarters of a disc and a square.
    shared = 20**2 * (0.75 * math.pi + 1)
    assert covered == pytest.approx(2 * (300 * 40 + math.pi * 400) - shared, rel=0.01)
    plain = paint_background(16, CANVAS, (1, 2, 3))
    assert (plain == torch.tensor([1, 2, 3])).all()


# ── the same pixels however it is run ───────────────────────────────────────────────────────────


def test_batch_and_chunks_change_no_bit() -> None:
    layers = scene(9)
    background = paint_background(56, CANVAS, (255, 255, 255), [((5, 5), (5, 507))], 4.0, GREY)
    together = rasterise(layers, 56, background=background)
    for frames in (1, 2, 5):
        pixels = frames * 56 * 56
        assert torch.equal(
            rasterise(layers, 56, background=background, max_pixels=pixels), together
        )
    for i, frame in enumerate(together):
        alone = rasterise([only(layer, i) for layer in layers], 56, background=background)
        assert torch.equal(alone[0], frame)
    assert together.shape == (9, 56, 56, 3)
    assert together.dtype == torch.uint8
    none = [replace(layers[2], centres=torch.empty(0, 2))]  # type: ignore[call-arg]
    assert rasterise(none, 56).shape == (0, 56, 56, 3)


@pytest.mark.parametrize("size", [64, 112, 224])
def test_single_precision_is_within_one_level_of_double(size: int) -> None:
    """What rounding differences between devices can do: the same code in both precisions."""
    layers = scene(40, seed=size)
    double = rasterise(layers, size, dtype=torch.float64).int()
    mixed = rasterise(layers, size).int()
    single = rasterise([cast(layer, torch.float32) for layer in layers], size).int()
    assert (mixed - double).abs().max() <= 1
    assert (single - double).abs().max() <= 1
    assert (single != double).float().mean() < 1e-3


def test_no_gradient_and_inputs_untouched() -> None:
    layer = body(TEE, [(250, 250)], [0.3])
    kept = layer.vertices.clone()
    image = torch.full((32, 32, 3), 99.0)
    learned = replace(layer, vertices=layer.vertices.requires_grad_())
    assert not rasterise([learned], 32, background=image).requires_grad
    assert torch.equal(layer.vertices.detach(), kept)
    assert (image == 99).all()


def test_compiles_to_one_graph() -> None:
    layers = scene(3)

    def draw(vertices: Tensor, anchor: Tensor, centres: Tensor) -> Tensor:
        tee = Polygons(vertices, anchor, TEE_REACH, GREY)
        return rasterise([tee, Discs(centres, 15.0, BLUE)], 32)

    assert isinstance(layers[0], Polygons)
    inputs = layers[0].vertices, layers[0].anchor, layers[2].anchor
    compiled = torch.compile(draw, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(*inputs), draw(*inputs))


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cuda_agrees_with_cpu_and_never_waits(dtype: torch.dtype) -> None:
    layers = [cast(layer, dtype) for layer in scene(64)]
    there = [cast(layer, dtype, "cuda") for layer in layers]
    walls = [((5.0, 5.0), (5.0, 507.0))]
    background = paint_background(112, CANVAS, (255, 255, 255), walls, 4.0, GREY)
    copied = background.cuda()
    rasterise(there, 112, background=copied)
    torch.cuda.set_sync_debug_mode("error")
    try:
        frames = rasterise(there, 112, background=copied)
        again = rasterise(there, 112, background=copied)
        plain = rasterise(there, 112)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    want = rasterise(layers, 112, background=background).int()
    assert (frames.cpu().int() - want).abs().max() <= 1
    assert torch.equal(frames, again)
    assert (plain.cpu().int() - rasterise(layers, 112).int()).abs().max() <= 1


# ── bad input ───────────────────────────────────────────────────────────────────────────────────


def disc_of(centres: object, **changes: object) -> Discs:
    given = {"centres": centres, "radius": 15.0, "colour": BLUE} | changes
    return Discs(**given)  # type: ignore[arg-type]


OK = torch.full((2, 2), 100.0)
GOOD = body(TEE, [(250, 250), (200, 200)], [0.0, 0.0])
BAD_LAYERS = [
    (disc_of(OK * math.nan), "not finite"),
    (disc_of(OK.long()), "States are torch.int64"),
    (disc_of(OK, colour=(0, 0, 256)), "A colour is"),
    (disc_of(OK, colour=(0, 0)), "A colour is"),
    (replace(GOOD, vertices=GOOD.vertices / 0), "not finite"),
    (replace(GOOD, anchor=GOOD.anchor * math.inf), "not finite"),
]


@pytest.mark.parametrize(("layer", "message"), BAD_LAYERS)
def test_bad_layers_are_named(layer: Layer, message: str) -> None:
    with pytest.raises(DjepaError, match=message):
        rasterise([layer], 32)


def test_bad_sizes_and_colours_are_named() -> None:
    layers = [disc_of(OK)]
    for size in (7, 32.0):
        with pytest.raises(DjepaError, match="size is"):
            rasterise(layers, size)  # type: ignore[arg-type]
    with pytest.raises(DjepaError, match="A colour is"):
        rasterise(layers, 32, background=(1, 2, 300))
    with pytest.raises(DjepaError, match="A colour is"):
        paint_background(32, CANVAS, BLUE, wall_colour=(1, 2, -3))
