import numpy as np
import pytest
import torch

from djepa.errors import DjepaError
from djepa.worlds import granular_draw
from djepa.worlds.granular import VIEW, GranularWorld, as_state, places, reset_places
from djepa.worlds.granular_draw import GranularLook, coverage, draw_granular
from djepa.worlds.raster import Discs, rasterise

LOOK = GranularLook()


def apart(frames: int, grains: int, seed: int = 0) -> torch.Tensor:
    """(N, n, 2) grains of radius 0.1 that share no pixel at 64, some beyond the edge."""
    rng = np.random.default_rng(seed)
    cells = np.stack([rng.permutation(36)[:grains] for _ in range(frames)])
    places = np.stack([cells % 6, cells // 6], axis=-1) - 2.5
    return torch.from_numpy(places * 1.0 + rng.uniform(-0.2, 0.2, places.shape))


@pytest.mark.parametrize("size", [8, 48, 64, 113])
def test_one_grain_is_the_rasterisers_disc(size):
    grains = torch.from_numpy(np.random.default_rng(0).uniform(-2.7, 2.7, (50, 1, 2)))
    want = rasterise(
        [Discs(grains[:, 0] + VIEW, 0.15, LOOK.grain)],
        size,
        canvas=2 * VIEW,
        background=LOOK.table,
    )
    assert torch.equal(draw_granular(grains, 0.15, size), want)


def test_many_grains_are_the_rasterisers_discs_one_by_one():
    grains = apart(7, 20)
    discs = [Discs(grains[:, i] + VIEW, 0.1, LOOK.grain) for i in range(20)]
    want = rasterise(discs, 64, canvas=2 * VIEW, background=LOOK.table)
    assert torch.equal(draw_granular(grains, 0.1, 64), want)


def test_neither_order_nor_chunks_change_a_pixel(monkeypatch):
    world = GranularWorld(100)
    heap = world.execute(world.snapshot(), np.array([[[-2.0, 0.0, 0.5, 0.0]]] * 9))[:, -1]
    grains = torch.from_numpy(places(heap).copy())
    want = draw_granular(grains, world.radius, 96)
    order = torch.randperm(100, generator=torch.Generator().manual_seed(0))
    assert torch.equal(draw_granular(grains[:, order], world.radius, 96), want)
    monkeypatch.setattr(granular_draw, "_CPU_CELLS", 1)
    assert torch.equal(draw_granular(grains, world.radius, 96), want)


def test_the_covered_area_is_that_of_the_grains():
    world = GranularWorld(100)
    grains = torch.from_numpy(places(world.snapshot())[None].copy())
    for size in (112, 224):
        area = float(coverage(grains, world.radius, size, VIEW).sum())
        radius = world.radius * size / (2 * VIEW)
        # An edge that fades linearly over one pixel adds the twelfth.
        assert area == pytest.approx(100 * np.pi * (radius**2 + 1 / 12), rel=0.01)


def test_where_things_are():
    grains = torch.tensor([[[1.25, -1.25]]])  # right of the middle and above it: y points down
    frame = draw_granular(grains, 0.2, 40)[0]
    assert frame[10, 30].tolist() == list(LOOK.grain)
    assert frame[30, 10].tolist() == list(LOOK.table)
    wide = draw_granular(grains, 0.4, 40, look=GranularLook(view=5.0))[0]
    assert wide[15, 25].tolist() == list(LOOK.grain)


def test_the_goal_lies_beneath():
    grains, goal = torch.zeros(2, 1, 2), torch.tensor([[0.0, 0.0], [1.25, 1.25]])
    frames = draw_granular(grains, 0.2, 40, goal)
    assert frames[:, 20, 20].tolist() == [list(LOOK.grain)] * 2
    assert frames[:, 30, 30].tolist() == [list(LOOK.goal)] * 2
    assert torch.equal(draw_granular(grains, 0.2, 40, goal.expand(2, 2, 2)), frames)


def test_grains_out_of_view_are_not_drawn():
    far = torch.tensor([[[2.8, 0.0], [-50.0, 3.0], [0.0, 1e9]]], dtype=torch.float64)
    frame = draw_granular(far, 0.1, 32)
    assert (frame == torch.tensor(LOOK.table, dtype=torch.uint8)).all()


def test_the_world_draws_any_batch():
    world = GranularWorld(30)
    states = world.execute(world.snapshot(), np.array([[[-2.0, 0.0, 0.5, 0.0]] * 2] * 3))
    frames = world.render(states, 50)
    assert frames.shape == (3, 3, 50, 50, 3)
    assert np.array_equal(world.render(states[1, 2], 50), frames[1, 2])
    assert world.render(states[:0], 50).shape == (0, 3, 50, 50, 3)
    with_goal = world.render(states, 50, goal=as_state(reset_places(30) + 1.0))
    assert (with_goal != frames).any(axis=(2, 3, 4)).all()
    red = world.render(states, 50, look=GranularLook(grain=(255, 0, 0)))
    assert (red[..., 1] < 20).any()


def test_single_precision_differs_by_little():
    grains = apart(5, 30)
    double, single = (draw_granular(g, 0.1, 64).int() for g in (grains, grains.float()))
    assert (double - single).abs().max() <= 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_the_gpu_draws_the_same():
    grains = apart(64, 30)
    here, there = (draw_granular(g, 0.1, 64, g[0]).cpu().int() for g in (grains, grains.cuda()))
    assert (here - there).abs().max() <= 1


def test_it_can_be_compiled_into_a_graph():
    grains = apart(3, 10)
    exported = torch.export.export(_Draw(), (grains,)).module()
    assert torch.equal(exported(grains), draw_granular(grains, 0.1, 64))


class _Draw(torch.nn.Module):
    def forward(self, grains: torch.Tensor) -> torch.Tensor:
        return draw_granular(grains, 0.1, 64)


def test_bad_input_is_refused():
    world, good = GranularWorld(4), torch.zeros(2, 3, 2)
    for size in (7, 32.0):
        with pytest.raises(DjepaError, match="size is"):
            draw_granular(good, 0.1, size)
    for bad in (torch.zeros(3, 2), torch.zeros(1, 3, 4), torch.zeros(1, 3, 2, dtype=torch.long)):
        with pytest.raises(DjepaError, match="floats"):
            draw_granular(bad, 0.1, 32)
    with pytest.raises(DjepaError, match="not finite"):
        draw_granular(torch.full((1, 3, 2), torch.nan), 0.1, 32)
    with pytest.raises(DjepaError, match="view is"):
        GranularLook(view=0.0)
    with pytest.raises(DjepaError, match="16 numbers a state"):
        world.render(np.zeros(10))
    with pytest.raises(DjepaError, match="one state or one per state"):
        world.render(np.zeros((2, 16)), goal=np.zeros((3, 16)))
