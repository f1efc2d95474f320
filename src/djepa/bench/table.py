"""The bench table."""

from collections.abc import Sequence

from djepa.bench.world import Row


def bench_markdown(rows: Sequence[Row], against: str = "plain loop") -> str:
    """Rows as a Markdown table."""
    lines = [f"| what | ours | {against} | ratio | |", "|---|---:|---:|---:|---|"]
    for row in rows:
        plain = "" if row.plain is None else f"{_number(row.plain)} {row.unit}"
        ratio = "" if row.ratio is None else f"{row.ratio:.1f}x"
        ours = f"{_number(row.ours)} {row.unit}"
        lines.append(f"| {row.what} | {ours} | {plain} | {ratio} | {row.note} |")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.1f}"
