"""What a marker in a page can call. Everything is read from docs/results and the weight cards.

`run` is a folder of docs/results, such as pusht-large; `where` a case or cases counted together.
"""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from tools import grains as unit

from djepa.align.presets import FOUR
from djepa.align.registry import GEOMETRIES, METHODS, label
from djepa.audit.gap import SHORTLISTS
from djepa.bench.measure import Row, bench_markdown
from djepa.evaluate.gap import gap_closed
from djepa.evaluate.graded import qualities
from djepa.evaluate.intervals import Rate, markdown_table
from djepa.evaluate.markdown import markdown
from djepa.evaluate.paper import RETAINED, figure
from djepa.evaluate.rows import successes
from djepa.models.weights import read_card
from djepa.report.results import pair_of
from djepa.report.tables import Table, to_markdown
from djepa.studies import results as study
from djepa.studies.findings import make_tables, verdict_table
from djepa.studies.index import across_studies
from djepa.studies.measures.inverted import DISTANCE, ENDS, pair_table
from djepa.studies.table import MainTable, find_results

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@cache
def stored(run: str) -> study.Results:
    """Rows and measures, read once."""
    return study.load_results(RESULTS / run)


@cache
def _tables(run: str) -> dict[str, str]:
    return {table.name: to_markdown(table) for table in make_tables(stored(run))}


@cache
def _json(file: str) -> Any:
    return json.loads((RESULTS / file).read_text())


def _rows(run: str, where: str) -> dict[str, Any]:
    found = stored(run)
    if where in found.views:  # such as "published, eligible"
        return dict(found.views[where])
    cases = found.design.units().get(where, [where])
    return {case: found.rows[case] for case in cases}


def _rate(run: str, where: str, method: str) -> Rate:
    hits = [successes(of)[method] for of in _rows(run, where).values()]
    return Rate(sum(int(h.sum()) for h in hits), sum(len(h) for h in hits))


def success(run: str, where: str, method: str, interval: bool = False) -> str:
    """Such as 84.8 %, or 84.8 % (83.2-86.3)."""
    return _rate(run, where, method).percent(interval)


def graded(run: str, case: str, method: str) -> str:
    """Mean quality where outcomes are graded, such as 92.9."""
    return f"{100 * qualities(stored(run).rows[case])[method].mean():.1f}"


def starts(run: str, where: str) -> str:
    """Number of starts."""
    return f"{_rate(run, where, 'oracle').of:,}"


def gain(run: str, where: str, ours: str, theirs: str) -> str:
    """Such as +2.4 points (+1.2 to +3.7)."""
    d = stored(run).design
    p = pair_of(_rows(run, where), ours, theirs, d.clustered, bool(d.graded))
    assert p is not None, "not run"
    low, high = (100 * end for end in p.difference_interval)
    return f"{100 * p.difference:+.1f} points ({low:+.1f} to {high:+.1f})"


def verdict(run: str, where: str, ours: str, theirs: str) -> str:
    """Such as: is better than LeWM: +3.1 points (+1.0 to +5.2), adjusted p = 0.004."""
    wanted = (where, ours, theirs)
    verdicts = stored(run).verdicts
    return next(v.phrase for v in verdicts if (v.where, v.ours, v.theirs) == wanted)


def verdicts(run: str) -> str:
    """Every primary comparison with its verdict."""
    found = verdict_table(stored(run))
    return markdown(found.columns, found.rows)


def tables(run: str, *names: str) -> str:
    """Some tables of a study, or all of them."""
    return "\n".join(_tables(run)[name] for name in names or _tables(run))


def short(run: str, *methods: str) -> str:
    """Success of a few methods."""
    return to_markdown(study.short_table(stored(run), methods))


def across(preset: str, *studies: str) -> str:
    """What the main methods reach in several studies."""
    return to_markdown(across_studies({name: stored(f"{name}-{preset}") for name in studies}))


def opened(run: str, method: str) -> str:
    """On how many starts the gate opened, over all cases, such as 0 of 6,144."""
    gates = [row.opened for of in stored(run).rows.values() for row in of if row.method == method]
    return f"{sum(gates):,} of {len(gates):,}"


def closed(run: str, case: str, ours: str, base: str) -> str:
    """Share of what the best candidate gains over the base, such as 46 % (40 to 51)."""
    rows: list[Any] = []
    for of in stored(run).views[case].values():  # starts of several cases are numbered on
        first = 1 + max((row.start for row in rows), default=-1)
        rows += [replace(row, start=first + row.start) for row in of]
    return str(gap_closed(rows, ours, base, bool(stored(run).design.graded)))


