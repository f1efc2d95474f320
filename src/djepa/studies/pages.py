"""The page of a push study: what was asked, what was found, and every number behind it."""

from collections.abc import Iterable, Mapping

from djepa.errors import DjepaError
from djepa.evaluate.intervals import rate_of
from djepa.evaluate.paired import Paired, paired
from djepa.evaluate.rows import Row, successes
from djepa.report.page import Figure, Headline, Page, Section, Table, write_page
from djepa.report.results import gap_closed
from djepa.report.tables import Table as Sheet
from djepa.studies.write import Results, make_tables

LEVEL = 0.05  # of McNemar's test
OURS, CONTROL = "D-JEPA", "consensus + fusion, four"
POOLS = {
    "reference": "perturbations of one hidden solution, as in the paper: density points at it",
    "decoy": "perturbations of the solution and of three other drives: density does not tell which",
    "planner": "what a cross-entropy search under TD-JEPA's own cost leaves: no solution is hidden",
}
QUESTION = (
    "A latent world model predicts where candidate actions lead, and a planner executes the one "
    "whose predicted end lies nearest the goal. Among the few best candidates that distance is "
    "close to noise. Every candidate of every start below was **executed** from the same restored "
    "state, so what each method chose can be counted.",
    "A set of candidates can give its answer away. On pools around a hidden solution a chooser "
    "that knows neither goal nor label, and only takes the densest prediction, does well. So every "
    "table has three kinds of pools, and the control **consensus + fusion**; only a gain over that "
    "control, on decoy and planner pools, counts as decision alignment.",
    "Methods were fitted and calibrated on other starts than those counted here; no choice of a "
    "method or of a setting has looked at these. **Eligible** starts are those on which a decision "
    "hangs on little: a success and a failure among TD-JEPA's 16 favourites whose distances differ "
    "by at most a quarter (`push-boundary.v1`). A filtered population alone proves little, so all "
    "starts stand beside it.",
)


def write_report(results: Results) -> None:
    """One file, offline."""
    sheets = {sheet.name: sheet for sheet in make_tables(results)}
    inspected = [results.held(f"inspector/{kind}") for kind in results.rows]
    preset, seed = results.study["preset"], results.study["seed"]
    banks = ", ".join(f"{kind} {rows[0].bank}" for kind, rows in results.rows.items())
    page = Page(
        title="Does alignment choose better?",
        subtitle=f"The PushT study, preset {preset}: four world models, "
        f"{len(results.rows)} kinds of candidate pools, every candidate executed.",
        headlines=tuple(_headlines(results)),
        sections=tuple(_sections(results, sheets)),
        inspector=[held for held in inspected if held] or None,
        footer=f"djepa study pusht --preset {preset} --seed {seed}. Banks: {banks}. "
        f"Success rule: {next(iter(results.rows.values()))[0].rule}.",
    )
    write_page(results.out / "report.html", page)


def against(rows: Iterable[Row], ours: str, theirs: str) -> Paired:
    """One method against another on the starts of the rows."""
    solved = successes(rows)
    return paired(solved[ours], solved[theirs])


def _headlines(results: Results) -> Iterable[Headline]:
    for kind, rows in results.rows.items():
        solved = successes(rows)
        rate, gain = rate_of(solved[OURS]), against(rows, OURS, CONTROL)
        low, high = (100 * end for end in rate.interval)
        yield Headline(
            f"{OURS}, {kind} pools",
            f"{100 * rate.share:.1f} %",
            f"{low:.1f} to {high:.1f}, {rate.of} starts",
            f"{_points(gain)} over {CONTROL}; {_closed(rows)}",
        )


def _closed(rows: list[Row]) -> str:
    try:
        gap = gap_closed(rows, OURS, "native lewm")
    except DjepaError:
        return "no gap, as LeWM leaves none,"
    low, high = (100 * end for end in gap.interval)
    return f"{100 * gap.share:.0f} % ({low:.0f} to {high:.0f}) of the way from LeWM to the oracle"


def _gate(rows: list[Row]) -> str:
    own = [row.opened for row in rows if row.method == OURS]
    return f"the gate over its base score opened on {sum(own)} of {len(own)} starts"


def _points(gain: Paired) -> str:
    low, high = (100 * end for end in gain.difference_interval)
    return f"{100 * gain.difference:+.1f} points ({low:+.1f} to {high:+.1f})"


def _verb(gain: Paired) -> str:
    return _word(gain, "beat").replace("loses", "lose")


