"""The bench table."""

from collections.abc import Mapping, Sequence

from djepa.bench.measure import Row


def bench_markdown(rows: Sequence[Row], against: str = "plain loop") -> str:
    """Rows as a Markdown table."""
    lines = [f"| what | ours | {against} | ratio | |", "|---|---:|---:|---:|---|"]
    return "\n".join([*lines, *(f"| {_cells(row)} |" for row in rows)])


def all_markdown(benches: Mapping[str, Sequence[Row]]) -> str:
    """Rows of several benches as one table; growth is against its smallest, the rest plain."""
    lines = ["| bench | what | ours | plain, or smallest | ratio | |"]
    lines += ["|---|---|---:|---:|---:|---|"]
    lines += [f"| {name} | {_cells(row)} |" for name, rows in benches.items() for row in rows]
    return "\n".join(lines)


def _cells(row: Row) -> str:
    plain = "" if row.plain is None else f"{_number(row.plain)} {row.unit}"
    ratio = "" if row.ratio is None else f"{row.ratio:.1f}x"
    return f"{row.what} | {_number(row.ours)} {row.unit} | {plain} | {ratio} | {row.note}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.1f}"
