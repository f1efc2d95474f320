"""The words of the page follow the intervals; what is missing has an error that names it."""

import re
from pathlib import Path

import pytest

from djepa.errors import DjepaError
from djepa.evaluate.rows import Row, write_rows
from djepa.files import to_json
from djepa.studies.draw import draw_figures
from djepa.studies.pages import against, verdict, write_report
from djepa.studies.write import Results, make_tables, write_tables

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
        return Results(tmp_path)

    return make


def test_words_follow_the_signs_of_intervals(study) -> None:
    results = study(
        decoy={"fusion, four": "1000", "consensus + fusion, four": "1111"},
        planner={"fusion, four": "1101", "consensus + fusion, four": "1110"},
    )
    decoy, planner = verdict(results)
    assert decoy.startswith("**decoy pools** (")
    assert "D-JEPA beats fusion, four (+50.0 points (" in decoy
    assert " and loses to consensus + fusion, four (-25.0 points (" in decoy
    assert planner.startswith("**planner pools** (")
    assert "D-JEPA cannot be told from fusion, four (+0.0 points (-" in planner
    assert (
        "and cannot be told from consensus + fusion, four (+0.0 points (+0.0 to +0.0))" in planner
    )


@pytest.mark.parametrize(
    ("alone", "word"),
    [("1111", "beat"), ("1100", "cannot be told from"), ("0000", "lose to")],
)
def test_what_log_costs_do_without_density_is_said(study, alone: str, word: str) -> None:
    (line,) = verdict(study(decoy={"log costs": alone}))
    assert f"Log costs alone, without density, {word} that control (" in line


@pytest.mark.parametrize(
    ("published", "word"),
    [("1111", "gains over"), ("1110", "cannot be told from"), ("0110", "loses to")],
)
def test_the_published_operator_has_its_own_word(study, published: str, word: str) -> None:
    (line,) = verdict(study(reference={"relational": published}))
    assert f"relational operator {word} the fusion it starts from (" in line


def test_words_and_numbers_are_of_the_same_interval(study) -> None:
    """Whatever the counts: no word without the sign of both ends."""
    signs = {"beats": (1, 1), "loses to": (-1, -1)}
    for text in ("1111", "1110", "1011", "0111", "1100", "0000"):
        (line,) = verdict(study(reference={"D-JEPA": text}))
        word, low, high = re.search(
            r"D-JEPA (.+?) fusion, four \(\S+ points \((\S+) to (\S+)\)\)", line
        ).groups()
        ends = tuple((float(x) > 0) - (float(x) < 0) for x in (low, high))
        assert ends == signs[word] if word in signs else min(ends) <= 0 <= max(ends)


def test_gains_are_ours(study) -> None:
    results = study(decoy={"D-JEPA": "1111", "fusion, four": "1000"})
    found = against(results.rows["decoy"], "D-JEPA", "fusion, four")
    assert (found.gains, found.losses, found.difference) == (30, 0, 0.75)


def test_the_page_says_what_the_rows_say(study) -> None:
    results = study(reference={}, decoy={"consensus + fusion, four": "1111"})
    write_tables(results)
    write_report(results)
    page = (results.out / "report.html").read_text()
    assert "D-JEPA beats fusion, four" in page
    assert "loses to consensus + fusion, four" in page
    assert page.count('<li class="card">') == 2
    assert "djepa study pusht --preset tiny --seed 5." in page
    assert "reference 0123456789ab, decoy 0123456789ab" in page
    text = re.sub(r"<(style|script)\b.*?</\1>", "", page, flags=re.DOTALL)
    assert "*" not in re.sub(r"<[^>]*>", "", text)  # no markup that nobody has turned into HTML
    listed = re.findall(r"\((\S+)\.md\)", (results.out / "tables" / "README.md").read_text())
    assert sorted(listed) == sorted(path.stem for path in (results.out / "tables").glob("*.csv"))
    assert {"across", "success-decoy", "paired-reference-d-jepa"} <= set(listed)
    before = (results.out / "report.html").read_bytes()
    write_report(Results(results.out))
    assert (results.out / "report.html").read_bytes() == before


def test_without_rows_there_is_nothing_to_write(tmp_path: Path) -> None:
    for work in (make_tables, verdict, write_report):
        with pytest.raises(DjepaError, match="holds no rows yet"):
            work(Results(tmp_path))


def test_a_folder_without_a_study(study) -> None:
    results = study(decoy={})
    (results.out / "study.json").unlink()
    with pytest.raises(DjepaError, match=r"no study\.json"):
        write_report(results)


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
    audits = [audit("lewm", True), audit("tdjepa", False)]
    (results.out / "audit.json").write_text(to_json(audits))
    sheets = {table.name: table for table in make_tables(results)}
    assert sheets["audit-gap"].rows == (
        ("lewm", "2", "-0.125", "-0.300 to +0.100", "1 (50.0 %)"),
        ("tdjepa", "0", "", "", ""),
    )
    assert sheets["audit-inversions"].rows[1] == ("tdjepa", "37.5 (2)", "")
    draw_figures(results, lambda line: None)
    made = results.out / "figures"
    assert "tdjepa" not in (made / "audit-gap.csv").read_text()
    sizes = {line.split(",")[1] for line in (made / "audit-inversions.csv").read_text().split()[1:]}
    assert sizes == {"63"}
    assert not (made / "audit-correlations.csv").exists()