def _word(gain: Paired, better: str) -> str:
    """A sign counts if the interval and McNemar's exact test both say so."""
    low, high = gain.difference_interval
    if gain.p > LEVEL or low <= 0 <= high:
        return "cannot be told from"
    return better if low > 0 else "loses to"


def verdict(results: Results) -> tuple[str, ...]:
    """What the intervals say, in words; nothing here is written by hand."""
    lines = []
    for kind, rows in results.rows.items():
        parts = []
        for theirs in ("fusion, four", CONTROL):
            gain = against(rows, OURS, theirs)
            parts.append(f"{_word(gain, 'beats')} {theirs} ({_points(gain)})")
        alone = against(rows, "log costs", CONTROL)
        published = against(rows, "relational", "fusion, two")
        word = _word(published, "gains over")
        lines.append(
            f"**{kind} pools** ({POOLS[kind]}): {OURS} {' and '.join(parts)}. Log costs alone, "
            f"without density, {_verb(alone)} that control ({_points(alone)}). The published "
            f"relational operator {word} the fusion it starts from ({_points(published)}). "
            f"{OURS} closes {_closed(rows)}; {_gate(rows)}."
        )
    return tuple(lines)


def _sections(results: Results, sheets: Mapping[str, Sheet]) -> Iterable[Section]:
    kinds = list(results.rows)
    yield Section("The question", QUESTION)
    yield Section(
        "What was found",
        verdict(results),
        _tables(sheets, ["across"]),
        _figures(results, {"success": "Success with Wilson intervals; diamonds: the paper's own."}),
    )
    yield Section(
        "Paired differences",
        ("The same starts, start by start: gains are starts that only D-JEPA solves.",),
        _tables(sheets, [f"paired-{kind}-d-jepa" for kind in kinds]),
    )
    yield Section(
        "The gap",
        ("How the order of predicted futures compares with what execution showed.",),
        _tables(sheets, ["audit-gap", "audit-inversions", "audit-correlations"]),
        _figures(
            results,
            {
                "audit-gap": "Every audit start; right of zero a failure is predicted nearest.",
                "audit-inversions": "Success-failure pairs in the wrong order, by shortlist.",
                "audit-correlations": "Predicted against realised latent cost, by shortlist.",
            },
        ),
    )
    yield Section(
        "Mechanisms and sources",
        (),
        _tables(sheets, [f"ablation-{kind}" for kind in kinds]),
        _figures(results, {"sources": "The same operator on one source or on two."}),
    )
    yield from _rest(results, sheets, kinds)


def _rest(results: Results, sheets: Mapping[str, Sheet], kinds: list[str]) -> Iterable[Section]:
    yield Section(
        "Fewer candidates",
        ("Nested subsets that all methods share; ranks and corrections are computed within them.",),
        _tables(sheets, [f"budget-{kind}" for kind in kinds]),
        _figures(results, {f"budget-{k}": f"{k} pools; band: all subset seeds." for k in kinds}),
    )
    learned = {f"learning-{kind}": f"{kind} pools, on the confirmation starts." for kind in kinds}
    if figures := _figures(results, learned):
        yield Section("More supervision", ("Success by number of fitting starts.",), (), figures)
    films = {f"films-{kind}": f"{kind} pools: the same start, three choices." for kind in kinds}
    lifts = {
        **{f"lift-ranks-{kind}": f"{kind} pools: ranks read back by distance." for kind in kinds},
        **{f"lift-geometry-{kind}": f"{kind} pools: one start before and after." for kind in kinds},
        "latency": "Frames in, decision out.",
    }
    yield Section(
        "Written back into latents",
        ("The decision is written into the futures, so that plain distance to the goal reads it.",),
        _tables(sheets, ["deployment-reference"]),
        _figures(results, lifts),
    )
    if figures := _figures(results, films):
        yield Section("Seen", ("What the choices of one start lead to.",), (), figures)


def _tables(sheets: Mapping[str, Sheet], names: list[str]) -> tuple[Table, ...]:
    found = [sheets[name] for name in names if name in sheets]
    return tuple(Table(s.title, s.note, s.columns, s.rows) for s in found)


def _figures(results: Results, captions: Mapping[str, str]) -> tuple[Figure, ...]:
    folder = results.out / "figures"
    found = []
    for name, caption in captions.items():
        if (file := folder / f"{name}.svg").exists():
            title = name.replace("-", " ").capitalize()
            data = folder / f"{name}.csv"
            found.append(Figure(title, caption, file, data if data.exists() else None))
    return tuple(found)
