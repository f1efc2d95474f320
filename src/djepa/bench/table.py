"""The bench table."""

from collections.abc import Sequence

from djepa.bench.world import Row


def bench_markdown(rows: Sequence[Row]) -> str:
    """Rows as a Markdown table."""
    lines = ["| what | ours | plain loop | ratio | |", "|---|---:|---:|---:|---|"]
    for row in rows:
        plain = "" if row.plain is None else f"{row.plain:,.0f} {row.unit}"
        ratio = "" if row.ratio is None else f"{row.ratio:.1f}x"
        ours = f"{row.ours:,.0f} {row.unit}"
        lines.append(f"| {row.what} | {ours} | {plain} | {ratio} | {row.note} |")
    return "\n".join(lines)