def collided(run: str, case: str, method: str) -> str:
    """Scenes of a driving study in which the choice collides at fault."""
    parts = stored(run).measured("parts")[case]
    return f"{parts['methods'][label(method)]['collisions']}"


def opened_in(run: str, case: str, method: str) -> str:
    """Starts of a case on which the gate was open."""
    rows = [row for row in stored(run).rows[case] if row.method == method]
    return f"{sum(bool(row.opened) for row in rows):,} of {len(rows):,}"


def stamped(what: str) -> str:
    """Decoy starts of the cube on which both models succeed, or do so by different candidates."""
    return f"{stored('cube-paper').measured('stamps')['decoy'][what]}"


def shifted(run: str, case: str) -> str:
    """How likely evidence that is drawn alike differs as much from that of the calibration."""
    return f"{stored(run).measured('shift')[case]['p']:.1g}"


def learning(run: str) -> str:
    """Success by number of fitting starts."""
    measured = stored(run).measured("learning")
    columns = [
        {f"{label(p['method'])}, {p['fit']:,}": Rate(p["hits"], p["of"]).percent(True)
         for p in sorted(points, key=lambda p: (list(METHODS).index(p["method"]), p["fit"]))}
        for points in measured.values()
    ]  # fmt: skip
    return markdown_table("method, fitting starts", list(measured), columns)


def learned(run: str, case: str, method: str, fit: int) -> str:
    """One point of it."""
    points = stored(run).measured("learning")[case]
    found = next(p for p in points if (p["method"], p["fit"]) == (method, fit))
    return Rate(found["hits"], found["of"]).percent()


def milliseconds(run: str, case: str, name: str) -> str:
    """Median time of a deployed planner for one start."""
    return f"{median(stored(run).measured('deployment')[case][name]['milliseconds']):.1f} ms"


def grains() -> str:
    """Development starts of the granular world: what is solved in the table's unit, and by rule."""
    found, lines = _json("grains.json"), []
    mixtures = (*((name,) for name in found), ("100 reached", "100 shaped"), unit.FINE)
    for names in mixtures:
        kinds = {
            what: [start[what] for name in names for start in found[name]]
            for what in ("native", "anchor", "best")
        }
        own = kinds["native"]
        low, high = np.quantile(own, [0.11, 0.34])
        cells = [f"{of['main']:.0f} / {of['strict']:.0f}"
                 for of in (unit.shares(x, 1.0) for x in kinds.values())]  # fmt: skip
        chosen = unit.choose(own)
        word = "accepted" if chosen.accepted else "refused"
        by_rule = (f"{chosen.factor:.2f}", f"{chosen.main:.0f} / {chosen.strict:.0f}", word)
        about = (" + ".join(names), str(len(own)), f"{np.mean(own):.3f}", f"{high / low:.2f}")
        lines.append((*about, *cells, *by_rule))
    columns = ("grains, goals", "starts", "mean CD", "width", "model's choice", "recorded attempt",
               "best of 63", "unit by the rule", "model's choice in it", "the rule")  # fmt: skip
    return to_markdown(Table("grains", "Development starts, main / strict, %", columns,
                             tuple(lines)))  # fmt: skip


def main_table(name: str) -> str:
    """One of the tables of `djepa study table`, from every stored run."""
    return next(to_markdown(table) for table in _main().tables() if table.name == name)


@cache
def _main() -> MainTable:
    return MainTable(find_results([RESULTS]))


def spearman(size: int) -> str:
    """Smallest and largest correlation of the shipped models among their best candidates."""
    found = [read_card(name)["metrics"]["spearman"][str(size)] for name in FOUR]
    return f"{min(found):.2f} to {max(found):.2f}"


def inverted(run: str, size: int) -> str:
    """Least and largest mean share of pairs in the wrong order among the best candidates."""
    means = [
        one["mean"]
        for audits in stored(run).measured("audit").values()
        for audit in audits
        for one in audit["inversions"]
        if one["shortlist"] == size
    ]
    return f"{100 * min(means):.0f} to {100 * max(means):.0f} %"


def inverted_pair() -> str:
    """The pair of audit starts that `tools.inverted_pair` stored, beside the paper's."""
    of, method = _json("inverted-pair.json"), "native lewm"
    found = {end: figure("pusht", "audit", RETAINED, method, end, DISTANCE) for end in ENDS}
    return to_markdown(pair_table(of, of["pools"], {end: x.value for end, x in found.items() if x}))


