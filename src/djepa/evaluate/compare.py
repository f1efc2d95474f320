"""Methods beside each other on the same starts.

Legend: N starts, K candidates.
"""

from typing import Any

from torch import Tensor

from djepa.evaluate.intervals import markdown_table
from djepa.evaluate.paired import paired


def compare_rows(picks: dict[str, Tensor], success: Tensor, against: str) -> list[dict[str, Any]]:
    """(N,) chosen positions by method and (N, K) outcomes -> one row per method, picks included."""
    hit = {name: success.gather(1, at[:, None])[:, 0].numpy() for name, at in picks.items()}
    rows = []
    for name, ours in hit.items():
        row = paired(ours, hit[against]).as_dict()
        rows.append({"method": name, "against": against, **row, "picks": ours.tolist()})
    return rows


def compare_markdown(rows: list[dict[str, Any]], against: str) -> str:
    """Success with Wilson intervals; differences with bootstrap intervals, gains and losses."""
    columns = {
        "success": [_share(row["ours"], row["ours_interval"]) for row in rows],
        f"against {against}": [_points(r["difference"], r["difference_interval"]) for r in rows],
        "gains": [str(row["gains"]) for row in rows],
        "losses": [str(row["losses"]) for row in rows],
        "p": [f"{row['p']:.2g}" for row in rows],
    }
    methods = [row["method"] for row in rows]
    by_method = [dict(zip(methods, column, strict=True)) for column in columns.values()]
    return markdown_table("method", list(columns), by_method)


def _share(share: float, interval: tuple[float, float]) -> str:
    return f"{100 * share:.1f} % ({100 * interval[0]:.1f}-{100 * interval[1]:.1f})"


def _points(difference: float, interval: tuple[float, float]) -> str:
    return f"{100 * difference:+.1f} ({100 * interval[0]:+.1f} to {100 * interval[1]:+.1f})"
