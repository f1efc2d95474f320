"""Does the evidence of confirmation starts look like that of the calibration? No outcome is read.

Where it does not, what was calibrated there says nothing here: neither gate nor limit on harm.
"""

from collections.abc import Iterator
from typing import Any

from djepa.align.shift import LEAST, LEVEL, compare_evidence
from djepa.evidence.evidence import start_of
from djepa.report.tables import Table
from djepa.studies.design import Case, Measure
from djepa.studies.results import Results
from djepa.studies.stages import Say
from djepa.studies.study import Study

TEXT = (
    "Numbers that are known before execution, one row of every start or log, compared with those "
    f"of the calibration. Below {LEVEL} a difference counts as noticed: the gate was calibrated "
    "for other starts, and keeping the base choice is safer."
)


def _run(study: Study, case: Case, say: Say) -> dict[str, Any]:
    ours = study.suite(case.group).alignments[study.design.ours]
    _, calibration = study.parts(case.group)
    new = study.population("confirmation", case).evidence
    if len(set(map(start_of, new.identities))) < LEAST:
        return {}
    found = compare_evidence(ours, calibration.evidence, new)
    return {"p": found.p, "feature": found.feature, "starts": list(found.starts)}


def _tables(results: Results) -> Iterator[Table]:
    lines = [
        (
            case,
            f"{of['starts'][1]} against {of['starts'][0]}",
            f"{of['p']:.2g}",
            "noticed" if of["p"] < LEVEL else "not noticed",
            of["feature"],
        )
        for case, of in results.measured("shift").items()
        if of
    ]
    if lines:
        names = ("case", "starts or logs", "p, corrected", "difference", "most in")
        yield Table("shift", "Evidence beside that of the calibration", names, tuple(lines), TEXT)


SHIFT = Measure("shift", "Is this like the calibration?", (TEXT,), run=_run, tables=_tables)
