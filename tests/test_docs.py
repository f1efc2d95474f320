"""What the README and the docs say is what was measured, and what they show runs."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from djepa.studies.write import Results, make_tables, short_table

from djepa.bench.subject import GeometryRow
from djepa.bench.table import bench_markdown
from djepa.bench.world import Row
from djepa.cli.main import NAMES
from djepa.evaluate.intervals import Rate
from djepa.evaluate.paired import Paired
from djepa.evaluate.quality import Quality, quality_markdown
from djepa.evaluate.rows import successes
from djepa.models.weights import SHIPPED, load_geometry, read_card, shipped
from djepa.report.results import gap_closed
from djepa.report.tables import to_markdown
from djepa.studies.pages import against, verdict

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


def test_the_shipped_weights_are_what_their_cards_say() -> None:
    """Push's at most 60 MB together; each loads, with recipe, command and metrics."""
    push = ["dinowm", "jepawm", "lewm", "tdjepa"]
    others = ["granular-dinowm", "reacher-lewm", "reacher-tdjepa", "shapes-jepawm"]
    assert shipped() == sorted(push + others)
    files = [path for name in push for path in (SHIPPED / name).iterdir()]
    assert sum(path.stat().st_size for path in files) < 60e6
    for name in shipped():
        card, model = read_card(name), load_geometry(name)
        assert model.name == name.split("-")[-1]
        assert card["parameters"] == sum(p.numel() for p in model.parameters())
        assert card["command"].startswith("djepa train")
        each = card["metrics"].values() if name.startswith("shapes") else [card["metrics"]]
        assert all(metrics["starts"] >= 64 for metrics in each)
        assert {"seed", "episodes"} < card["recipe"].keys()
        assert {"steps", "minutes"} & card["recipe"].keys()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_commands_exist(page: Path) -> None:
    text = page.read_text()
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / link).exists(), link
    for command in re.findall(r"^\$? ?djepa (\w+)", text, re.MULTILINE):
        assert command in NAMES, command


def test_files_stay_readable() -> None:
    """None over 500 lines, half of them under 180."""
    lengths = [len(f.read_text().splitlines()) for f in (ROOT / "src").rglob("*.py")]
    assert max(lengths) <= 500
    assert np.median(lengths) < 180


PAPER, LARGE = (Results(ROOT / f"docs/results/pusht-{preset}") for preset in ("paper", "large"))
OURS, CONTROL = "D-JEPA", "consensus + fusion, four"


@pytest.mark.parametrize(("results", "mark", "least"), [(PAPER, "", 9), (LARGE, "large ", 3)])
def test_the_tables_of_the_study_are_made_from_its_rows(
    results: Results, mark: str, least: int
) -> None:
    text = (ROOT / "docs/study.md").read_text()
    tables = {table.name: table for table in make_tables(results)}
    named = re.findall(rf"<!-- {mark}table ([a-z0-9-]+) -->", text)
    assert len(named) >= least
    for name in named:
        assert between(text, f"{mark}table {name}") == to_markdown(tables[name]).strip()


@pytest.mark.parametrize(
    ("page", "mark", "results"),
    [
        ("README.md", "verdict", LARGE),
        ("docs/study.md", "large verdict", LARGE),
        ("docs/study.md", "verdict", PAPER),
    ],
)
def test_the_verdict_is_what_the_intervals_say(page: str, mark: str, results: Results) -> None:
    said = "\n".join(f"- {line}" for line in verdict(results))
    assert between((ROOT / page).read_text(), mark) == said


@pytest.mark.parametrize(
    ("page", "mark"), [("README.md", "short"), ("docs/study.md", "large short")]
)
def test_the_short_table_is_made_from_the_rows(page: str, mark: str) -> None:
    text = (ROOT / page).read_text()
    assert between(text, mark) == to_markdown(short_table(LARGE)).strip()


