"""Task costs of two methods on the same starts."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from djepa.align.registry import label, slug
from djepa.report.curves import paired_costs
from djepa.studies.design import Measure
from djepa.studies.results import Results


def costs(
    methods: Sequence[str],
    against: str,
    marks: Mapping[str, float],
    factor: float = 1.0,
    only: tuple[str, ...] = (),
) -> Measure:
    """These methods against another, from stored rows."""

    def figures(results: Results, folder: Path) -> Iterator[tuple[str, str]]:
        for case in only or results.rows:
            rows = sorted(results.rows.get(case, []), key=lambda row: row.start)
            paid = {
                m: [factor * r.cost for r in rows if r.method == m] for m in (*methods, against)
            }
            for ours in (m for m in methods if paid[m]):
                name, names = f"costs-{case}-{slug(ours)}", (label(ours), label(against))
                paired_costs(folder / name, paid[ours], paid[against], names, marks, log=True)
                yield name, "One point per start."

    text = ("Task cost of the two chosen candidates, start by start.",)
    return Measure("costs", "Costs side by side", text, figures=figures)
