"""The align bench measures what it says; no time is asserted."""

import torch

from djepa.bench.align import bench_align, problem
from djepa.bench.measure import Options


def test_every_row_is_measured() -> None:
    options = Options(candidates=8, fit=14, updates=1)
    fit, decide, lift = bench_align(options, lambda line: None)
    assert [row.what for row in (fit, decide, lift)] == ["fit", "decide", "ordinal lift"]
    assert fit.ratio is None
    assert fit.note.startswith("14 x 8, 1 updates")
    assert all(row.ours > 0 and row.plain for row in (decide, lift))


def test_problems_are_drawn_by_name_and_can_be_learnt_from() -> None:
    evidence, outcomes = problem("a", 40, 63, 16)
    again, other = (problem(name, 40, 63, 16)[0] for name in "ab")
    assert torch.equal(evidence.latents["lewm"], again.latents["lewm"])
    assert not torch.equal(evidence.latents["lewm"], other.latents["lewm"])
    assert outcomes.mixed.float().mean() > 0.9
    rank = evidence.ranks()[..., 0]
    assert rank[outcomes.success].mean() < 0.25  # nearer the goal, likelier to succeed
    assert 0.5 < rank[~outcomes.success].mean() < 0.6
