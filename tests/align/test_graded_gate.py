"""Gates that are judged by quality: what opens them, and what keeps them shut."""

import pytest
import torch
from torch import Tensor

from djepa.align.gates import NEVER, Gate, calibrate
from djepa.align.presets import careful

WORST = 0.0


def gated(
    before: list[float],
    after: list[float],
    gain: list[float] | None = None,
    same: list[int] | None = None,
    level: float = 0.05,
) -> Gate:
    """Two candidates: the base takes the first, the aligned score the second, by its advantage."""
    N = len(before)
    base = torch.tensor([[0.0, 1.0]]).double().repeat(N, 1)
    refined = torch.tensor([[0.5, -g] for g in gain or [0.5] * N])
    quality = torch.tensor([before, after]).T.double()
    ids = torch.tensor([[1, 2]]).repeat(N, 1)
    number = None if same is None else torch.tensor(same)
    return calibrate(Gate(), base, refined, ids, quality, "graded", same=number, level=level)


def test_it_opens_for_a_shown_gain_of_quality() -> None:
    """Gains .1, .2, .3: mean .2, standard error .1 / √3; t = 3.46, one-sided p = 0.037."""
    before, after = [0.5] * 3, [0.6, 0.7, 0.8]
    assert gated(before, after).threshold < NEVER
    assert gated(before, after, level=0.01).threshold == NEVER
    assert gated(after, before).threshold == NEVER
    assert gated([0.5] * 3, [0.5] * 3).threshold == NEVER


def test_a_gain_does_not_pay_for_one_more_worst_outcome() -> None:
    """Forty gains of .1 and one loss of all: the mean rises, and the gate stays shut."""
    before, after = [0.5] * 41, [0.6] * 40 + [WORST]
    assert gated(before, after).threshold == NEVER
    assert gated([*before[:40], 0.1], [0.6] * 40 + [0.05]).threshold < NEVER  # bad, not the worst
    rescued = gated([WORST, *before], [0.5, *after])
    assert rescued.threshold < NEVER  # as often as before


def test_the_threshold_leaves_out_what_only_costs() -> None:
    """The largest advantages gain, the smallest lose: the gate opens between them."""
    gate = gated([0.5] * 8, [0.7, 0.8, 0.9, 0.8, 0.7, 0.9, 0.3, 0.3], [0.5] * 6 + [0.1] * 2)
    assert 0.1 < gate.threshold < 0.5


def test_scenes_of_one_log_are_one_start() -> None:
    """Three logs of three scenes: as certain as three scenes, and no more."""
    before, after = [0.5] * 9, [0.6, 0.6, 0.6, 0.9, 0.9, 0.9, 0.5, 0.5, 0.5]
    assert gated(before, after).threshold < NEVER
    assert gated(before, after, same=[0, 0, 0, 1, 1, 1, 2, 2, 2]).threshold == NEVER


@pytest.mark.parametrize(("by", "policy"), [("graded+ranks", "graded"), ("log+ranks", "careful")])
def test_graded_outcomes_have_a_graded_gate(by: str, policy: str) -> None:
    assert careful(("a",), (), by).policy == policy  # type: ignore[arg-type]  # one of the names


def test_unobserved_candidates_have_no_say() -> None:
    quality: Tensor = torch.tensor([[0.2, 0.9, 0.4], [0.3, 0.8, 0.1], [0.1, 0.8, 0.9]])
    observed = torch.tensor([[True, True, False]] * 3)
    scores = torch.tensor([[0.0, 0.5, 1.0]]), torch.tensor([[0.5, 0.0, 1.0]])
    base, refined = (x.repeat(3, 1).masked_fill(~observed, -9.0) for x in scores)
    ids = torch.arange(3).repeat(3, 1)
    one = calibrate(Gate(), base, refined, ids, quality, "graded", observed=observed)
    other = quality.masked_fill(~observed, 0.0)
    assert one == calibrate(Gate(), base, refined, ids, other, "graded", observed=observed)
    assert one.threshold < NEVER