def preferred() -> str:
    """Audit starts on which a failure was predicted nearest, such as 14 of 96."""
    of = _json("inverted-pair.json")["prefer_failure"]
    return f"{of['hits']} of {of['of']}"


def quality() -> str:
    """How well the shipped push models choose, from their cards."""
    columns = [_quality(read_card(name)["metrics"]) for name in FOUR]
    return markdown_table("success by", [GEOMETRIES[name] for name in FOUR], columns)


def _quality(row: dict[str, Any]) -> dict[str, str]:
    low, high = (100 * end for end in row["native_interval"])
    return {
        "starts × candidates": f"{row['starts']} × {row['candidates']}",
        "native cost": f"{_percent(row['native'])} ({low:.1f}-{high:.1f})",
        "realised latent cost": _percent(row["realised"]),
        label("random"): _percent(row["random"]),
        label("oracle"): _percent(row["oracle"]),
        **{f"Spearman, best {k}": f"{row['spearman'][str(k)]:.2f}" for k in SHORTLISTS},
        "latent error, block 1": f"{row['error_first']:.3f}",
        "latent error, last block": f"{row['error_last']:.3f}",
        "latent variance": f"{row['latent_variance']:.2f}",
    }


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def card(weights: str, *shown: str, group: str = "") -> str:
    """Cells from a weight card: native, realised and oracle success, minutes of training.

    `weights` are shipped ones, or first and second tdjepa and lewm of an earlier version.
    """
    first, second = (_json(f"tdjepa-seed-{seed}.json") for seed in (1, 2))
    wide = _json("training-long.json")["LeWM, predictor twice as wide"]["card"]
    others = {
        "first tdjepa": first,
        "first lewm": wide["recipe"]["encoder_card"],  # whose encoder it took over
        "second tdjepa": second,
        "second lewm": second["recipe"]["encoder_card"],
        "reacher-dinowm": _json("reacher-dinowm.json")["card"],  # which did not ship
    }
    whole = others.get(weights) or read_card(weights)
    of = whole["metrics"][group] if group else whole["metrics"]
    low, high = (100 * end for end in of["native_interval"])
    cells = {part: f"{100 * of[part]:.1f} %" for part in ("native", "realised", "oracle")}
    cells["native"] += f" ({low:.1f}-{high:.1f})"
    if "minutes" in whole["recipe"]:
        cells["minutes"] = f"{whole['recipe']['minutes']:.1f}"
    return " | ".join(cells[name] for name in shown)


def planning() -> str:
    """Success of TD-JEPA on Reacher by the parts of its planning cost."""
    found: dict[str, list[str]] = {}
    for row in _json("reacher-cost.json")["rows"]:
        rate = Rate(row["hits"], row["of"]).percent(interval=True)
        found.setdefault(row["distance"], []).append(rate)
    columns = ("distance", "at the end alone", "0.3 end + 0.7 mean over the way")
    return markdown(columns, [(name, *rates) for name, rates in found.items()])


def old_and_new() -> str:
    """The weights of the version before beside the shipped ones, on confirmation starts of both.

    Milliseconds are those of PyTorch's own products, as before. The last column is the mean
    success on the three kinds of pools in points, for each of them.
    """
    before, bench = _json("weights-before.json"), _json("bench-geometry.json")["rows"]
    ms = {row["what"].split()[0]: 1000 / row["plain"] for row in bench if "products" in row["what"]}
    lines = []
    for name in FOUR:
        old, whole = before[name], read_card(name)
        cases = {c: Rate(**old["success"][c]) for c in ("reference", "decoy", "planner")}
        cells = [f"{old['parameters'] / 1e6:.1f} M", f"{old['minutes']:.1f}", f"{old['ms']:.0f}"]
        cells += [rate.percent(interval=True) for rate in cases.values()]
        cells += [_percent(old["realised"]), f"{old['spearman']:.2f}"]
        cells.append(f"{100 * np.mean([rate.share for rate in cases.values()]) / old['ms']:.2f}")
        lines.append((f"{GEOMETRIES[name]}, before", *cells))
        of = whole["metrics"]
        cells = [f"{whole['parameters'] / 1e6:.1f} M", f"{_minutes(whole):.1f}", f"{ms[name]:.0f}"]
        now = [_rate("pusht-large", case, f"native {name}") for case in cases]
        cells += [rate.percent(interval=True) for rate in now]
        cells += [_percent(of["realised"]), f"{of['spearman']['4']:.2f}"]
        cells.append(f"{100 * np.mean([rate.share for rate in now]) / ms[name]:.2f}")
        lines.append((GEOMETRIES[name], *cells))
    about = ("weights", "parameters", "GPU minutes", "CPU ms a start")
    more = ("realised", "Spearman, best 4", "success per CPU ms")
    return markdown((*about, *cases, *more), lines)


