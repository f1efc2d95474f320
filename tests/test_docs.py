"""README and docs are what their generator writes from stored results, and their examples run."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tools.docs import values
from tools.docs.__main__ import PICTURES, draw
from tools.docs.fill import MARK, ROOT, changed, filled, pages
from tools.docs.growth import scale_results
from tools.docs.scale import scale_needs

from djepa.models.weights import SHIPPED, load_geometry, read_card, shipped, weights_hash
from djepa.studies.names import STUDIES, get_design

PRESETS: dict[str, tuple[str, ...]] = {  # which were run, where not paper and large
    "pusht": ("large",),
    "controls": ("quick",),
    "control": (),
    "arm": ("large",),
    "bimanual": ("paper",),
}


def test_pages_are_what_the_generator_writes() -> None:
    assert [str(page.relative_to(ROOT)) for page, _ in changed()] == [], "run: make docs"


def test_the_figure_is_drawn_from_the_rows(tmp_path: Path) -> None:
    draw(tmp_path)
    for drawn in tmp_path.glob("*.csv"):
        assert drawn.read_text() == (PICTURES / drawn.name).read_text()


def test_ten_million_starts_follow_from_what_was_measured() -> None:
    """By hand: the fit of the largest bank took its seconds, and its memory has a slope."""
    of = [row["details"] for row in scale_results()["full"] if row["what"].startswith("fit,")]
    small, large = sorted(of, key=lambda row: row["starts"])
    hours = large["seconds"] * 10_000_000 / large["starts"] / 3600
    more = (large["peak_mb"] - small["peak_mb"]) / (large["starts"] - small["starts"])
    gigabytes = (large["peak_mb"] + more * (10_000_000 - large["starts"])) / 1000
    assert f"| fit |  | {hours:,.0f} core hours | {gigabytes:,.1f} GB |" in scale_needs()


def test_marks_are_filled() -> None:
    text = 'On <!--= starts("pusht-large", "decoy") -->5<!--/--> starts.\n'
    assert filled(text) == text.replace(">5<", ">2,048<")
    block = '<!--= tables("reacher-paper", "success") -->\nold\n<!--/-->\n'
    assert filled(block).splitlines()[1].startswith("**Success")
    with pytest.raises(ValueError, match="nothing"):
        filled("<!--= nothing() -->x<!--/-->")


def test_no_mark_begins_a_line_of_text() -> None:
    """Markdown would end the paragraph there and show the rest of the line as it is written."""
    assert filled("gains\n  <!--= starts('pusht-large', 'decoy') -->1<!--/--> of them") == (
        "gains <!--= starts('pusht-large', 'decoy') -->2,048<!--/--> of them"
    )
    assert filled("It gains\n  <!--= starts('pusht-large', 'decoy') -->1<!--/-->.") == (
        "It\n  gains <!--= starts('pusht-large', 'decoy') -->2,048<!--/-->."
    )
    begins = re.compile(r"^(?: |[-*>] )*<!--= (?:(?!-->).)*-->[^\n]", re.DOTALL | re.MULTILINE)
    assert [page.name for page in pages() if begins.search(page.read_text())] == []


def test_every_study_stands_in_the_docs_with_its_verdicts() -> None:
    text = "\n".join(page.read_text() for page in pages())
    for name in STUDIES:
        for preset in PRESETS.get(name, ("paper", "large")):
            assert f'verdicts("{name}-{preset}")' in text
            assert f'tables("{name}-{preset}")' in text


def test_the_study_answers_in_four_sentences() -> None:
    """Operator, mixture, density, plasticity: a sentence each, before anything else."""
    text = MARK.sub(lambda match: match[2], (ROOT / "docs/study.md").read_text())
    answer = text.split("**The answer")[1].split("In detail:")[0]
    sentences = re.findall(r"^\d\. (.+)$", answer, re.MULTILINE)
    asked = ("published operator", "mixture", "density", "plasticity")
    for sentence, what in zip(sentences, asked, strict=True):
        assert what in sentence.lower().partition(" help")[0]
        assert re.findall(r"[.?!](?=\s|$)", sentence) == ["."]
    assert text.index("**The answer") < text.index("```")


def test_the_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 130
    call = next(call for call, _ in MARK.findall("\n".join(lines)) if call.startswith("short"))
    assert call.count(",") - call.count("consensus + fusion,") - call.count("fusion, four") <= 9


def test_results_are_of_the_shipped_weights() -> None:
    """But for the quick rows of the controls, which docs/controls.md calls older."""
    for name in set(STUDIES) - {"controls"}:
        for preset in PRESETS.get(name, ("paper", "large")):
            about = json.loads((values.RESULTS / f"{name}-{preset}" / "study.json").read_text())
            if "weights" in about:
                hashes = {of: weights_hash(of)[:12] for of in get_design(name).weights}
                assert about["weights"] == hashes


def test_the_example_of_the_geometries_page_runs(
    bank_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "docs/geometries.md").read_text(), re.DOTALL)
    assert code
    exec(code[1].replace("runs/test", str(bank_copy)), {})
    assert 0 < float(capsys.readouterr().out) <= 1


def test_the_shipped_weights_are_what_their_cards_say() -> None:
    """Push's at most 60 MB together; each loads, with recipe, command and metrics."""
    push = ["dinowm", "jepawm", "lewm", "tdjepa"]
    others = ["arm-ac", "granular-dinowm", "shapes-jepawm"]
    others += ["reacher-jepawm", "reacher-lewm", "reacher-tdjepa", "cube-lewm", "cube-tdjepa"]
    assert shipped() == sorted(push + others)
    files = [path for name in push for path in (SHIPPED / name).iterdir()]
    assert sum(path.stat().st_size for path in files) < 60e6
    for name in shipped():
        card, model = read_card(name), load_geometry(name)
        assert model.name == name.split("-")[-1]
        assert card["parameters"] == sum(p.numel() for p in model.parameters())
        assert {"seed", "episodes"} < card["recipe"].keys()
        assert {"steps", "minutes"} & card["recipe"].keys()
        if name == "arm-ac":  # measured by its predictions; the study measures its choices
            assert card["command"].startswith("python -m djepa.models.ac_train")
            assert card["metrics"]["episodes"] >= 60
            continue
        assert card["command"].startswith("djepa train")
        each = card["metrics"].values() if name.startswith("shapes") else [card["metrics"]]
        assert all(metrics["starts"] >= 64 for metrics in each)


def test_files_stay_readable() -> None:
    """None over 500 lines, half of them under 180."""
    lengths = [len(f.read_text().splitlines()) for f in (ROOT / "src").rglob("*.py")]
    assert max(lengths) <= 500
    assert np.median(lengths) < 180


def test_every_part_of_interop_is_short() -> None:
    """Under 150 lines each. Measured are lines that are not blank, comments and docstrings too."""
    found = [*(ROOT / "src/djepa/interop").glob("*.py"), *(ROOT / "plugins").rglob("*.py")]
    lines = {f.name: sum(map(bool, map(str.strip, f.read_text().splitlines()))) for f in found}
    assert lines.keys() >= {"serve.py", "record.py", "lerobot_robot_djepa_piper.py"}
    assert {name: many for name, many in lines.items() if many >= 150} == {}


def test_the_list_of_slow_tests_names_real_ones() -> None:
    for line in (ROOT / "tests/slow.txt").read_text().split():
        file, _, name = line.replace("::", "@").partition("@")
        places = [ROOT / file, (ROOT / file).parent / "conftest.py"]
        text = "".join(place.read_text() for place in places if place.exists())
        assert f"def {name}(" in text, f"{line}: run make slow"
