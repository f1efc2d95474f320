"""The decision-local gap: hand-worked pools, what may not change it, what is refused."""

import io
import json
import re
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

import djepa
from commands import djepa as command
from djepa.audit.arrays import audit_arrays
from djepa.audit.gap import (
    audit,
    distance_gap,
    pair_inversions,
    rank_correlations,
    shortlist_sizes,
)
from djepa.audit.table import audit_markdown
from djepa.cli.main import NAMES, main
from djepa.errors import DjepaError
from djepa.evaluate.correlation import spearman
from djepa.evaluate.intervals import Rate

Array = npt.NDArray[Any]
T, F = True, False

# Three starts of four candidates; the last has one outcome only, and its executions ended alike.
COSTS = np.array([[1.0, 4, 9, 16], [4, 4, 1, 9], [1, 2, 3, 4]])
IDS = np.array([[0, 1, 2, 3], [7, 5, 6, 4], [0, 1, 2, 3]])
SUCCESS = np.array([[F, T, T, F], [F, T, T, F], [F, F, F, F]])
REALISED = np.array([[2.0, 1, 3, 4], [5, 6, 7, 8], [9, 9, 9, 9]])
ARRAYS = {"costs": COSTS, "ids": IDS, "success": SUCCESS, "realised": REALISED}


def test_gap_by_hand() -> None:
    # Start 0: success at √4, failure at √1, (2 - 1) / 3. Start 1: the other way round.
    gap = audit("m", COSTS, IDS, SUCCESS).gap
    assert gap is not None
    assert gap.each == (pytest.approx(1 / 3), pytest.approx(-1 / 3), None)
    assert gap.positive == Rate(1, 2)
    assert gap.median == pytest.approx(0.0)
    assert gap.quartiles == (pytest.approx(-1 / 6), pytest.approx(1 / 6))


def test_equal_distances_are_no_gap_even_at_the_goal() -> None:
    gap = distance_gap(np.array([[0.0, 0.0], [2.0, 2.0], [0.0, 1.0]]), np.array([[T, F]] * 3))
    assert gap.each == (0.0, 0.0, -1.0)
    assert gap.positive == Rate(0, 3)


def test_inversions_by_hand() -> None:
    # Start 0 in order: failure 1, success 4, success 9, failure 16. Start 1: success 1, then of
    # cost 4 ID 5 (success) before ID 7 (failure), failure 9.
    four, three, two = pair_inversions(COSTS, IDS, SUCCESS, (3, 2))
    assert four.each == (0.5, 0.0, None)  # a tie is no inversion
    assert (four.shortlist, four.starts, four.pairs, four.mean) == (4, 2, 8, 0.25)
    assert three.each == (1.0, 0.0, None)
    assert (three.shortlist, three.starts, three.pairs, three.mean) == (3, 2, 4, 0.5)
    assert two.each == (1.0, None, None)  # only the tie-break leaves start 1 without a failure
    assert (two.shortlist, two.starts, two.pairs, two.mean) == (2, 1, 1, 1.0)


def test_correlations_by_hand() -> None:
    # Start 0: one neighbouring pair exchanged, 1 - 6 · 2 / (4 · 15). Start 1: average ranks
    # (2.5, 2.5, 1, 4) against (1, 2, 3, 4), 1.5 / √(4.5 · 5).
    (four,) = rank_correlations(COSTS, REALISED, IDS, ())
    assert four.each == (pytest.approx(0.8), pytest.approx(10**-0.5), None)
    assert (four.starts, four.undefined) == (2, 1)
    assert four.within == pytest.approx((0.8 + 10**-0.5) / 2)
    # Pooled, the two cheapest: costs 1 2, 1 2 against 1 2, 4 3 -> ranks (1.5 3.5 1.5 3.5) and
    # (1 2 4 3): Σ xy = 1.5 + -.5 - 1.5 + .5 = 0.
    two = rank_correlations(
        np.array([[1.0, 2, 8], [2, 1, 9]]),
        np.array([[1.0, 2, 7], [3, 4, 0]]),
        np.array([[0, 1, 2]] * 2),
        (2,),
    )[1]
    assert two.pooled == pytest.approx(0.0)
    assert two.within == pytest.approx(0.0)
    assert two.each == (1.0, -1.0)


