"""The align bench measures what it says; no time is asserted."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from commands import djepa
from djepa.align.fit import AlignConfig, Alignment
from djepa.align.gates import Gate, Mode, calibrate
from djepa.align.objectives import RelationalLoss
from djepa.bench.align import AlignBench, bench_align
from djepa.bench.align_work import (
    LiftInputs,
    calibrate_by_loop,
    checked,
    decide_and_lift,
    lift_inputs,
    loss_by_rows,
    problem,
)
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence
from djepa.evidence.ranks import strict_ranks
from djepa.lift.ordinal import native_distance, realize
from djepa.models.graph import record

TINY = AlignBench(starts=3, candidates=8, many=20, fit=21, updates=2, latent=16)


@pytest.fixture(scope="module")
def alignment() -> Alignment:
    config = AlignConfig(updates=3, rate=3e-2)
    return Alignment(config).fit(*TINY.problem("fit", 21)).calibrate(*TINY.problem("cal", 6))


def test_the_command_writes_every_row(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    sizes = ["--starts", "3", "--candidates", "8", "--many", "20", "--fit", "14", "--updates", "1"]
    done = djepa("bench", "align", *sizes, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "| ordinal lift |" in done.stdout
    numbers = json.loads(out.read_text())
    assert {"device", "threads", "torch", "starts", "candidates", "fit", "updates", "rows"} == set(
        numbers
    )
    assert [row["what"] for row in numbers["rows"]] == [
        "fit",
        "gate",
        "decide",
        "20 candidates",
        "memory of 20 candidates",
        "loss",
        "ordinal lift",
        "decide and lift",
    ]
    against = ("gate", "decide", "loss", "ordinal lift", "decide and lift")
    for row in numbers["rows"]:
        assert (row["ratio"] is None) == (row["what"] not in against)


def test_problems_are_drawn_by_name_and_can_be_learnt_from() -> None:
    evidence, outcomes = problem("a", 40, 63, 16, "cpu")
    again, other = (problem(name, 40, 63, 16, "cpu")[0] for name in "ab")
    assert torch.equal(evidence.latents["lewm"], again.latents["lewm"])
    assert not torch.equal(evidence.latents["lewm"], other.latents["lewm"])
    assert outcomes.mixed.float().mean() > 0.9
    rank = evidence.ranks()[..., 0]
    assert rank[outcomes.success].mean() < 0.25  # nearer the goal, likelier to succeed
    assert 0.5 < rank[~outcomes.success].mean() < 0.6


def fast_inputs(alignment: Alignment) -> tuple[Evidence, LiftInputs]:
    """Candidates by ID, as `decide` sorts them before it sums."""
    evidence, _ = TINY.problem("test", 9)
    evidence = evidence.columns(evidence.ids.argsort(dim=1))
    return evidence, lift_inputs(alignment, evidence)


@pytest.mark.parametrize("threshold", [None, -1.0, 0.02])
def test_the_fast_path_is_the_public_one(alignment: Alignment, threshold: float | None) -> None:
    evidence, (operator, gate, *rest) = fast_inputs(alignment)
    gate = gate if threshold is None else Gate(threshold)
    public = Alignment(alignment.config)
    public.__dict__.update({**alignment.__dict__, "gate": gate})
    decision = public.decide(evidence)
    fast = decide_and_lift(operator, gate, *rest)
    ids, futures, goal = rest[-3:]
    assert torch.equal(fast.choice, decision.choice)
    assert torch.equal(fast.final, decision.final)
    assert torch.equal(fast.futures, realize(futures, goal, decision.final, ids))
    assert torch.equal(fast.futures, checked(operator, gate, *rest))
    assert fast.ordered.all()
    read = native_distance(fast.futures, goal)
    assert torch.equal(strict_ranks(read, ids), strict_ranks(decision.final, ids))


def test_the_fast_path_never_waits_for_a_value(alignment: Alignment) -> None:
    """Tensors without values: whoever looks into one fails."""
    _, (operator, gate, *rest) = fast_inputs(alignment)
    empty = Alignment(alignment.config).fresh(operator.config.inputs).to("meta").eval()
    given = [x.to("meta") for x in rest]
    lifted = decide_and_lift(empty, gate, *given)
    assert lifted.futures.shape == given[3].shape
    with pytest.raises((RuntimeError, NotImplementedError)):
        checked(empty, gate, *given)


def test_ranks_that_cannot_be_kept_apart_show(alignment: Alignment) -> None:
    _, (operator, gate, tokens, base, ids, futures, goal) = fast_inputs(alignment)
    goal = goal.clone()
    goal[1] = 60000.0
    ordered = decide_and_lift(operator, gate, tokens, base, ids, futures, goal).ordered
    assert ordered.tolist() == [True, False, *[True] * 7]


@pytest.mark.parametrize("tail", [1, 3, 16])
@pytest.mark.parametrize("observed", [0.6, 1.1])
def test_the_loss_is_that_of_a_loop_over_rows(tail: int, observed: float) -> None:
    loss, g = RelationalLoss(tail=tail), torch.Generator().manual_seed(tail)
    scores, seen = torch.rand(8, 12, generator=g), torch.rand(8, 12, generator=g) < observed
    success, ids = torch.rand(8, 12, generator=g) < 0.3, torch.rand(8, 12, generator=g).argsort(1)
    seen[:, :2], success[:, 0], success[:, 1] = True, True, False
    delta = torch.rand(8, 12, generator=g, requires_grad=True)
    ours = loss(scores + delta, delta, success, seen, ids)[0]
    plain = loss_by_rows(loss, scores + delta, delta, success, seen, ids)
    torch.testing.assert_close(ours, plain, rtol=1e-6, atol=1e-6)
    here, there = (torch.autograd.grad(value, delta)[0] for value in (ours, plain))
    torch.testing.assert_close(here, there, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mode", ["base_minus_refined", "refined_gap"])
@pytest.mark.parametrize("decimals", [None, 1])
def test_the_gate_is_that_of_a_loop_over_thresholds(mode: Mode, decimals: int | None) -> None:
    g, gate = torch.Generator().manual_seed(0), Gate(mode=mode, decimals=decimals)
    for N in (1, 2, 7, 30, 64):
        for coarse in (5, 1000):
            base, refined = (torch.randint(0, coarse, (N, 6), generator=g) / 10 for _ in range(2))
            ids, success = (torch.rand(N, 6, generator=g) for _ in range(2))
            given = base, refined, ids.argsort(1), success < 0.4
            assert calibrate(gate, *given) == calibrate_by_loop(gate, *given)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"starts": 0}, "starts must be at least 1"),
        ({"candidates": 1}, "candidates must be at least 2"),
        ({"fit": 6}, "fit must be at least 7"),
        ({"device": "gpu"}, "Unknown device 'gpu'"),
    ],
)
def test_bad_requests_are_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(DjepaError, match=message):
        AlignBench(**changes)  # type: ignore[arg-type]


def test_a_missing_gpu_is_named() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(DjepaError, match="No CUDA device here"):
        AlignBench(device="cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu_the_call_is_recorded(alignment: Alignment) -> None:
    what = [row.what for row in bench_align(replace(TINY, device="cuda"), lambda line: None)]
    assert what[-1] == "decide and lift, recorded"
    evidence, _ = problem("test", 9, 8, 16, "cuda")
    given = lift_inputs(alignment, evidence)
    given[0].cuda()
    eager = decide_and_lift(*given)
    replay = record(lambda: decide_and_lift(*given), ())
    assert replay is not None
    held = replay.out
    replay()
    torch.cuda.synchronize()
    given[0].cpu()  # others use it
    assert torch.equal(held.choice, eager.choice)
    torch.testing.assert_close(held.futures, eager.futures)
