"""What a study found, in words and tables, generated from its stored results."""

from collections.abc import Iterator, Sequence

from djepa.align.registry import label
from djepa.errors import DjepaError
from djepa.evaluate.gap import gap_closed
from djepa.evaluate.rows import Row
from djepa.evaluate.verdict import Verdict
from djepa.files import write_atomically
from djepa.report.tables import Table, write_table
from djepa.studies.results import Results, ablation_tables, paired_tables, success_tables

RULE = (
    "A method is called better or worse if the whole 95 % interval of the paired difference lies "
    "on one side of zero and p, adjusted by Holm's method over all primary comparisons of the "
    "study, is below 0.05. Otherwise there is no significant difference."
)


def make_tables(results: Results) -> list[Table]:
    """Every table of a study: of its rows, then of its measures."""
    found = [verdict_table(results)] if results.verdicts else []
    found += [*success_tables(results), *paired_tables(results), *ablation_tables(results)]
    return found + [table for m in results.design.measures for table in m.tables(results)]


def write_tables(results: Results) -> None:
    """Write all tables as CSV, Markdown and LaTeX; the list of them is written last."""
    folder = results.folder / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    tables = make_tables(results)
    for table in tables:
        write_table(folder, table)
    listed = "\n".join(f"- [{table.title}]({table.name}.md)" for table in tables) + "\n"
    write_atomically(folder / "README.md", listed.encode())


def verdict_table(results: Results) -> Table:
    """Every primary comparison with its difference, adjusted p and verdict."""
    lines = []
    for v in results.verdicts:
        points, p = v.points.replace(" points", "").split(", adjusted p ")
        lines.append((v.where, label(v.ours), label(v.theirs), points, p.strip("= "), v.word))
    columns = ("on", "method", "against", "difference, points", "adjusted p", "verdict")
    return Table("verdicts", "Primary comparisons", columns, tuple(lines), RULE)


def findings(results: Results) -> list[str]:
    """The verdicts in words, one line per unit; the numbers are in the table of verdicts."""
    d, lines = results.design, []
    for unit, cases in d.units().items():
        some = [v for v in results.verdicts if v.where == unit]
        parts = [*_words([v for v in some if v.ours not in d.adapted]), *_adapted(some, d.adapted)]
        if not parts:
            continue
        if len(cases) == 1 and d.decide is None:
            parts.append(_closed(results.rows[cases[0]], d.ours, d.primary[0], bool(d.graded)))
        about = f" ({d.pools[unit]})" if unit in d.pools else ""
        lines.append(f"**{unit}**{about}: " + " ".join(parts))
    return lines


def _words(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """A sentence per method: what it is better than, worse than, not different from."""
    for ours in dict.fromkeys(v.ours for v in verdicts):
        by_word: dict[str, list[str]] = {}
        for v in verdicts:
            if v.ours == ours:
                by_word.setdefault(v.than, []).append(label(v.theirs))
        name = label(ours) + ("," if "," in label(ours) else "")
        found = "; it ".join(f"{than} {_listing(names)}" for than, names in by_word.items())
        yield f"{name[:1].upper()}{name[1:]} {found}."


def _adapted(verdicts: Sequence[Verdict], adapted: Sequence[str]) -> Iterator[str]:
    """A sentence per word and unadapted geometry: the adapted predictors it holds for."""
    of: dict[tuple[str, str], list[str]] = {}
    for v in verdicts:
        if v.ours in adapted:
            of.setdefault((v.than, label(v.theirs)), []).append(label(v.ours))
    for (than, theirs), names in of.items():
        plural = than.replace("is ", "are ", 1) if len(names) > 1 else than
        some = _listing(names)
        yield f"{some[:1].upper()}{some[1:]} {plural} {theirs}."


def _closed(rows: Sequence[Row], ours: str, base: str, graded: bool) -> str:
    """The gap closed, and how often the gate opened, in words."""
    gate = [row.opened for row in rows if row.method == ours]
    opened = f"the gate of {label(ours)} opened on {sum(gate)} of {len(gate)} starts."
    try:
        gap = gap_closed(rows, ours, base, graded)
    except DjepaError:
        return f"No candidate is better than the choice of {label(base)}; {opened}"
    return (
        f"{label(ours)} reaches {gap} of what the best candidate gains over {label(base)}; {opened}"
    )


def _listing(names: Sequence[str]) -> str:
    """Such as `LeWM, TD-JEPA and fusion of four models`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