def test_nothing_to_average_is_said_so() -> None:
    one = audit("m", COSTS[2:], IDS[2:], SUCCESS[2:], REALISED[2:])
    assert one.gap is not None
    assert (one.gap.median, one.gap.quartiles, one.gap.positive) == (None, None, Rate(0, 0))
    assert (one.inversions[0].mean, one.inversions[0].starts) == (None, 0)
    assert (one.correlations[0].within, one.correlations[0].pooled) == (None, None)
    assert "none (0 starts, 1 undefined)" in audit_markdown([one])
    json.dumps(one.as_dict(each=True), allow_nan=False)


def test_costs_below_zero_have_no_distance_unless_it_is_given() -> None:
    assert audit("m", COSTS - 2, IDS, SUCCESS).gap is None
    given_ = audit("m", COSTS - 2, IDS, SUCCESS, distances=np.sqrt(COSTS))
    assert given_ == audit("m", COSTS, IDS, SUCCESS)
    assert "gap" not in audit_markdown([audit("m", COSTS - 2, IDS, SUCCESS)])


def test_sizes() -> None:
    assert shortlist_sizes(63) == (63, 32, 16, 8, 4)
    assert shortlist_sizes(10) == (10, 8, 4)
    assert shortlist_sizes(255) == (255, 63, 32, 16, 8, 4)
    assert shortlist_sizes(2) == (2,)


@st.composite
def banks(draw: st.DrawFn) -> dict[str, Array]:
    """Whole-number costs with many ties, IDs in any order, any share of successes."""
    N, K = draw(st.integers(1, 6)), draw(st.integers(2, 70))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    spread = draw(st.sampled_from([1, 3, K, 1000]))
    return {
        "costs": rng.integers(0, spread + 1, (N, K)).astype(float),
        "ids": np.stack([rng.choice(3 * K, K, replace=False) for _ in range(N)]),
        "success": rng.random((N, K)) < draw(st.sampled_from([0.0, 0.1, 0.5, 1.0])),
        "realised": rng.integers(0, spread + 1, (N, K)).astype(float),
    }


@settings(max_examples=60, deadline=None)
@given(banks(), st.integers(0, 2**32))
def test_the_order_of_candidates_changes_nothing(bank: dict[str, Array], seed: int) -> None:
    order = np.random.default_rng(seed).permuted(
        np.tile(np.arange(bank["ids"].shape[1]), (len(bank["ids"]), 1)), axis=1
    )
    mixed = {name: np.take_along_axis(array, order, 1) for name, array in bank.items()}
    assert audit("m", **mixed) == audit("m", **bank)


@settings(max_examples=60, deadline=None)
@given(banks())
def test_only_the_order_of_costs_counts_but_for_the_gap(bank: dict[str, Array]) -> None:
    bent = audit("m", **{**bank, "costs": bank["costs"] ** 3 + 5})
    plain = audit("m", **bank)
    assert replace(bent, gap=None) == replace(plain, gap=None)
    assert bent.gap is not None
    assert plain.gap is not None
    assert bent.gap.positive == plain.gap.positive  # the sign is an order, too
    # Every start may have its own scale: only pooling compares across starts.
    own = bank["costs"] * 2.0 ** np.arange(len(bank["costs"]))[:, None] - 7
    scaled = audit("m", **{**bank, "costs": own})
    assert scaled.inversions == plain.inversions
    for a, b in zip(scaled.correlations, plain.correlations, strict=True):
        assert (a.within, a.each) == (b.within, b.each)


