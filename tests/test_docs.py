"""What the README and the docs say is what was measured, and what they show runs."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from djepa.bench.subject import GeometryRow
from djepa.bench.table import bench_markdown
from djepa.bench.world import Row
from djepa.cli.main import NAMES
from djepa.evaluate.quality import Quality, quality_markdown
from djepa.models.weights import SHIPPED, load_geometry, read_card, shipped
from djepa.report.tables import to_markdown
from djepa.studies.pages import verdict
from djepa.studies.write import Results, make_tables, short_table

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
STATS = json.loads((ROOT / "docs/results/pool-stats.json").read_text())


def between(text: str, mark: str) -> str:
    found = re.search(rf"<!-- {mark} -->\n(.*?)\n<!-- /{mark} -->", text, re.DOTALL)
    assert found, f"no {mark} block"
    return found.group(1)


def rate(entry: dict[str, object]) -> str:
    low, high = entry["wilson95"]  # type: ignore[misc]
    return f"{100 * entry['share']:.1f} % ({100 * low:.1f}-{100 * high:.1f})"  # type: ignore[operator]


def test_the_bench_table_is_the_recorded_one() -> None:
    recorded = json.loads((ROOT / "docs/results/bench-world.json").read_text())
    rows = [Row(**{k: v for k, v in row.items() if k != "ratio"}) for row in recorded]
    assert between((ROOT / "README.md").read_text(), "bench-world") == bench_markdown(rows)


def test_the_pool_table_is_the_recorded_one() -> None:
    table = between((ROOT / "docs/pools.md").read_text(), "pool-stats")
    lines = {line.split(" | ")[0][2:]: line for line in table.splitlines() if line}
    for chooser in STATS[0]["choosers"]:
        cells = [rate(bank["choosers"][chooser]["success"]) for bank in STATS]
        assert f"| {chooser} | {' | '.join(cells)} |" in table
    for family in ("noisy_0.05", "noisy_0.15", "noisy_0.3", "shuffled"):
        for bank in STATS:
            if family in bank["by_family"]:
                assert f"{100 * bank['by_family'][family]['share']:.1f} %" in lines[family]
    mixed = [f"{100 * bank['mixed']['share']:.1f} %" for bank in STATS]
    assert lines["mixed starts"] == f"| mixed starts | {' | '.join(mixed)} |"


def test_the_check_on_other_starts_is_the_recorded_one() -> None:
    text = " ".join((ROOT / "docs/pools.md").read_text().split())
    fresh = json.loads((ROOT / "docs/results/pool-stats-fresh.json").read_text())
    assert [bank["config"]["split"] for bank in fresh] == ["pools-fresh"] * 2
    for bank in fresh:
        assert rate(bank["choosers"]["pusher endpoint"]["success"]) in text
    assert rate(fresh[0]["choosers"]["density on actions"]["cluster"]) in text


def test_the_readme_quotes_the_recorded_numbers() -> None:
    text = " ".join((ROOT / "README.md").read_text().split())
    by_name = {bank["name"]: bank for bank in STATS}
    blind = by_name["reference-control"]["choosers"]["density on actions"]["success"]
    assert rate(blind) in text
    assert f"a random one on {100 * by_name['reference-control']['random']:.1f} %" in text
    decoy = by_name["decoy"]["choosers"]
    for chooser in ("density on actions", "pusher endpoint"):
        assert rate(decoy[chooser]["cluster"]) in text
        assert rate(decoy[chooser]["success"]) in text
    assert f"a random one on {100 * by_name['decoy']['random']:.1f} %" in text


def test_the_example_of_the_readme_runs() -> None:
    text = (ROOT / "README.md").read_text()
    code = re.search(r"## By hand\n\n```python\n(.*?)```", text, re.DOTALL)
    assert code
    names: dict[str, object] = {}
    exec(code.group(1), names)
    assert np.asarray(names["states"]).shape == (64, 26, 10)
    assert np.asarray(names["frames"]).shape == (26, 224, 224, 3)
    assert np.asarray(names["success"]).any()
    assert len(code.group(1).splitlines()) <= 17


def quality_rows(name: str) -> list[Quality]:
    rows = json.loads((ROOT / f"docs/results/{name}.json").read_text())
    for row in rows:
        row["spearman"] = {int(k): row["spearman"][k] for k in ("63", "32", "16", "8", "4")}
        row["picks"] = tuple(row["picks"])
    return [Quality(**row) for row in rows]


def test_the_quality_table_is_the_recorded_one() -> None:
    table = between((ROOT / "docs/geometries.md").read_text(), "quality")
    rows = quality_rows("quality")
    assert table == quality_markdown(rows).strip()
    for row in rows:
        assert row.native == np.mean(row.picks)


@pytest.mark.parametrize("name", ["bench-geometry", "bench-geometry-gpu"])
def test_the_geometry_benches_are_the_recorded_ones(name: str) -> None:
    recorded = json.loads((ROOT / f"docs/results/{name}.json").read_text())["rows"]
    rows = [GeometryRow(**{k: v for k, v in row.items() if k != "ratio"}) for row in recorded]
    table = between((ROOT / "docs/geometries.md").read_text(), name)
    assert table == bench_markdown(rows, against="plain")


def test_the_alignment_bench_is_the_recorded_one() -> None:
    recorded = json.loads((ROOT / "docs/results/bench-align.json").read_text())["rows"]
    rows = [Row(**{k: v for k, v in row.items() if k != "ratio"}) for row in recorded]
    text = (ROOT / "docs/alignment.md").read_text()
    assert between(text, "bench-align") == bench_markdown(rows, against="plain")
    gpu = json.loads((ROOT / "docs/results/bench-align-gpu.json").read_text())["rows"]
    for row in gpu:
        if row["what"].startswith("decide and lift"):
            assert f"{float(re.findall(r'([0-9.]+) ms', row['note'])[0]):.2g} ms" in text


def test_the_growth_table_is_the_recorded_one() -> None:
    recorded = json.loads((ROOT / "docs/results/bench-growth.json").read_text())
    rows = [Row(**{k: v for k, v in row.items() if k != "ratio"}) for row in recorded]
    table = between((ROOT / "docs/performance.md").read_text(), "bench-growth")
    assert table == bench_markdown(rows, against="smallest")


def exploration() -> str:
    """Success on development starts, by fitting starts where something was fitted."""
    rows = json.loads((ROOT / "docs/results/exploration.json").read_text())
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        name = row["method"] + (f", {row['n']:,} starts" if "n" in row else "")
        cells.setdefault(name, {})[row["pools"]] = f"{100 * row['dev']:.1f}"
    lines = ["| method | reference | decoy | planner |", "|---|--:|--:|--:|"]
    for name, of in cells.items():
        found = [of.get(pools, "") for pools in ("reference", "decoy", "planner")]
        lines.append(f"| {name} | {' | '.join(found)} |")
    return "\n".join(lines)


def test_the_exploration_is_the_recorded_one() -> None:
    assert between((ROOT / "docs/alignment.md").read_text(), "exploration") == exploration()


def test_the_example_of_the_geometries_page_runs(
    bank_copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs/geometries.md").read_text()
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert code
    exec(code.group(1).replace("runs/test", str(bank_copy)), {})
    assert 0 < float(capsys.readouterr().out) <= 1


def test_the_example_of_the_own_model_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "docs/own-model.md").read_text(), re.DOTALL)
    assert code
    names: dict[str, object] = {}
    exec(code.group(1), names)
    assert len(names["decision"].choice) == 60  # type: ignore[attr-defined]
    assert "tensor(" in capsys.readouterr().out
    short = re.search(
        r"## Your own model\n\n```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert short
    given = {name: names[name][:180] for name in ("names", "ids", "costs", "goals", "success")}  # type: ignore[index]
    given["last_latents"] = names["ends"][:180]  # type: ignore[index]
    given["other_evidence"], given["other_outcomes"] = names["calibration"]  # type: ignore[misc]
    given["new_evidence"] = names["new"][0]  # type: ignore[index]
    exec(short.group(1).replace('base=("mine",)', 'base=("mine",), updates=20'), given)
    assert len(given["decision"].choice) == 60


def test_the_shipped_weights_are_what_their_cards_say() -> None:
    """All four, at most 60 MB together, each loads, with recipe, command and metrics."""
    assert shipped() == ["dinowm", "jepawm", "lewm", "tdjepa"]
    files = [path for path in SHIPPED.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 60e6
    for name in shipped():
        card, model = read_card(name), load_geometry(name)
        assert model.name == name
        assert card["parameters"] == sum(p.numel() for p in model.parameters())
        assert card["command"].startswith("djepa train push")
        assert card["metrics"]["starts"] == 512
        assert {"seed", "minutes", "episodes"} <= card["recipe"].keys()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_commands_exist(page: Path) -> None:
    text = page.read_text()
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / link).exists(), link
    for command in re.findall(r"^\$? ?djepa (\w+)", text, re.MULTILINE):
        assert command in NAMES, command


def test_nothing_random_is_global() -> None:
    """Every draw takes an explicit generator."""
    forbidden = re.compile(
        r"np\.random\.(?!default_rng|Generator|SeedSequence)\w+|torch\.rand(?:n|int)?\((?!.*generator=)"
    )
    for file in (ROOT / "src").rglob("*.py"):
        found = forbidden.findall(file.read_text())
        assert not found, (file, found)


def test_files_stay_readable() -> None:
    """None over 500 lines, half of them under 180."""
    lengths = [len(f.read_text().splitlines()) for f in (ROOT / "src").rglob("*.py")]
    assert max(lengths) <= 500
    assert np.median(lengths) < 180


def study() -> Results:
    return Results(ROOT / "docs/results/pusht-paper")


def test_the_tables_of_the_study_are_made_from_its_rows() -> None:
    text, results = (ROOT / "docs/study.md").read_text(), study()
    tables = {table.name: table for table in make_tables(results)}
    named = re.findall(r"<!-- table ([a-z0-9-]+) -->", text)
    assert len(named) > 8
    for name in named:
        assert between(text, f"table {name}") == to_markdown(tables[name]).strip()


@pytest.mark.parametrize("page", ["README.md", "docs/study.md"])
def test_the_verdict_is_what_the_intervals_say(page: str) -> None:
    said = "\n".join(f"- {line}" for line in verdict(study()))
    assert between((ROOT / page).read_text(), "verdict") == said


def test_the_short_table_of_the_readme_is_made_from_the_rows() -> None:
    text = (ROOT / "README.md").read_text()
    assert between(text, "short") == to_markdown(short_table(study())).strip()
