"""The paper's ablations on separate starts, beside its figures. They are reported; nothing is
selected by them.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from djepa.align.registry import label, ordered
from djepa.evaluate import paper
from djepa.evaluate.intervals import rate_of
from djepa.report.tables import Table
from djepa.studies.decisions import solved
from djepa.studies.design import Case, Measure
from djepa.studies.results import Results
from djepa.studies.stages import Say
from djepa.studies.study import Study


def mechanism(case: str) -> Measure:
    """Success of the methods in the paper's ablations, on separate starts."""

    def run(study: Study, case: Case, say: Say) -> dict[str, Any]:
        (own,) = study.cases("mechanism", case.group)
        test = study.population("mechanism", own)
        known = study.choosers(case.group, test.evidence.names)
        won = {
            name: solved(known[name](test.evidence), test).int().tolist()
            for name in _printed(study.design.name)
            if name in known
        }
        return {"solved": won, "eligible": [int(x) for x in study.design.eligible(test)]}

    return Measure(
        name="mechanism",
        title="The paper's ablations",
        text=("On starts of their own, as in the paper.",),
        run=run,
        tables=_tables,
        only=(case,),
        when=lambda sizes: bool(sizes.mechanism),
    )


def _printed(study: str) -> dict[str, float]:
    found = paper.select(study, population="mechanism")
    return {key.method: figure.value for key, figure in found.items()}


def _tables(results: Results) -> Iterator[Table]:
    printed = _printed(results.design.name)
    for case, value in results.measured("mechanism").items():
        eligible = np.array(value["eligible"], bool)
        rows = []
        for method in ordered(value["solved"]):
            won = np.array(value["solved"][method], bool)
            shares = (rate_of(of).percent(interval=True) for of in (won, won[eligible]))
            rows.append((label(method), *shares, f"{printed[method]:.2f}"))
        seen = (f"all, {len(eligible)} starts", f"eligible, {eligible.sum()} starts")
        yield Table(
            f"mechanism-{case}",
            f"The paper's ablations, {case} pools, % (95 % interval)",
            ("method", *seen, "paper"),
            tuple(rows),
            "The paper's figures are of 128 starts and weights of its own.",
        )
