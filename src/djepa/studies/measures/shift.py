"""Test whether evidence of confirmation starts differs from that of calibration starts.

No outcome is read. If it differs, calibrated gates and limits on harm need not hold.
"""

from collections.abc import Iterator
from typing import Any

from djepa.align.shift import LEAST, LEVEL, Shift, compare_evidence
from djepa.evidence.evidence import join, start_of
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


def shift_of(study: Study, case: Case) -> Shift | None:
    """Shift of a case against the calibration starts; None if there are too few starts."""
    window = study.design.evidence(study.bank(case), case.look)
    if len(set(map(start_of, window.identities))) < LEAST:
        return None
    ours = study.suite(case.group).alignments[study.design.ours]
    known = study.cases("calibration", case.group)
    calibration = join([study.population("calibration", one).evidence for one in known])
    return compare_evidence(ours, calibration, window.to(study.place.device))


def _run(study: Study, case: Case, say: Say) -> dict[str, Any]:
    found = shift_of(study, case)
    return {} if found is None else {
        "p": found.p, "feature": found.feature, "starts": list(found.starts)
    }  # fmt: skip


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