def before(method: str, case: str) -> str:
    """Success with the weights of the version before, on 2,048 starts of seed 0."""
    return Rate(**_json("weights-before.json")["methods"][method][case]).percent()


def _minutes(card: dict[str, Any]) -> float:
    """Of a training, of the encoder it took and of the weights it began with."""
    recipe = card["recipe"]
    made_of = [recipe.get("encoder_card"), *recipe.get("begin_cards", [])]
    own = recipe.get("minutes", recipe.get("seconds", 0) / 60)
    return float(own) + sum(_minutes(of) for of in made_of if of)


def training() -> str:
    """Learning curves of longer trainings: validation loss and selection at marks of the steps."""
    lines = []
    for name, of in _json("training-long.json").items():
        metrics = of["card"]["metrics"]
        tested = ""
        if "native_interval" in metrics:
            low, high = (100 * end for end in metrics["native_interval"])
            tested = f"{100 * metrics['native']:.1f} % ({low:.1f}-{high:.1f})"
        marks = {mark["step"]: mark for mark in of["marks"][::-1]}  # EMA, not the mean
        cells = [f"{m['validation']:.3f} / {100 * m['selection']:.1f} %" for m in marks.values()]
        shown = (cells[-1], cells[len(cells) // 2], cells[0])
        lines.append((name, f"{of['card']['recipe']['steps']:,}", *shown, tested or "-"))
    head = ("model", "steps", "at half", "later", "last", "success, 2,048 other starts")
    return markdown(head, lines)


def paper(study: str, pools: str, method: str, population: str = "confirmation") -> str:
    """The paper's success, in percent."""
    found = figure(study, population, pools, method)
    assert found is not None, "not in the paper"
    return f"{found.value:.2f}"


def bench(name: str, against: str = "plain") -> str:
    """A recorded benchmark."""
    stored = _json(f"bench-{name}.json")
    rows = stored["rows"] if isinstance(stored, dict) else stored
    shown = ("what", "unit", "ours", "plain", "note")
    made = [Row(**{name: row[name] for name in shown}) for row in rows]
    return bench_markdown(made, against)


def cluster() -> str:
    """Every stage on Ray clusters against one process, as `make cluster` stored it."""
    rows = []
    for row in _json("cluster.json"):
        equal = f"{row['files'] - len(row['odd'])} of {row['files']}"
        rows.append((row["stage"], row["cluster"], str(row["nodes"]), str(row["items"]), equal))
    return markdown(("stage", "cluster", "nodes", "items", "files that are equal"), rows)


def chooser(profile: str, name: str, of: str = "success", file: str = "pool-stats") -> str:
    """A rule without a model on pools of a profile; `of`: success, or cluster."""
    bank = next(bank for bank in _json(f"{file}.json") if bank["name"] == profile)
    if name == "random":
        return f"{100 * bank['random']:.1f} %"
    entry = bank["choosers"][name][of]
    return Rate(entry["hits"], entry["of"]).percent(interval=True)


def families(world: str) -> str:
    """Success by family of candidates, a line per shape and behaviour."""
    banks = _json(f"families-{world}.json")
    names = list(dict.fromkeys(name for bank in banks for name in bank["by_family"]))
    lines = []
    for bank in banks:
        rates = {name: Rate(of["hits"], of["of"]) for name, of in bank["by_family"].items()}
        about = (bank["config"]["shape"], bank["config"]["behaviour"], str(bank["starts"]))
        lines.append((*about, *(rates[name].percent() for name in names)))
    return markdown(("shape", "behaviour", "starts", *names), lines)


def pools() -> str:
    """What rules without a model reach on every profile."""
    banks = _json("pool-stats.json")
    columns = [
        {
            "starts × candidates": f"{bank['starts']} × {bank['candidates']}",
            "starts with both outcomes": f"{100 * bank['mixed']['share']:.1f} %",
            **{name: chooser(bank["name"], name) for name in ("random", *bank["choosers"])},
        }
        for bank in banks
    ]
    return markdown_table("success of", [bank["name"] for bank in banks], columns)
