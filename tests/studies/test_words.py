"""The words of a page follow the verdict rule; what is missing has an error that names it."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from djepa.errors import DjepaError
from djepa.evaluate.paired import paired
from djepa.evaluate.rows import Row, write_rows
from djepa.evaluate.verdict import Verdict
from djepa.files import to_json
from djepa.studies.findings import _adapted, findings, make_tables, verdict_table, write_tables
from djepa.studies.names import get_design
from djepa.studies.pages import draw_figures, write_report
from djepa.studies.results import Results, load_results

SOME = {
    "native lewm": "1100",
    "native tdjepa": "1010",
    "fusion, two": "1110",
    "fusion, four": "1100",
    "consensus + fusion, four": "1100",
    "relational": "1110",
    "log costs": "1100",
    "D-JEPA": "1110",
    "oracle": "1111",
}


def rows(kind: str, won: dict[str, str], times: int = 10) -> list[Row]:
    """Rows from strings such as "1101", each start so many times."""
    found = []
    for method, text in won.items():
        for start, one in enumerate(text * times):
            about = ("pusht", kind, method, start, f"{start:016x}", start % 2 == 0)
            found.append(Row(*about, 1, one == "1", 0.5, False, "push.v1", "0123456789ab", ""))
    return found


@pytest.fixture
def study(tmp_path: Path):
    """A function: kind -> what methods won -> a folder with these rows."""

    def make(**kinds: dict[str, str]) -> Results:
        (tmp_path / "rows").mkdir(exist_ok=True)
        for kind, won in kinds.items():
            write_rows(tmp_path / "rows" / f"{kind}.csv.gz", rows(kind, SOME | won))
        head = {"study": "pusht", "preset": "tiny", "seed": 5}
        (tmp_path / "study.json").write_text(to_json(head))
        return load_results(tmp_path)

    return make


def test_words_follow_the_rule(study) -> None:
    results = study(
        decoy={"fusion, four": "1000", "consensus + fusion, four": "1111"},
        planner={"fusion, four": "1101", "consensus + fusion, four": "1110"},
    )
    decoy, planner = findings(results)
    assert decoy.startswith("**decoy** (")
    assert "D-JEPA is better than LeWM and fusion of four models; it is worse than" in decoy
    assert "it is worse than fusion of four models + pool density." in decoy
    assert planner.startswith("**planner** (")
    assert "is not significantly different from fusion of four models and" in planner
    numbers = {row[:3]: row[3:] for row in verdict_table(results).rows}
    gain, p, word = numbers["decoy", "D-JEPA", "LeWM"]
    assert gain.startswith("+25.0 (")
    assert (float(p.strip("< ")) < 0.05, word) == (True, "better")
    assert numbers["decoy", "D-JEPA", "fusion of four models"][0].startswith("+50.0 (")
    gain, _, word = numbers["decoy", "D-JEPA", "fusion of four models + pool density"]
    assert (gain[:7], word) == ("-25.0 (", "worse")
    gain, p, word = numbers["planner", "D-JEPA", "fusion of four models"]
    assert (gain[:6], p, word) == ("+0.0 (", "1", "no significant difference")


def test_adapted_predictors_share_a_sentence() -> None:
    """Those with one verdict against one geometry are named together."""
    pair = paired(np.array([True] * 40), np.array([True] * 20 + [False] * 20))
    same = replace(pair, difference=0.0, difference_interval=(-0.1, 0.1))
    some = [
        Verdict("published", "PEGrad", "native tdjepa", same, 1.0),
        Verdict("published", "CVaR", "native tdjepa", same, 1.0),
        Verdict("published", "plasticity", "native tdjepa", pair, 0.001),
    ]
    assert list(_adapted(some, ["PEGrad", "CVaR", "plasticity"])) == [
        "PEGrad and CVaR are not significantly different from TD-JEPA.",
        "Predictive plasticity is better than TD-JEPA.",
    ]


def test_all_primary_comparisons_count_for_holm(study) -> None:
    """Six gains and no loss: p = 0.031 alone, not significant among four comparisons."""
    won = {"native lewm": "1" * 40, "fusion, four": "1" * 34 + "0" * 6,
           "consensus + fusion, four": "1" * 40, "D-JEPA": "1" * 40, "oracle": "1" * 40,
           "relational": "1" * 40, "fusion, two": "1" * 40}  # fmt: skip
    results = study(decoy={})
    write_rows(results.folder / "rows" / "decoy.csv.gz", rows("decoy", won, 1))
    results = load_results(results.folder)
    found = {v.theirs: v for v in results.verdicts if v.ours == "D-JEPA"}["fusion, four"]
    assert found.pair.p == pytest.approx(2 / 2**6)
    assert found.adjusted == pytest.approx(4 * 2 / 2**6)
    assert found.word == "no significant difference"
    assert "D-JEPA is not significantly different from" in findings(results)[0]


@pytest.mark.parametrize(
    ("published", "word"),
    [("1111", "better than"), ("1110", "not significantly different from"), ("0110", "worse than")],
)
def test_the_published_method_has_its_own_words(study, published: str, word: str) -> None:
    (line,) = findings(study(reference={"relational": published}))
    assert f"D-JEPA, as published, is {word} fusion of two models." in line


def test_the_page_says_what_the_rows_say(study) -> None:
    results = study(reference={}, decoy={"consensus + fusion, four": "1111"})
    write_tables(results)
    draw_figures(results)
    write_report(results)
    page = (results.folder / "report.html").read_text()
    assert "D-JEPA is better than LeWM" in page
    assert "is worse than fusion of four models + pool density" in page
    assert "no significant difference" in page
    assert page.count('<li class="card">') == 2
    assert "djepa study pusht --preset tiny --seed 5." in page
    assert "reference 0123456789ab, decoy 0123456789ab" in page
    text = re.sub(r"<(style|script)\b.*?</\1>", "", page, flags=re.DOTALL)
    assert "*" not in re.sub(r"<[^>]*>", "", text)  # no markup that nobody has turned into HTML
    listed = re.findall(r"\((\S+)\.md\)", (results.folder / "tables" / "README.md").read_text())
    assert sorted(listed) == sorted(path.stem for path in (results.folder / "tables").glob("*.csv"))
    assert {"success", "verdicts", "paired-d-jepa", "ablation-decoy"} <= set(listed)
    before = (results.folder / "report.html").read_bytes()
    write_report(load_results(results.folder))
    assert (results.folder / "report.html").read_bytes() == before


def test_no_figure_of_the_paper_stands_beside_other_pools(study) -> None:
    """PushT's are of retained pools, which none of these are."""
    tables = make_tables(study(reference={}, decoy={}, planner={}))
    assert not [c for table in tables for c in table.columns if "paper" in c]


