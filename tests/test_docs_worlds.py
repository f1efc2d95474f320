"""What the docs say of other worlds is what their rows and cards say."""

import json
from pathlib import Path

import pytest
from djepa.report.cases import ALL, pair_of
from djepa.studies.case_pages import case_tables, measured_tables, rows_in
from djepa.studies.case_pages import verdict as verdict_of_cases

from djepa.bench.table import bench_markdown
from djepa.bench.world import Row
from djepa.evaluate.paired import Paired
from djepa.models.weights import read_card, weights_hash
from djepa.report.tables import to_markdown
from djepa.studies.index import DESIGNS, across_studies

ROOT = Path(__file__).parents[1]
OURS = "D-JEPA"


def rate(share: float, interval: list[float]) -> str:
    """As tables print a share and its interval."""
    low, high = (100 * end for end in interval)
    return f"{100 * share:.1f} % ({low:.1f}-{high:.1f})"


def test_the_weights_of_other_worlds_are_as_their_cards_say() -> None:
    table = (ROOT / "docs/geometries.md").read_text()
    names = ("reacher-lewm", "reacher-tdjepa", "granular-dinowm")
    found = {name: read_card(name)["metrics"] for name in names}
    found |= {f"push: {shape}": of for shape, of in read_card("shapes-jepawm")["metrics"].items()}
    assert len(found) == 7
    for name, of in found.items():
        line = next(
            line for line in table.splitlines() if f"| `{name}` |" in line or f"| {name} |" in line
        )
        shares = [f"{100 * of[part]:.1f} %" for part in ("realised", "oracle")]
        assert line.endswith(
            " | ".join(["", rate(of["native"], of["native_interval"]), *shares, ""]).strip()
        ), line
    minutes = [f"{read_card(name)['recipe']['minutes']:.1f}" for name in (*names, "shapes-jepawm")]
    assert minutes == ["3.3", "2.9", "4.1", "5.3"]


def test_the_bench_of_other_worlds_is_the_recorded_one() -> None:
    recorded = json.loads((ROOT / "docs/results/bench-other-worlds.json").read_text())
    rows = [Row(**{k: v for k, v in row.items() if k != "ratio"}) for row in recorded]
    assert bench_markdown(rows) in (ROOT / "docs/performance.md").read_text()


@pytest.mark.parametrize("name", ["reacher", "granular", "shapes", "appearance"])
def test_other_worlds_are_what_their_rows_say(name: str) -> None:
    """Verdict and tables of a study stand in the page as the rows give them."""
    folder, design = ROOT / f"docs/results/{name}-paper", DESIGNS[name]()
    held = json.loads((folder / "study.json").read_text())
    assert held["weights"] == {w: weights_hash(w)[:12] for w in design.weights}
    rows = rows_in(folder, [case.name for case in design.cases("confirmation", 1000, 0)])
    assert {len({row.start for row in of}) for of in rows.values()} <= {50, 64, 100, 128}
    said = (ROOT / "docs/other-worlds.md").read_text()
    block = said.split(f"<!-- {name} -->\n")[1].split(f"<!-- /{name} -->")[0]
    for line in verdict_of_cases(design, rows):
        assert line in block
    measured = measured_tables(folder)
    assert len(measured) == (1 if name in ("reacher", "granular") else 0)
    for table in case_tables(design, rows) + measured:
        assert to_markdown(table).strip() in block, table.name


def test_the_readme_says_what_the_other_studies_found() -> None:
    """One table over the large runs, in both places."""
    folders = {name: ROOT / f"docs/results/{name}-large" for name in DESIGNS}
    table = to_markdown(across_studies(folders)).strip()
    for place in ("README.md", "docs/other-worlds.md"):
        assert table in (ROOT / place).read_text()


POOLS = ("published", "decoy")


def large_pair(name: str, ours: str, other: str, unit: str) -> Paired:
    """Two methods on the starts of a large study, cases that count together as one."""
    folder, design = ROOT / f"docs/results/{name}-large", DESIGNS[name]()
    held = json.loads((folder / "study.json").read_text())
    assert held["weights"] == {w: weights_hash(w)[:12] for w in design.weights}
    rows = rows_in(folder, [case.name for case in design.cases("confirmation", 1000, 0)])
    some = {case: rows[case] for case in design.units()[unit]}
    found = pair_of(some, ours, other, ALL, design.clustered)
    assert found is not None
    return found


def test_what_is_said_of_the_large_runs_is_in_their_rows() -> None:
    text = " ".join((ROOT / "docs/other-worlds.md").read_text().split())
    control, wins = "consensus + fusion", {}
    for name in DESIGNS:
        for unit in DESIGNS[name]().units():
            p = large_pair(name, OURS, control, unit)
            if p.difference_interval[0] > 0:
                wins[name, unit] = p.p
    assert list(wins) == [("reacher", "reference"), ("reacher", "decoy"), ("shapes", "all decoy")]
    assert "p = {:.2g}, {:.2g} and {:.2g}".format(*wins.values()) in text

    def points(p: Paired) -> tuple[float, ...]:
        return tuple(round(100 * x, 1) for x in (p.difference, *p.difference_interval))

    over = points(large_pair("reacher", OURS, "native lewm", "decoy"))
    assert "over which D-JEPA gains {}, {} to {}".format(*over) in text
    looks = points(large_pair("appearance", OURS, "mixture", "all"))
    shapes = points(large_pair("shapes", OURS, "mixture", "all published"))
    assert "adds {} points under changed looks ({} to {})".format(*looks) in text
    assert "and {} on published pools of shapes ({} to {})".format(*shapes) in text
    looks, shapes, decoys = (
        points(large_pair(name, "relational", "fusion", unit))
        for name, unit in (("appearance", "all"), *(("shapes", f"all {x}") for x in POOLS))
    )
    assert "changed looks +{} points ({} to {})".format(*looks) in text
    assert "unseen shapes +{} ({} to {})".format(*shapes) in text
    assert "decoy pools +{} ({} to {})".format(*decoys) in text
    below = [
        -points(large_pair(name, "relational", control, unit))[0]
        for name in ("shapes", "appearance")
        for unit in DESIGNS[name]().units()
    ]
    assert f"stays {min(below)} to {max(below)} points below consensus + fusion" in text
    arm = [
        points(large_pair("reacher", "relational", "fusion", x))[0] for x in ("reference", "decoy")
    ]
    assert "Reacher (reference {:+}, decoy {:+})".format(*arm) in text
