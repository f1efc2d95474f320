"""Evidence: what it holds, what it refuses, and that no outcome fits in."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch

from djepa.align.outcomes import Outcomes
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence, clusters, disjoint
from djepa.models.predictions import predict_bank


def arrays(N: int = 3, K: int = 4, D: int = 5, dtype: Any = np.float32) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "start_ids": [f"s{n}" for n in range(N)],
        "candidate_ids": rng.random((N, K)).argsort(1) + 1,
        "costs": {"a": rng.random((N, K)), "b": rng.random((N, K)).astype(dtype)},
        "latents": {"a": rng.normal(size=(N, K, D)).astype(dtype)},
        "goals": {"a": rng.normal(size=(N, D)).astype(dtype)},
    }


def test_what_it_holds() -> None:
    given = arrays(dtype=np.float16)
    evidence = Evidence.from_arrays(**given)
    assert (len(evidence), evidence.candidates, evidence.names) == (3, 4, ("a", "b"))
    assert evidence.costs.dtype == torch.float64
    assert evidence.ids.dtype == torch.int64
    ranks = evidence.ranks(["b", "a"])
    assert torch.equal(ranks, evidence.ranks()[..., [1, 0]])
    away = given["latents"]["a"].astype(float) - given["goals"]["a"].astype(float)[:, None]
    centred = away - away.mean(-1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    d = evidence.directions("a")
    assert d.dtype == torch.float32
    np.testing.assert_allclose(d.numpy(), expected, atol=1e-5)


def test_directions_by_hand() -> None:
    # [3, 1] - [0, 0]: mean 2, deviations ±1, variance 1: ±1 / sqrt(1 + 1e-5)
    made = Evidence.from_arrays(
        start_ids=["s"],
        candidate_ids=[[1, 2]],
        costs={"a": [[0.0, 1.0]]},
        latents={"a": [[[3.0, 1.0], [1.0, 3.0]]]},
        goals={"a": [[0.0, 0.0]]},
    )
    unit = (1 + 1e-5) ** -0.5
    expected = torch.tensor([[[unit, -unit], [-unit, unit]]])
    torch.testing.assert_close(made.directions("a"), expected)


def test_no_field_for_an_outcome() -> None:
    names = {field.name for field in fields(Evidence)}
    assert names == {"identities", "ids", "names", "costs", "latents", "goals", "weights"}
    with pytest.raises(TypeError, match="success"):
        Evidence.from_arrays(**arrays(), success=np.ones((3, 4), dtype=bool))


def test_rows_and_columns() -> None:
    evidence = Evidence.from_arrays(**arrays())
    two = evidence.rows([2, 0])
    assert two.identities == ("s2", "s0")
    assert torch.equal(two.ranks(), evidence.ranks()[[2, 0]])
    assert torch.equal(two.directions("a"), evidence.directions("a")[[2, 0]])
    masked = evidence.rows(torch.tensor([True, False, True]))
    assert masked.identities == ("s0", "s2")
    assert len(evidence.rows([])) == 0
    keep = torch.tensor([[3, 0], [1, 2], [0, 3]])
    small = evidence.columns(keep)
    assert torch.equal(small.ids, evidence.ids.gather(1, keep))
    assert set(small.ranks().flatten().tolist()) == {0.0, 1.0}  # within what is left
    assert torch.equal(small.directions("a")[1], evidence.directions("a")[1, [1, 2]])
    with pytest.raises(DjepaError, match="twice"):
        evidence.columns(torch.tensor([[0, 0]] * 3))
    with pytest.raises(DjepaError, match="at least 2"):
        evidence.columns(torch.tensor([[0]] * 3))


def with_value(name: str, value: Any, inner: str = "a") -> dict[str, Any]:
    given = arrays()
    if isinstance(given[name], dict):
        given[name] = {**given[name], inner: value}
    else:
        given[name] = value
    return given


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("start_ids", ["s0", "s1"], "2 start_ids for 3 starts"),
        ("start_ids", ["s0", "s1", "s0"], "twice"),
        ("candidate_ids", np.ones((3, 4), dtype=np.int64), "twice"),
        ("candidate_ids", -np.arange(12).reshape(3, 4), "negative"),
        ("candidate_ids", np.arange(12.0).reshape(3, 4), "integers"),
        ("candidate_ids", np.arange(3)[:, None], "at least 2"),
        ("candidate_ids", [["x", "y"]], "numbers"),
        ("candidate_ids", [[1, 2], [3]], "numbers"),
        ("start_ids", [0.5, 1, 2], "text or integers, got float"),
        ("start_ids", [None, "b", "c"], "text or integers, got NoneType"),
        ("start_ids", [b"a", "b", "c"], "text or integers, got bytes"),
        ("start_ids", "abc", "N names"),
        ("start_ids", None, "N names"),
        ("start_ids", ["1", 1, 2], "twice"),
        ("candidate_ids", np.full((3, 4), 2**63, dtype=np.uint64), "above"),
        ("candidate_ids", np.ones((3, 4), dtype=bool), "integers"),
        ("costs", np.zeros((3, 5)), "costs of a is"),
        ("costs", np.zeros((3, 4, 1)), "costs of a is"),
        ("costs", np.zeros((3, 4), dtype=np.int64), "floating point"),
        ("costs", np.full((3, 4), np.nan), "costs of a of start 0 holds a NaN"),
        ("costs", np.full((3, 4), -np.inf), "infinity"),
        ("costs", np.full((3, 4), None), "numbers"),
        ("latents", np.zeros((3, 4)), "latents of a must be"),
        ("latents", np.zeros((3, 5, 5)), "latents of a is"),
        ("latents", np.full((3, 4, 5), np.inf), "latents of a of start 0"),
        ("latents", np.full((3, 4, 5), 1e300), "latents of a of start 0"),
        ("goals", np.zeros((3, 6)), "goals"),
        ("goals", np.zeros((2, 5)), "goals"),
        ("goals", np.full((3, 5), np.nan), "goal of a"),
        ("goals", np.full((3, 5), 1e300), "goal of a"),
    ],
)
def test_what_it_refuses(name: str, value: Any, match: str) -> None:
    with pytest.raises(DjepaError, match=match):
        Evidence.from_arrays(**with_value(name, value))


def test_names_must_fit_together() -> None:
    with pytest.raises(DjepaError, match="at least one"):
        Evidence.from_arrays(start_ids=["s"], candidate_ids=[[1, 2]], costs={})
    aimless = Evidence.from_arrays(**{**arrays(), "goals": None})
    assert (aimless.directed, Evidence.from_arrays(**arrays()).directed) == ((), ("a",))
    with pytest.raises(DjepaError, match="need its goals"):
        aimless.directions("a")
    given = with_value("latents", np.zeros((3, 4, 5)), "c")
    given["goals"]["c"] = np.zeros((3, 5))
    with pytest.raises(DjepaError, match="Unknown geometry 'c'"):
        Evidence.from_arrays(**given)
    evidence = Evidence.from_arrays(**arrays())
    with pytest.raises(DjepaError, match=r"Unknown geometry 'aa'\. Did you mean 'a'"):
        evidence.ranks(["aa"])
    with pytest.raises(DjepaError, match="at least one"):
        evidence.ranks([])
    with pytest.raises(DjepaError, match="last latents"):
        evidence.directions("b")


def test_read_only_and_strided_arrays() -> None:
    given = arrays()
    for array in (
        given["candidate_ids"],
        given["costs"]["a"],
        given["latents"]["a"],
        given["goals"]["a"],
    ):
        array.flags.writeable = False
    evidence = Evidence.from_arrays(**given)  # a warning would fail the test
    turned = {
        **given,
        "candidate_ids": given["candidate_ids"][:, ::-1],
        "costs": {"a": given["costs"]["a"][:, ::-1]},
    }
    turned["latents"] = {"a": given["latents"]["a"][:, ::-1]}
    other = Evidence.from_arrays(**turned)
    assert torch.equal(other.ranks(["a"]), evidence.ranks(["a"]).flip(1))


def test_arrays_are_copied() -> None:
    """A buffer that is filled again must not change what was checked."""
    given = arrays()
    evidence = Evidence.from_arrays(**given)
    tensors = {**given, "candidate_ids": torch.from_numpy(given["candidate_ids"])}
    other = Evidence.from_arrays(**tensors)
    kept = [evidence.ids.clone(), evidence.costs.clone(), evidence.directions("a")]
    given["candidate_ids"][:] = 1
    for array in (*given["costs"].values(), given["latents"]["a"], given["goals"]["a"]):
        array[:] = np.nan
    for one in (evidence, other):
        for before, after in zip(kept, (one.ids, one.costs, one.directions("a")), strict=True):
            assert torch.equal(before, after)


def test_other_kinds_of_the_same_numbers() -> None:
    given = arrays()
    plain = Evidence.from_arrays(**given)
    ends = given["latents"]["a"]
    futures = np.stack([np.full_like(ends, 7), ends], axis=2)
    learned = torch.from_numpy(ends).requires_grad_()
    for latents in (futures, torch.from_numpy(futures), ends.tolist(), learned):
        other = Evidence.from_arrays(**{**given, "latents": {"a": latents}})
        assert torch.equal(other.latents["a"], plain.latents["a"])
        assert not other.latents["a"].requires_grad
    for kind in (np.int16, np.uint8, np.uint64):
        ids = given["candidate_ids"].astype(kind)
        assert torch.equal(Evidence.from_arrays(**{**given, "candidate_ids": ids}).ids, plain.ids)
    for starts in ([3, 4, 5], np.array([3, 4, 5]), torch.tensor([3, 4, 5]), ("3", "4", "5")):
        named = Evidence.from_arrays(**{**given, "start_ids": starts})
        assert named.identities == ("3", "4", "5")
    for name in ("costs", "latents", "goals"):
        with pytest.raises(DjepaError, match=f"{name} must be a dictionary"):
            Evidence.from_arrays(**{**given, name: np.zeros((3, 4))})
    with pytest.raises(TypeError, match="positional"):
        Evidence.from_arrays(*given.values())


def test_two_looks_of_a_start_are_one_start() -> None:
    evidence = Evidence.from_arrays(**{**arrays(), "start_ids": ["s1@plain", "s1@dark", "s2"]})
    assert clusters(evidence.identities).tolist() == [0, 0, 1]
    with pytest.raises(DjepaError, match="s1 is in the fitting and in the calibration set"):
        disjoint(fitting=evidence.rows([0]), calibration=evidence.rows([1]))


def test_no_two_populations_share_a_start() -> None:
    evidence = Evidence.from_arrays(**arrays())
    disjoint(fitting=evidence.rows([0]), calibration=evidence.rows([1]), test=evidence.rows([2]))
    with pytest.raises(DjepaError, match="s1 is in the fitting and in the calibration set"):
        disjoint(fitting=evidence.rows([0, 1]), calibration=evidence.rows([1]))


class Tiny:
    """A geometry that looks at nothing but the controls."""

    name, image, latent = "tiny", 16, 3

    def encode(self, frames: torch.Tensor, proprio: torch.Tensor) -> torch.Tensor:
        return proprio[..., :3] / 512

    def rollout(
        self, context: torch.Tensor, history: torch.Tensor, actions: torch.Tensor
    ) -> torch.Tensor:
        blocks = actions.unflatten(2, (-1, 5)).mean(3)
        return context[:, -1][:, None, None] + torch.nn.functional.pad(blocks.cumsum(2), (0, 1))

    def native_cost(self, futures: torch.Tensor, goal: torch.Tensor) -> torch.Tensor:
        return (futures[:, :, -1] - goal[:, None]).square().mean(-1)


def test_from_a_bank(bank_copy: Any) -> None:
    bank = Bank(bank_copy)
    predict_bank(bank, Tiny(), "abc")
    evidence = Evidence.from_bank(bank, ["tiny"], ["tiny"])
    outcomes = Outcomes.from_bank(bank)
    outcomes.check(evidence)
    assert evidence.directions("tiny").shape == (10, evidence.candidates, 3)
    assert outcomes.success.tolist() == bank.outcomes.success.tolist()
    assert outcomes.cost is not None
    assert torch.equal(outcomes.cost < 1, outcomes.success)