def test_figures_of_the_paper_stand_beside_eligible_starts_of_its_own_pools(study) -> None:
    results = study(published={}, decoy={})
    tables = {table.name: table for table in make_tables(results)}
    sheet = tables["success-eligible"]
    assert [c for c in sheet.columns if "paper" in c] == ["published, eligible, paper"]
    at = sheet.columns.index("published, eligible, paper")
    printed = {row[0]: row[at] for row in sheet.rows}
    assert (printed["LeWM"], printed["D-JEPA, as published"], printed["D-JEPA"]) == (
        "83.59",
        "87.11",
        "",
    )
    assert not any("paper" in c for n, t in tables.items() if n != sheet.name for c in t.columns)


def test_deployed_planners_have_the_paper_s_figures_in_square_brackets(study) -> None:
    """Round brackets hold intervals; without a figure the note does not speak of any."""
    results = study(published={}, reference={})
    one = {"method": "relational", "milliseconds": [2.0, 1.0], "device": "cpu", "files": 1}
    for case in ("published", "reference"):
        file = results.folder / "measures" / "deployment" / f"{case}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(to_json({"relational": one}))
    tables = {table.name: table for table in make_tables(results)}
    published, reference = (tables[f"deployment-{of}"] for of in ("published", "reference"))
    assert "1.50 (1.00-2.00) [35.03]" in published.rows[0]
    assert published.note.endswith("In square brackets: the paper's figure.")
    assert not any("[" in cell for cell in reference.rows[0])
    assert "paper" not in reference.note


def test_without_rows_there_is_nothing_to_write(tmp_path: Path) -> None:
    results = Results(tmp_path, get_design("pusht"))
    for work in (make_tables, findings, write_report):
        with pytest.raises(DjepaError, match="holds no rows yet"):
            work(results)


@pytest.mark.parametrize(("text", "complaint"), [(None, "no study.json"), ("{", "is damaged")])
def test_a_folder_without_a_study(study, text: str | None, complaint: str) -> None:
    folder = study(decoy={}).folder
    (folder / "study.json").unlink()
    if text:
        (folder / "study.json").write_text(text)
    with pytest.raises(DjepaError, match=complaint):
        load_results(folder)


def audit(name: str, mixed: bool) -> dict:
    """What an audit leaves of two starts, with and without a start of both outcomes."""
    share = {"positive": {"hits": 1, "of": 2, "share": 0.5}, "each": [0.25, -0.5]}
    gap = {**share, "median": -0.125, "quartiles": [-0.3, 0.1]}
    none = {"positive": {"hits": 0, "of": 0, "share": None}, "median": None, "quartiles": None}
    each = [0.5, 0.25] if mixed else [None, None]
    mean = 0.375 if mixed else None
    return {
        "name": name,
        "gap": gap if mixed else {**none, "each": [None, None]},
        "inversions": [
            {"shortlist": 63, "starts": 2, "mean": 0.375, "each": [0.5, 0.25]},
            {"shortlist": 4, "starts": 2 if mixed else 0, "mean": mean, "each": each},
        ],
        "correlations": [
            {"shortlist": 63, "within": mean, "pooled": mean, "each": each},
        ],
    }


def test_an_audit_without_mixed_starts_leaves_blanks(study) -> None:
    results = study(reference={})
    file = results.folder / "measures" / "audit" / "reference.json"
    file.parent.mkdir(parents=True)
    file.write_text(to_json([audit("lewm", True), audit("tdjepa", False)]))
    sheets = {table.name: table for table in make_tables(results)}
    assert sheets["audit-gap-reference"].rows == (
        ("LeWM", "2", "-0.125", "-0.300 to +0.100", "1 (50.0 %)"),
        ("TD-JEPA", "0", "", "", ""),
    )
    assert sheets["audit-inversions-reference"].rows[1] == ("TD-JEPA", "37.5 (2)", "")
    assert sheets["audit-correlations-reference"].rows == (
        ("LeWM", "0.375 (0.375)"),
        ("TD-JEPA", ""),
    )
    draw_figures(results)
    made = results.folder / "figures"
    assert "TD-JEPA" not in (made / "audit-gap-reference.csv").read_text()
    sizes = {
        line.split(",")[1]
        for line in (made / "audit-inversions-reference.csv").read_text().split()[1:]
    }
    assert sizes == {"63"}
    assert not (made / "audit-correlations-reference.csv").exists()
