"""Whatever arrays come: a candidate of the pool is chosen, in whatever order and batches they come,
or one of our errors says what is wrong with them.

`EXAMPLES=1000 python -m pytest tests/align/test_any_arrays.py` takes minutes; without it there are
few cases of each.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import djepa
from djepa.align.fit import Alignment, Decision
from djepa.align.presets import best_for, published_for
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence

EXAMPLES = int(os.environ.get("EXAMPLES", "40"))
SETTINGS = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
NAMES, D, MOST = ("one", "two"), 3, 2**63 - 1
Arrays = dict[str, Any]


@dataclass
class Case:
    """What `Evidence.from_arrays` takes, and outcomes."""

    given: Arrays
    success: Any

    @property
    def evidence(self) -> Evidence:
        return Evidence.from_arrays(**self.given)

    def rows(self, at: np.ndarray) -> "Case":
        """Some starts, or all in another order."""
        take = {k: v[at] for k, v in self.given.items() if not isinstance(v, dict)}
        deep = {k: {n: x[at] for n, x in v.items()} for k, v in self.given.items() if k not in take}
        return Case({**take, **deep}, self.success[at])

    def columns(self, at: np.ndarray) -> "Case":
        """The candidates in another order: (K,) positions."""
        found = {"candidate_ids": self.given["candidate_ids"][:, at]}
        for kind in ("costs", "latents"):
            found[kind] = {name: x[:, at] for name, x in self.given[kind].items()}
        return Case({**self.given, **found}, self.success[:, at])


def made(seed: int, N: int, K: int, levels: int, scale: float, dtype: str, top: bool) -> Case:
    """Costs of so many levels, so that there are ties; IDs up to the largest there is."""
    rng = np.random.default_rng(seed)
    ids = rng.random((N, 5 * K)).argsort(1)[:, :K].astype(np.int64)
    ids = MOST - ids if top else ids
    costs = {n: (rng.integers(0, levels, (N, K)) * scale).astype(dtype) for n in NAMES}
    latents = {n: rng.integers(-levels, levels + 1, (N, K, D)).astype(dtype) for n in NAMES}
    given = {
        "start_ids": np.array([f"{seed}-{n}" for n in range(N)]),
        "candidate_ids": ids,
        "costs": costs,
        "latents": latents,
        "goals": {n: rng.normal(size=(N, D)).astype(dtype) for n in NAMES},
    }
    return Case(given, rng.random((N, K)) < 0.5)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Sound arrays."""
    dtype = draw(st.sampled_from(["float64", "float32", "float16"]))
    scales = [1.0, 0.1] if dtype == "float16" else [1.0, 0.1, 1e-30, 1e30]
    sizes = draw(st.integers(1, 6)), draw(st.integers(2, 24))
    levels = draw(st.sampled_from([1, 2, 5, 1000]))
    scale, top = draw(st.sampled_from(scales)), draw(st.booleans())
    return made(draw(st.integers(0, 2**32)), *sizes, levels, scale, dtype, top)


@pytest.fixture(scope="module")
def alignments() -> list[Alignment]:
    """As published, and the best there is: both with an operator that corrects, the gate open."""
    fit, other = (
        made(1, 30, 8, 1000, 0.1, "float64", False),
        made(2, 20, 8, 9, 1.0, "float32", True),
    )
    found = []
    for config in (published_for(fit.evidence), best_for(fit.evidence)):
        config = replace(config, updates=3, every=1)
        alignment = Alignment(config).fit(fit.evidence, fit.success)
        alignment.calibrate(other.evidence, other.success)
        random = torch.Generator().manual_seed(0)
        torch.nn.init.normal_(alignment._ready().up.weight, std=1.0, generator=random)
        alignment.gate = replace(alignment.gate, threshold=-1.0)  # type: ignore[type-var]
        found.append(alignment)
    return found