def learning() -> str:
    """Success by fitting starts; with all of them it is that of the rows."""
    cells: dict[tuple[str, int], list[str]] = {}
    for kind, rows in LARGE.rows.items():
        solved = successes(rows)
        for point in LARGE.held(f"learning/{kind}"):
            method, n, found = point["method"], point["fit"], Rate(point["hits"], point["of"])
            cells.setdefault((method, n), []).append(found.percent(interval=True))
            if n == LARGE.study["sizes"]["fit"]:
                assert found.hits == solved[method].sum()
    lines = ["| method | fitting starts | reference | decoy | planner |", "|---|--:|--:|--:|--:|"]
    order = list(dict.fromkeys(method for method, _ in cells))
    for (method, n), rates in sorted(cells.items(), key=lambda c: (order.index(c[0][0]), c[0][1])):
        lines.append(f"| {method} | {n:,} | {' | '.join(rates)} |")
    return "\n".join(lines)


def test_the_learning_curves_are_the_recorded_ones() -> None:
    assert between((ROOT / "docs/study.md").read_text(), "large learning") == learning()
    text = flat("docs/alignment.md")
    for kind in LARGE.rows:
        held = [p for p in LARGE.held(f"learning/{kind}") if p["method"] == OURS]
        few, many = (100 * p["hits"] / p["of"] for p in (held[0], held[-1]))
        assert f"{few:.1f} → {many:.1f} % on {kind} pools" in text


def flat(page: str) -> str:
    """Its sentences in one line, without what is made by a table's or verdict's function."""
    text = re.sub(r"<!-- ([^/].*?) -->.*?<!-- /\1 -->", "", (ROOT / page).read_text(), flags=re.S)
    return " ".join(text.split())


def points(gain: Paired) -> str:
    low, high = (100 * end for end in gain.difference_interval)
    return f"{100 * gain.difference:+.1f} points ({low:+.1f} to {high:+.1f})"


@pytest.mark.parametrize(
    ("page", "kind", "ours", "theirs"),
    [
        ("docs/study.md", "decoy", OURS, CONTROL),
        ("docs/study.md", "decoy", "log costs", "fusion, four"),
        ("docs/study.md", "decoy", "log mixture", "log costs"),
        ("docs/study.md", "reference", OURS, CONTROL),
        ("docs/study.md", "planner", OURS, CONTROL),
        ("docs/study.md", "planner", OURS, "native jepawm"),
        ("docs/study.md", "decoy", "pointwise", "fusion, two"),
        ("docs/study.md", "decoy", "relational", "pointwise"),
        ("docs/study.md", "reference", "plasticity", "native tdjepa"),
        ("docs/study.md", "reference", "fine-tuned", "native tdjepa"),
        ("docs/study.md", "decoy", "plasticity", "native tdjepa"),
        ("docs/study.md", "decoy", "fine-tuned", "native tdjepa"),
        ("docs/alignment.md", "decoy", "relational", "pointwise"),
        ("docs/alignment.md", "decoy", "log costs", "fusion, four"),
        ("docs/alignment.md", "reference", "log costs", "fusion, four"),
        ("docs/alignment.md", "decoy", "log mixture", "log costs"),
        ("docs/alignment.md", "reference", "log mixture", "log costs"),
        ("docs/alignment.md", "reference", "plasticity", "native tdjepa"),
        ("docs/faq.md", "decoy", OURS, CONTROL),
        ("docs/faq.md", "planner", OURS, CONTROL),
    ],
)
def test_sentences_quote_the_rows(page: str, kind: str, ours: str, theirs: str) -> None:
    assert points(against(LARGE.rows[kind], ours, theirs)) in flat(page)


