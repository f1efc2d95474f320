"""The table of docs/controls.md is made from its stored lines."""

import json
from pathlib import Path

from djepa.evaluate.intervals import Rate
from djepa.evaluate.paired import Paired
from djepa.studies.preservation import Line, preservation_table

ROOT = Path(__file__).parents[1]


def test_the_table_of_controls_is_made_from_its_lines() -> None:
    stored = json.loads((ROOT / "docs/results/controls.json").read_text())
    lines = [
        Line(
            row["method"],
            row["error"],
            tuple(row["change"]),
            Rate(**row["success"]),
            None if row["against"] is None else Paired(**row["against"]),
        )
        for row in stored["lines"]
    ]
    text = (ROOT / "docs/controls.md").read_text()
    assert text.split("<!-- controls -->\n")[1].split("<!-- /controls -->")[0] == (
        preservation_table(lines)
    )
    assert {line.success.of for line in lines} == {stored["development"]}
