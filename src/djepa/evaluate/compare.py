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
    names = ["success", f"against {against}", "gains", "losses", "p"]
    columns = []
    for name in names:
        column = {}
        for row in rows:
            column[row["method"]] = {
                "success": _share(row["ours"], row["ours_interval"]),
                "gains": str(row["gains"]),
                "losses": str(row["losses"]),
                "p": f"{row['p']:.2g}",
            }.get(name, _points(row["difference"], row["difference_interval"]))
        columns.append(column)
    return markdown_table("method", names, columns)


def _share(share: float, interval: tuple[float, float]) -> str:
    return f"{100 * share:.1f} % ({100 * interval[0]:.1f}-{100 * interval[1]:.1f})"


def _points(difference: float, interval: tuple[float, float]) -> str:
    return f"{100 * difference:+.1f} ({100 * interval[0]:+.1f} to {100 * interval[1]:+.1f})"
