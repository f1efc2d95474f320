"""Self-distillation: assignments, views, masks, and a student that learns."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from djepa.models.distil import (
    GLOBAL,
    LOCAL,
    PROTOTYPES,
    Student,
    _assign,
    _views,
    distil_loss,
    draw_views,
)
from djepa.models.nets import ViT
from djepa.models.step import Step


def student() -> Student:
    torch.manual_seed(0)
    return Student(ViT(image=56, patch=14, width=12, depth=1, heads=3, hidden=24))


def images(count: int) -> torch.Tensor:
    """White frames with one dark square each."""
    random = torch.Generator().manual_seed(0)
    frames = torch.ones(count, 3, 56, 56)
    for i, (x, y) in enumerate(torch.randint(0, 40, (count, 2), generator=random).tolist()):
        frames[i, :, y : y + 12, x : x + 12] = 0.2
    return frames


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), rows=st.integers(2, 64))
def test_assignments_are_shares_and_use_all_prototypes_alike(seed: int, rows: int) -> None:
    random = torch.Generator().manual_seed(seed)
    shares = _assign(torch.empty(rows, 4).uniform_(-0.2, 0.2, generator=random))
    assert torch.allclose(shares.sum(1), torch.ones(rows), atol=1e-5)
    assert (shares >= 0).all()
    lopsided = torch.zeros(64, 4)
    lopsided[:, 0] = 0.5 + torch.linspace(0, 0.01, 64)  # everybody likes the first best
    assert torch.allclose(_assign(lopsided).mean(0), torch.full((4,), 0.25), atol=0.02)


def test_masks_hide_what_was_drawn() -> None:
    net, frames = student().eval(), images(2)
    none = torch.zeros(2, 16, dtype=torch.bool)
    one = none.clone()
    one[:, 5] = True
    altered = frames.clone()
    altered[:, :, 14:28, 14:28] = 0.7  # patch 5 of a 4 x 4 grid
    with torch.no_grad():
        assert not torch.allclose(net.tokens(frames, none), net.tokens(altered, none))
        assert torch.allclose(net.tokens(frames, one), net.tokens(altered, one))
    _, masked = draw_views(4096, 64, torch.Generator().manual_seed(0))
    shares = masked.float().mean(1)
    assert (shares == 0).float().mean() > 0.4
    assert 0.2 < shares[shares > 0].mean() < 0.4


def test_views_show_the_frame_and_the_numbers_decide() -> None:
    numbers, _ = draw_views(3, 16, torch.Generator().manual_seed(0))
    assert numbers.shape[0] == GLOBAL + LOCAL
    small = _views(images(3), numbers[GLOBAL:], 28, (0.15, 0.4))
    assert small.shape == (LOCAL * 3, 3, 28, 28)
    assert torch.isfinite(small).all()
    assert torch.equal(small, _views(images(3), numbers[GLOBAL:], 28, (0.15, 0.4)))
    still = numbers[:1].clone()
    still[..., 0], still[..., 1], still[..., 2], still[..., 5] = 1.0, 0.0, 0.0, 0.0
    still[..., 6:15], still[..., 15:17] = 0.5, 1.0  # no mixing, no grey, no inversion
    still[..., 17], still[..., 18:21] = 0.5, 0.5
    assert torch.allclose(_views(images(3), still, 56, (0.4, 1.0)), images(3), atol=1e-4)


def test_the_student_learns_and_the_teacher_follows() -> None:
    net, frames = student(), images(8)
    random = torch.Generator().manual_seed(0)
    draws = [draw_views(8, 16, random) for _ in range(4)]

    def loss(numbers: torch.Tensor, masked: torch.Tensor) -> torch.Tensor:
        assert step.shadow is not None
        return distil_loss(net, step.shadow, frames, numbers, masked)

    step = Step(loss, net, 3e-3, 0.0, keep=0.9)
    values = [step(draws[i % 4], 0.1 + i / 200).item() for i in range(24)]
    assert values[-1] < 0.9 * values[0]
    teacher = step.average()
    assert not any(p.requires_grad for p in teacher.parameters())
    assert not torch.equal(teacher.mask, torch.zeros(12))
    assert teacher.whole(torch.zeros(1, 12)).shape == (1, PROTOTYPES)
