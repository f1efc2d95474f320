"""The stored results of a study, and tables and verdicts from them.

Only rows/ and measures/ are needed, so the stored results of earlier runs (docs/results) suffice.
If a folder has a manifest, every result is verified before it is read.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from djepa.align.registry import ordered
from djepa.artefacts.folder import load_arrays
from djepa.artefacts.records import LARGEST, decode, read_bytes
from djepa.artefacts.store import locate
from djepa.errors import DjepaError
from djepa.evaluate import paper
from djepa.evaluate.paper import Figure
from djepa.evaluate.rows import Row, read_rows
from djepa.evaluate.verdict import Verdict, judge
from djepa.report.graded import quality_table
from djepa.report.results import (
    ELIGIBLE,
    Rows,
    ablation_table,
    cost_table,
    paired_table,
    success_table,
    views,
)
from djepa.report.tables import Table
from djepa.studies.stages import CLAIM, check_sealed

if TYPE_CHECKING:
    from djepa.studies.design import Design


@dataclass(frozen=True)
class Results:
    """Rows and measures of one study."""

    folder: Path
    design: "Design"

    @cached_property
    def rows(self) -> dict[str, list[Row]]:
        """Case -> its rows, for cases that have some."""
        files = {case: self.folder / "rows" / f"{case}.csv.gz" for case in self.design.names}
        found = {case: read_rows(file) for case, file in files.items() if file.exists()}
        if not found:
            raise DjepaError(f"{self.folder} holds no rows yet: no case was decided.")
        return found

    @cached_property
    def about(self) -> dict[str, Any]:
        """Content of study.json."""
        return _about(self.folder)

    @cached_property
    def methods(self) -> list[str]:
        """Methods that have rows, in the order of the registry."""
        return ordered(row.method for rows in self.rows.values() for row in rows)

    @cached_property
    def views(self) -> dict[str, Rows]:
        """Sets of starts that tables count: cases, their eligible starts, and cases together."""
        units = self.design.units() if self.design.together else {}
        return views(self.rows, units, bool(self.design.rule))

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """The primary comparisons that the design declares."""
        d = self.design
        return judge(self.rows, d.comparisons, d.units(), d.clustered, bool(d.graded))

    def measured(self, name: str) -> dict[str, Any]:
        """Case -> result of a measure, in the order of the cases."""
        files = {c: self.folder / "measures" / name / f"{c}.json" for c in self.design.names}
        return {case: read_json(f) for case, f in files.items() if f.exists()}

    def arrays(self, name: str) -> dict[str, dict[str, Any]]:
        """Case -> arrays that a measure stored beside its JSON."""
        folder = self.folder / "measures" / name
        files = {case: folder / f"{case}.safetensors" for case in self.design.names}
        return {
            case: load_arrays(file, read_bytes(file))
            for case, file in files.items()
            if file.exists()
        }

    def paper(self, quantity: str = "success") -> dict[tuple[str, str], float]:
        """(view, method) -> the paper's figure for the same method, pools and study."""
        d = self.design
        at = {view: (pools, case if quantity == "success" else "")
              for view, (pools, case) in d.paper.items() if view in self.views}  # fmt: skip
        return paper.columns(d.task or d.name, at, quantity, d.paper_names)

    def beside(self, view: str, method: str, quantity: str) -> Figure | None:
        """The paper's figure of a view for the same study, pools and method, if any."""
        pools, case = self.design.paper.get(view, ("", ""))
        of = (self.design.task or self.design.name, "confirmation", pools, method, case)
        return paper.figure(*of, quantity)

    def recorded(self, pools: str, method: str, case: str, quantity: str) -> Figure | None:
        """The paper's figure for its audit starts, on pools of that kind."""
        of = (self.design.task or self.design.name, "audit", pools, method, case)
        return paper.figure(*of, quantity)

    def printed(
        self, case: str, method: str, quantity: str, population: str, candidates: int = 63
    ) -> Figure | None:
        """The paper's figure of a measure, on its eligible starts of the same kind of pools."""
        pools, at = self.design.paper.get(ELIGIBLE.format(case), ("", ""))
        of = (self.design.task or self.design.name, population, pools, method, at)
        return paper.figure(*of, quantity, candidates)


def load_results(folder: Path | str) -> Results:
    """The verified results in a folder, with the design that its study.json names."""
    from djepa.studies.names import get_design

    place = locate(folder)
    check_sealed(place)
    return Results(place, get_design(str(_about(place).get("study"))))


def read_json(path: Path, kind: Any = Any) -> Any:
    """Decode a JSON file of a study strictly, up to a limit of size."""
    return decode(path, read_bytes(path, LARGEST), kind)


def success_tables(results: Results) -> list[Table]:
    """Success and cost of every method."""
    d, rows = results.design, results.rows
    if d.graded:
        return [quality_table(results.views, results.methods, d.graded)]
    rule = next(iter(rows.values()))[0].rule
    once = {case: of for case, of in rows.items() if of[0].rule == rule}  # others: equal costs
    note = f"In units of the threshold of {rule}; a start is solved below 1."
    factor, unit = d.unit or (1.0, note)
    kinds = [("success", "all starts", {v: of for v, of in results.views.items() if "," not in v})]
    if d.rule:
        some = {v: of for v, of in results.views.items() if "," in v}
        kinds.append(("success-eligible", "eligible starts", some))
    tables = [
        success_table(seen, results.methods, results.paper(), name, on) for name, on, seen in kinds
    ]
    if d.decide is not None:  # the cost of an episode is not that of a choice
        return tables
    return [*tables, cost_table(once, results.methods, unit, factor, results.paper("cost"))]


def paired_tables(results: Results) -> list[Table]:
    """Ours, and D-JEPA as published, against other methods."""
    d = results.design
    others = [n for n in results.methods if n in (*d.primary, *d.against)]
    shown = dict.fromkeys((d.ours, d.published, "composition"))

    def printed(ours: str) -> Callable[[str, str], str]:
        def of(view: str, other: str) -> str:
            both = [results.beside(view, ours, f"{w} {other}") for w in ("gains over", "losses to")]
            return " and ".join(f"{x.value:.0f}" for x in both if x is not None)

        return of

    return [
        paired_table(
            results.views, ours, others, results.verdicts, d.clustered, d.graded, printed(ours)
        )
        for ours in shown
        if ours in results.methods
    ]


def ablation_tables(results: Results) -> list[Table]:
    """Ablation tables, one per case, if the design has ablations."""
    if not results.design.blocks:
        return []
    return [
        ablation_table(case, {case: rows}, results.design.blocks)
        for case, rows in results.rows.items()
    ]


def short_table(results: Results, methods: Sequence[str]) -> Table:
    """A few methods on all starts of every case."""
    rows: Mapping[str, Rows] = {case: {case: of} for case, of in results.rows.items()}
    return success_table(rows, [m for m in methods if m in results.methods], {})


def _about(folder: Path) -> dict[str, Any]:
    if not (folder / CLAIM).exists():
        raise DjepaError(f"{folder} has no {CLAIM}: it is no folder of a study.")
    return dict(read_json(folder / CLAIM, dict[str, Any]))
