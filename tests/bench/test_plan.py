"""The plan bench measures the ways it names; no time is asserted."""

import copy

import pytest
import torch
from torch import nn

from djepa.align.fit import AlignConfig, Alignment
from djepa.bench import subject
from djepa.bench.align import problem
from djepa.bench.measure import Options
from djepa.bench.plan import WAYS, Setting, bench_plan, way_rows
from djepa.bench.subject import decisions
from djepa.errors import DjepaError
from djepa.models import fallback
from djepa.models.lewm import LeWM
from djepa.models.tdjepa import TDJEPA
from tiny import TINY

OPTIONS = Options(inputs=2, compared=3, repeats=1)
on_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture(scope="module")
def setting() -> Setting:
    random, models = torch.Generator().manual_seed(0), {}
    for kind in (LeWM, TDJEPA):
        models[kind.name] = kind(TINY).eval().requires_grad_(False)
        for parameter in models[kind.name].parameters():
            nn.init.normal_(parameter, std=0.2, generator=random)
    fit, cal = (problem(split, 24, 8, latent=16) for split in ("fit", "cal"))
    alignment = Alignment(AlignConfig(updates=10, every=10)).fit(*fit).calibrate(*cal)
    return Setting("tiny", models, alignment, decisions(28, 3, 8), "cpu")


def test_every_way_has_its_models_first_and_then_its_plans(setting: Setting) -> None:
    rows = [*way_rows(setting, ("bf16", "float32"), OPTIONS, lambda line: None)]
    labels = "float32", "bf16 + recorded + best 16 again in float32", "float32 + recorded"
    assert [row.what for row in rows] == [
        f"tiny, {label}, {what}" for label in labels for what in ("models", "plans")
    ]
    for row in rows[::2]:
        assert row.details["first_seconds"] > 0
    for row in rows[1::2]:
        assert (row.details["compared"], row.details["changed"]) == (3, 0)  # 16 are all of them
    assert [row.plain for row in rows] == 3 * [rows[0].ours, rows[1].ours]


def test_a_refused_way_is_not_measured(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(fallback, "ROUGH", -1.0)
    rows = [*way_rows(setting, ("bf16", "fp16x3"), OPTIONS, said.append)]
    assert [row.what.split(", ")[1] for row in rows[::2]] == ["float32", "fp16x3 + recorded"]
    (line,) = [line for line in said if "does not work here" in line]
    assert "bf16" in line
    assert "is off by" in line


def test_the_limit_leaves_ways_out(setting: Setting) -> None:
    said: list[str] = []
    short = Options(inputs=2, compared=3, repeats=1, limit=0.0)
    rows = [*way_rows(setting, ("bf16",), short, said.append)]
    assert [row.what for row in rows] == ["tiny, float32, models", "tiny, float32, plans"]
    assert said[-1].endswith("left out, the time is spent")


def test_ways_are_selected_by_name() -> None:
    with pytest.raises(DjepaError, match="Did you mean 'bf16'"):
        next(bench_plan(Options(ways=("bf61",)), lambda line: None))


def test_blocks_and_splits_of_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    one = decisions(28, 3, 5)
    monkeypatch.setattr(subject, "BLOCK", 2)
    assert all(torch.equal(a, b) for a, b in zip(decisions(28, 3, 5), one, strict=True))
    assert not torch.equal(decisions(28, 3, 5, split="other").frames, one.frames)


@on_cuda
@pytest.mark.parametrize("name", WAYS)
def test_every_way_works_on_a_gpu(name: str, setting: Setting) -> None:
    alignment = copy.deepcopy(setting.alignment)
    assert alignment.operator is not None
    alignment.operator.to("cuda")
    there = Setting(
        "tiny", copy.deepcopy(setting.models), alignment, decisions(28, 3, 8, "cuda"), "cuda"
    )
    rows = [*way_rows(there, (name,), OPTIONS, lambda line: None)]
    assert len(rows) == 4
