"""What an audit says first: by hand, and the verdict by its rule."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import djepa
import djepa.audit.gap
from djepa.align.presets import best_for
from djepa.audit.choices import BEST, DENSEST, FIRST, RANDOM, compare, resampled
from djepa.audit.report import audit, selective
from djepa.audit.verdict import verdict
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence

T, F = True, False
SUCCESS = np.array([[F, T, T, F], [F, T, F, F], [F, F, F, F], [T, T, F, F]])
COSTS = np.array([[1.0, 4, 9, 16], [4, 1, 5, 9], [1, 2, 3, 4], [9, 1, 3, 4]])
ENDS = np.array([[[0.0], [1], [10], [11.5]]] * 4, dtype=np.float32)


def evidence(**more: object) -> Evidence:
    given = {
        "start_ids": ["a", "b", "c", "d"],
        "candidate_ids": [[4, 3, 2, 1]] * 4,
        "costs": {"m": COSTS},
        **more,
    }
    return Evidence.from_arrays(**given)  # type: ignore[arg-type]


def test_choices_by_hand() -> None:
    (one,) = djepa.audit(evidence(latents={"m": ENDS}), SUCCESS)
    assert one.choices is not None
    shares = {name: share.value for name, share in one.choices.success.items()}
    # The model takes candidates 0, 1, 0, 1: F T F T. The smallest ID is last. All ends but one
    # candidate lie closest together in candidate 1: mean distances 22.5/3, 20.5/3, 20.5/3, 23.5/3,
    # and of the tie the smaller ID, candidate 2: T F F F.
    assert shares == {"m": 0.5, RANDOM: 5 / 16, FIRST: 0.0, DENSEST: 0.25, BEST: 0.75}
    assert one.choices.over[RANDOM].value == pytest.approx(0.5 - 5 / 16)
    assert one.choices.closed[RANDOM].value == pytest.approx((0.5 - 5 / 16) / (0.75 - 5 / 16))
    assert one.choices.picks == (F, T, F, T)
    assert one.verdict is None  # realised costs are not known
    for share in (*one.choices.success.values(), *one.choices.over.values()):
        assert share.low <= share.value <= share.high


def test_intervals_are_those_of_paired_resamples() -> None:
    rng = np.random.default_rng(0)
    ours, other = rng.random(400) < 0.6, rng.random(400) < 0.4
    found = compare("m", ours, {RANDOM: other}, ours | other, np.arange(400))
    spread = np.std(ours.astype(float) - other) / 20
    low, high = found.over[RANDOM].low, found.over[RANDOM].high
    assert (high - low) / (2 * 1.96 * spread) == pytest.approx(1, abs=0.05)
    looks = compare("m", np.repeat(ours, 4), {}, np.repeat(ours, 4), np.repeat(np.arange(400), 4))
    assert looks.success["m"] == pytest.approx(found.success["m"])  # looks add no certainty


def test_resamples_are_the_same_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).random((7, 2))
    whole = resampled(values, np.arange(7))
    assert whole.shape == (10_000, 2)
    monkeypatch.setattr("djepa.audit.choices.CELLS", 7 * 100)
    np.testing.assert_array_equal(resampled(values, np.arange(7)), whole)


def rows(pool: int, search: int, prediction: int, cost: int, solved: int) -> list[np.ndarray]:
    """(N,) taken, lowest predicted, lowest realised, any; so many starts of each kind."""
    kinds = [(F, F, F, F)] * pool + [(F, T, F, T)] * search + [(F, F, T, T)] * prediction
    kinds += [(F, F, F, T)] * cost + [(T, F, F, T)] * solved
    return [np.array(column) for column in zip(*kinds, strict=True)]


@pytest.mark.parametrize(
    ("counts", "part"),
    [
        ((60, 5, 5, 5, 25), "pool"),
        ((5, 60, 5, 5, 25), "search"),
        ((5, 5, 60, 5, 25), "prediction"),
        ((5, 5, 5, 60, 25), "cost"),
        ((1, 1, 1, 1, 196), "nothing"),
        ((30, 0, 30, 0, 40), "undecided"),
        ((2, 0, 1, 0, 2), "undecided"),
    ],
)
def test_the_rule_of_the_verdict(counts: tuple[int, int, int, int, int], part: str) -> None:
    columns = rows(*counts)
    found = verdict(*columns, groups=np.arange(len(columns[0])))
    assert found.part == part
    total = sum(counts)
    assert [s.value for s in found.parts.values()] == pytest.approx([n / total for n in counts[:4]])
    assert found.failed.value == pytest.approx(sum(counts[:4]) / total)
    assert part in str(found)


def test_the_verdict_of_an_audit_reads_realised_costs_and_what_was_taken() -> None:
    realised = {"m": np.where(SUCCESS, 0.1, 1.0)}
    (one,) = audit(evidence(), SUCCESS, realised=realised)
    assert one.verdict is not None
    assert {k: s.value for k, s in one.verdict.parts.items()} == {
        "pool": 0.25,
        "search": 0.0,
        "prediction": 0.25,
        "cost": 0.0,
    }
    (one,) = audit(evidence(), SUCCESS, realised=realised, chosen={"m": [4, 1, 1, 3]})
    assert one.verdict is not None
    assert one.verdict.parts["search"].value == 0.25  # start b: the planner took a failure
    goals = {"m": np.zeros((4, 1), np.float32)}
    known = evidence(latents={"m": ENDS}, goals=goals)
    ends = np.sqrt(realised["m"])[..., None]
    (same,) = audit(known, SUCCESS, realised={"m": ends}, chosen={"m": [4, 1, 1, 3]})
    assert same.verdict == one.verdict
    with pytest.raises(DjepaError, match="need its goals"):
        audit(evidence(), SUCCESS, realised={"m": ends})
    with pytest.raises(DjepaError, match="one candidate ID of each start"):
        audit(evidence(), SUCCESS, chosen={"m": [9, 9, 9, 9]})
    with pytest.raises(DjepaError, match="Unknown geometry 'n'"):
        audit(evidence(), SUCCESS, realised={"n": COSTS})


def test_risk_by_coverage_by_hand() -> None:
    ours, refined = np.array([T, F, T, F]), np.array([F, F, T, T])
    gain, opened = torch.tensor([0.1, 0.4, 0.3, 0.2]), torch.tensor([F, T, T, F])
    found = selective(ours, refined, gain, opened)
    assert (found.opened.hits, found.opened.of) == (1, 2)
    assert (found.shut.hits, found.shut.of) == (1, 2)
    by = {c: (r.hits, r.of) for c, r in found.by_coverage.items()}
    assert by == {1.0: (2, 4), 0.75: (1, 3), 0.5: (1, 2), 0.25: (1, 1)}


def test_an_alignment_is_audited_beside_its_models(tmp_path: Path) -> None:
    def made(split: str) -> tuple[Evidence, np.ndarray]:
        rng = np.random.default_rng(len(split))
        success = rng.random((40, 5)) < 0.4
        costs = {name: rng.random((40, 5)) + ~success for name in ("a", "b")}
        names = [f"{split}-{n}" for n in range(40)]
        ids = np.tile(np.arange(5), (40, 1))
        return Evidence.from_arrays(start_ids=names, candidate_ids=ids, costs=costs), success

    config = replace(best_for(made("fit")[0]), updates=3)
    alignment = djepa.fit(*made("fit"), config=config).calibrate(*made("cal"))
    found = djepa.audit(*made("test"), alignment=alignment)
    assert found.aligned is not None
    assert found.gate is not None
    assert found.gate.opened.of + found.gate.shut.of == 40
    assert {"a", "b", RANDOM} <= found.aligned.over.keys()
    position = alignment.decide(made("test")[0]).position.numpy()
    solved = made("test")[1][np.arange(40), position]
    assert found.aligned.success["alignment"].value == pytest.approx(solved.mean())
    assert repr(found) == found.table()
    for line in ("| audit | a | b |", "| both fail | a | b |", "fails where it abstains"):
        assert line in found.table()
    found.plot(tmp_path / "audit.png")
    assert (tmp_path / "audit.png").stat().st_size > 1000
    assert [one.name for one in found] == ["a", "b"]
    rows = json.loads(json.dumps(found.as_rows()))
    assert [row["name"] for row in rows] == ["a", "b", "alignment"]
    assert rows[2]["gate"]["by_coverage"]["1.0"]["of"] == len(rows[0]["choices"]["picks"]) == 40


def test_the_name_is_the_room_and_the_function() -> None:
    """Whether or not a module of the room was imported before."""
    assert djepa.audit.gap.audit is not audit
    known = djepa.Outcomes.from_arrays(evidence(), SUCCESS, COSTS < 9)
    with pytest.raises(DjepaError, match="not executed"):
        djepa.audit(evidence(), known)


def test_blocks_of_starts_give_the_same_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    N, K = 41, 9
    known = Evidence.from_arrays(
        start_ids=[f"{n // 2}@{n % 2}" for n in range(N)],
        candidate_ids=rng.random((N, K)).argsort(1),
        costs={"m": rng.random((N, K)).astype(np.float32), "n": rng.random((N, K))},
        latents={"m": rng.random((N, K, 3)).astype(np.float32)},
        goals={"m": rng.random((N, 3)).astype(np.float32)},
    )
    won, given = rng.random((N, K)) < 0.3, {
        "realised": {"m": rng.random((N, K, 3)), "n": rng.random((N, K)).astype(np.float32)},
        "distances": {"n": rng.random((N, K))},
        "chosen": {"n": known.ids[:, 2]},
    }  # fmt: skip
    whole = audit(known, won, **given)  # type: ignore[arg-type]
    monkeypatch.setattr("djepa.align.fit.AT_ONCE", 3 * K)
    monkeypatch.setattr("djepa.evidence.blocks.CANDIDATES", 3 * K)
    parts = audit(known, won, **given)  # type: ignore[arg-type]
    assert parts.as_rows() == whole.as_rows()
    assert whole.models[1].correlations[0].pooled is not None
    nowhere = known.ids[:, 2].clone()
    nowhere[40] = 99  # in the last block
    with pytest.raises(DjepaError, match="one candidate ID of each start"):
        audit(known, won, chosen={"n": nowhere})
    with pytest.raises(DjepaError, match="one candidate ID of each start"):
        audit(known, won, chosen={"n": nowhere[:40]})
    odd = rng.random((N, K))
    odd[39, 1] = np.nan
    with pytest.raises(DjepaError, match="realised of start 39 holds a NaN"):
        audit(known, won, realised={"n": odd})
    with pytest.raises(DjepaError, match=r"distances is \(40, 9\), candidate IDs are \(41, 9\)"):
        audit(known, won, distances={"n": odd[:40]})