@SETTINGS
@given(cases(), st.integers(0, 2**32))
def test_order_and_batches_change_no_choice(
    alignments: list[Alignment], case: Case, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    N, K = case.success.shape
    starts, places = rng.permutation(N), rng.permutation(K)
    for alignment in alignments:
        evidence = case.evidence
        whole = alignment.decide(evidence)
        pools = torch.from_numpy(case.given["candidate_ids"])
        assert torch.equal(whole.order.sort(1).values, pools.sort(1).values)
        assert torch.equal(whole.choice, pools.gather(1, whole.position[:, None])[:, 0])
        moved = alignment.decide(case.columns(places).evidence)
        assert torch.equal(moved.order, whole.order)
        assert torch.equal(moved.refined, whole.refined[:, places])
        turned = alignment.decide(case.rows(starts).evidence)
        assert_same(turned, whole, starts)
        for n in range(N):
            assert_same(alignment.decide(case.rows(np.array([n])).evidence), whole, np.array([n]))


def assert_same(part: Decision, whole: Decision, starts: np.ndarray) -> None:
    """The same choices of these starts."""
    assert part.choice.tolist() == whole.choice[starts].tolist()


HOSTILE: dict[str, Callable[[Any], Any]] = {
    "NaN": lambda x: np.where(np.arange(x.size).reshape(x.shape) == x.size // 2, np.nan, x),
    "an infinity": lambda x: np.where(x == x.flat[0], np.inf, x),
    "below zero": lambda x: -1 - x.astype(float),
    "objects": lambda x: x.astype(object),
    "None": lambda x: None,
    "text": lambda x: x.astype(str),
    "a word": lambda x: "costs",
    "complex": lambda x: x.astype(complex),
    "booleans": lambda x: x.astype(bool),
    "integers": lambda x: x.astype(np.int16),
    "unsigned": lambda x: np.abs(x).astype(np.uint64),
    "bfloat16": lambda x: torch.from_numpy(x.astype(float)).bfloat16(),
    "with gradients": lambda x: torch.from_numpy(x.astype(float)).requires_grad_(),
    "sparse": lambda x: torch.from_numpy(x.astype(float)).to_sparse(),
    "meta": lambda x: torch.from_numpy(x.astype(float)).to("meta"),
    "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "reversed": lambda x: x[::-1, ::-1],
    "read-only": lambda x: np.broadcast_to(x[:1, :1], x.shape),
    "masked": lambda x: np.ma.masked_array(x, x == x.flat[0]),
    "ragged": lambda x: [[1.0], [1.0, 2.0]],
    "lists": lambda x: x.tolist(),
    "a dictionary": lambda x: {"a": x},
    "one start less": lambda x: x[1:],
    "one candidate less": lambda x: x[:, 1:],
    "one axis more": lambda x: x[..., None],
    "one axis less": lambda x: x[..., 0],
    "a number": lambda x: 1.0,
    "nothing": lambda x: np.zeros((0, 0)),
    "all equal": lambda x: np.zeros_like(x),
    "huge": lambda x: np.full(x.shape, 1e308),
    "tiny": lambda x: np.full(x.shape, 5e-324),
}
PLACES = ("candidate_ids", "success", "start_ids", *("costs", "latents", "goals"))


@SETTINGS
@given(cases(), st.sampled_from(PLACES), st.sampled_from(sorted(HOSTILE)))
@pytest.mark.filterwarnings("ignore")
def test_nothing_but_our_errors(
    alignments: list[Alignment], case: Case, place: str, name: str
) -> None:
    """From arrays to decision, fit and audit."""
    given, success, damage = dict(case.given), case.success, HOSTILE[name]
    try:
        if place == "success":
            success = damage(success)
        elif place in ("candidate_ids", "start_ids"):
            given[place] = damage(given[place])
        else:
            given[place] = {**given[place], "two": damage(given[place]["two"])}
    except (ValueError, TypeError, IndexError):  # numpy knows no such thing
        return
    try:
        evidence = Evidence.from_arrays(**given)
        for alignment in alignments:
            decided = alignment.decide(evidence)
            assert (evidence.ids == decided.choice[:, None]).any(1).all()
            assert decided.final.isfinite().all()
        djepa.audit(evidence, success, alignment=alignments[0])
        djepa.fit(evidence, success, config=replace(alignments[1].config, updates=1))
    except DjepaError:
        pass