def test_what_is_said_of_both_studies_is_in_their_rows() -> None:
    text = flat("docs/study.md")
    older = {kind: {row.identity for row in rows} for kind, rows in PAPER.rows.items()}
    new = [row for row in LARGE.rows["decoy"] if row.identity not in older["decoy"]]
    gain = against(new, OURS, CONTROL)
    assert f"on the {gain.starts:,} starts that preset paper does not have: {points(gain)}" in text
    again = [row for row in LARGE.rows["planner"] if row.identity in older["planner"]]
    gain = against(again, OURS, CONTROL)
    assert f"gains and losses are {gain.gains} and {gain.losses}" in text
    before = against(PAPER.rows["planner"], OURS, CONTROL)
    assert f"shown {points(before)}, p = {before.p:.3f}, on {before.starts} starts" in text
    assert f"(p = {before.p:.3f})" in flat("README.md")
    assert f"p = {against(LARGE.rows['planner'], OURS, CONTROL).p:.3f}. Preset paper" in text
    opened = [row.opened for rows in LARGE.rows.values() for row in rows if row.method == OURS]
    assert f"opened on none of the {len(opened):,} confirmation starts" in text
    assert not any(opened)
    shares = [100 * gap_closed(rows, OURS, "native lewm").share for rows in LARGE.rows.values()]
    assert "closes {:.0f} %, {:.0f} % and {:.0f} % of it".format(*shares) in text
    published = against(PAPER.rows["reference"], "relational", "fusion, two")
    assert f"lost to it by {-100 * published.difference:.1f} points" in text
    gates = [r.opened for r in PAPER.rows["reference"] if r.method == "relational"]
    assert f"the gate opened on {sum(gates)} of {len(gates)}" in text
    few = LARGE.held("learning/reference")[2]
    assert (few["method"], few["fit"]) == ("relational", 448)
    many = successes(LARGE.rows["reference"])["relational"].mean()
    share = 100 * few["hits"] / few["of"]
    assert f"it reaches {share:.1f} %, with 4,096 it reaches {100 * many:.1f} %" in text


def test_what_held_on_confirmation_starts_is_in_the_rows() -> None:
    text = flat("docs/alignment.md")
    for kind in ("decoy", "planner"):
        gain = against(LARGE.rows[kind], "log mixture", "fusion, four")
        shares = f"{100 * gain.theirs:.1f} → {100 * gain.ours:.1f} %"
        assert f"{shares} ({gain.gains} and {gain.losses})" in text
    few = LARGE.held("learning/reference")[2]
    base = successes(LARGE.rows["reference"])["fusion, two"].mean()
    assert f"reaches {100 * few['hits'] / few['of']:.1f} %, the fusion {100 * base:.1f} %" in text


def test_the_choices_of_cpu_and_gpu_are_counted() -> None:
    text = flat("docs/study.md")
    same = {}
    for method in ("native lewm", "native tdjepa", "oracle"):
        cpu, gpu = (
            {row.identity: row.chosen for row in results.rows["reference"] if row.method == method}
            for results in (PAPER, LARGE)
        )
        same[method] = sum(gpu[identity] == chosen for identity, chosen in cpu.items())
    lewm, tdjepa, oracle = same.values()
    assert f"the choice of LeWM is the same on {lewm}, that of TD-JEPA on {tdjepa}" in text
    assert oracle == len(cpu)


def test_the_lift_and_its_time_on_a_gpu_are_the_recorded_ones() -> None:
    text = flat("docs/study.md")
    held = LARGE.held("deployment")
    for name in ("D-JEPA, lifted", "relational, lifted"):
        assert f"{np.median(held[name]['milliseconds']):.1f} ms" in text
    for kind in LARGE.rows:
        for entry in LARGE.held(f"lifting/{kind}").values():
            assert entry["ranks_recovered"] == entry["ranks"]
            assert entry["choices_recovered"] == entry["starts"]
    ranks = LARGE.held("lifting/reference")[OURS]["ranks"]
    assert f"{ranks:,} of {ranks:,} ranks on reference pools" in text


def test_the_training_seeds_are_as_their_cards_say() -> None:
    table = (ROOT / "docs/geometries.md").read_text()
    second = json.loads((ROOT / "docs/results/tdjepa-seed-2.json").read_text())
    cards = {
        "LeWM, shipped | 0": read_card("lewm"),
        "LeWM | 1": second["recipe"]["encoder_card"],
        "TD-JEPA, shipped | 1": read_card("tdjepa"),
        "TD-JEPA | 2": second,
    }
    for name, card in cards.items():
        found = card["metrics"]
        entry = {"share": found["native"], "wilson95": found["native_interval"]}
        line = next(line for line in table.splitlines() if line.startswith(f"| {name} |"))
        assert line.endswith(f"| {rate(entry)} | {100 * found['realised']:.1f} % |")
        assert str(card["recipe"]["seed"]) == name[-1]
        assert found["starts"] == 512