@settings(max_examples=60, deadline=None)
@given(banks())
def test_a_perfect_model_inverts_nothing(bank: dict[str, Array]) -> None:
    costs = bank["costs"] + np.where(bank["success"], 0.0, 1001.0)
    perfect = audit("m", costs, bank["ids"], bank["success"], costs)
    assert all(one.mean in (0.0, None) for one in perfect.inversions)
    assert perfect.gap is not None
    assert perfect.gap.positive.hits == 0
    for one in perfect.correlations:
        assert one.within is None or one.within == pytest.approx(1.0)
    worst = audit("m", 2002 - costs, bank["ids"], bank["success"])
    assert worst.inversions[0].mean in (1.0, None)


@settings(max_examples=60, deadline=None)
@given(banks())
def test_inversions_are_the_pairs_counted_one_by_one(bank: dict[str, Array]) -> None:
    costs, ids, success = bank["costs"], bank["ids"], bank["success"]
    for found in pair_inversions(costs, ids, success):
        for row, share in enumerate(found.each):
            order = sorted(range(costs.shape[1]), key=lambda i: (costs[row, i], ids[row, i]))
            short = order[: found.shortlist]
            good, bad = ([i for i in short if success[row, i] == is_] for is_ in (T, F))
            pairs = [costs[row, f] < costs[row, s] for s in good for f in bad]
            assert share == (pytest.approx(np.mean(pairs)) if pairs else None)


@pytest.mark.filterwarnings("ignore::scipy.stats.ConstantInputWarning")
@settings(max_examples=60, deadline=None)
@given(banks())
def test_spearman_is_that_of_scipy(bank: dict[str, Array]) -> None:
    a, b = bank["costs"], bank["realised"]
    expected = [spearmanr(x, y).statistic for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(spearman(a, b), expected, atol=1e-12)
    whole = rank_correlations(a, b, bank["ids"])[0]
    assert whole.undefined == int(np.isnan(expected).sum())
    pooled = spearmanr(a.ravel(), b.ravel()).statistic
    assert whole.pooled == (None if np.isnan(pooled) else pytest.approx(pooled, abs=1e-12))


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"costs": COSTS[:, :3]}, r"costs is \(3, 3\), candidate IDs are \(3, 4\)"),
        ({"costs": COSTS[0]}, "costs is"),
        ({"costs": np.where(COSTS == 9, np.nan, COSTS)}, "costs of start 0 holds a NaN"),
        ({"costs": COSTS.astype(int)}, "costs must be floating point"),
        ({"realised": REALISED * np.inf}, "realised of start 0 holds a NaN or an infinity"),
        ({"realised": REALISED[:2]}, "realised is"),
        ({"distances": -COSTS}, "distances must not be negative"),
        ({"ids": IDS * 0}, "start 0 has a candidate ID twice"),
        ({"ids": IDS - 5}, "must not be negative"),
        ({"ids": IDS.astype(float)}, "ids must be integers"),
        ({"ids": IDS[:0]}, "at least one start"),
        ({"ids": IDS[:, :1], "success": SUCCESS[:, :1]}, "K of at least 2"),
        ({"success": SUCCESS.astype(int)}, "dtype bool"),
        ({"success": SUCCESS[:2]}, "success is"),
    ],
)
def test_bad_arrays_are_refused(changed: dict[str, Array], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(DjepaError, match=complaint):
        audit("m", **{**ARRAYS, **changed})
    np.savez(tmp_path / "a.npz", **{**ARRAYS, **changed})
    with pytest.raises(DjepaError, match=rf"a\.npz, a: .*{complaint}"):
        audit_arrays(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("held", "complaint"),
    [
        ({}, "lacks 'ids'.*It has nothing"),
        ({"ids": IDS, "success": SUCCESS}, "lacks 'costs' or 'costs_NAME'"),
        ({"costs": COSTS, "ids": IDS}, "lacks 'success'.*It has costs, ids"),
        ({**ARRAYS, "realized": REALISED}, "'realized'. Did you mean 'realised'"),
        ({**ARRAYS, "realised_b": REALISED}, "Unknown array"),
        ({**ARRAYS, "ids": np.array([[None]])}, "cannot be read"),
    ],
)
def test_bad_files_are_refused(held: dict[str, Array], complaint: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **held)
    with pytest.raises(DjepaError, match=complaint):
        audit_arrays(tmp_path / "a.npz")


def altered(data: bytes, at: int, flag: bytes) -> bytes:
    """An archive whose first member says something else of itself, here and in the directory."""
    changed, directory = bytearray(data), data.index(b"PK\1\2")
    changed[at : at + 2] = flag
    changed[directory + at + 2 : directory + at + 4] = flag
    return bytes(changed)


def unclosed(array: Path) -> bytes:
    """An archive of one array whose header lacks its last bracket."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("costs.npy", array.read_bytes().replace(b"}", b" ", 1))
    return data.getvalue()


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DjepaError, match="There is no file"):
        audit_arrays(tmp_path / "none.npz")
    np.save(tmp_path / "one.npy", COSTS)
    (tmp_path / "text.npz").write_text("costs")
    np.savez_compressed(tmp_path / "cut.npz", **ARRAYS)
    data = (tmp_path / "cut.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(data[: len(data) // 2])
    packed = {"locked.npz": (6, b"\1\0"), "odd.npz": (8, b"\x63\0")}  # encrypted; another packing
    for name, (at, flag) in packed.items():
        (tmp_path / name).write_bytes(altered(data, at, flag))
    (tmp_path / "open.npz").write_bytes(unclosed(tmp_path / "one.npy"))
    for name in ("one.npy", "text.npz", "cut.npz", *packed, "open.npz"):
        with pytest.raises(DjepaError, match=f"{name} cannot be read"):
            audit_arrays(tmp_path / name)


def test_the_command_on_arrays(tmp_path: Path) -> None:
    file, out = tmp_path / "mine.npz", tmp_path / "audit.json"
    both = {"costs_one": COSTS, "costs_two": COSTS[:, ::-1], "realised_one": REALISED}
    np.savez(file, ids=IDS, success=SUCCESS, **both)
    done = command("audit", file, "--json", out)
    assert done.returncode == 0, done.stderr
    assert "| audit | one | two |" in done.stdout
    assert "| pair inversions, best 4 | 25.0 % (2 starts) |" in done.stdout
    assert "| Spearman within starts, best 4 | 0.558 (2 starts, 1 undefined) | - |" in done.stdout
    assert "| starts that prefer a failure | 1: 50.0 % (9.5-90.5) |" in done.stdout
    one, two = json.loads(out.read_text())
    assert one["gap"]["each"] == [pytest.approx(1 / 3), pytest.approx(-1 / 3), None]
    assert one["gap"]["positive"]["of"] == 2
    assert one["inversions"][0]["each"] == [0.5, 0.0, None]
    assert (two["name"], two["correlations"]) == ("two", [])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "Name a bank or an .npz"),
        (["nowhere"], "There is no bank at nowhere"),
        (["nowhere.npz"], "There is no file nowhere.npz"),
    ],
)
def test_the_command_explains_mistakes(arguments: list[str], complaint: str) -> None:
    done = command("audit", *arguments)
    assert done.returncode == 1
    assert complaint in done.stderr


@pytest.mark.parametrize(
    ("old", "new"), [("quality", "audit"), ("stats", "pools"), ("compare", "audit")]
)
def test_old_names_of_commands_name_the_new_ones(
    old: str, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([old, "runs/push"])
    assert ended.value.code == 2
    assert f"`djepa {old}` is now `djepa {new}`" in capsys.readouterr().err
    assert new in NAMES


def test_no_room_that_decides_knows_the_audit() -> None:
    root = Path(djepa.__file__).parent
    rooms = ("worlds", "pools", "rollout", "bank", "models", "evidence", "align", "lift")
    for room in rooms:
        for file in (root / room).rglob("*.py"):
            assert "djepa.audit" not in file.read_text(), file


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "docs/audit.md").read_text()
    make, use = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(make, {})
    audits = {one.name: one for one in audit_arrays(Path("mine.npz"))}
    sharp, blunt = (audits[name].inversions[-1].mean for name in ("sharp", "blunt"))
    assert sharp is not None
    assert blunt is not None
    assert sharp < blunt
    exec(use, dict(ARRAYS))
