"""What calibration starts chose for adapted predictors: a checkpoint, or the unchanged model.

Every fit is judged at update 0, which is the unchanged model, and at later updates. Where no later
one solves more calibration starts, the unchanged model is kept, and the method decides as it does.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from djepa.align.controls.methods import SAMPLED
from djepa.align.plastic import load_patch
from djepa.align.registry import label
from djepa.report.tables import Table
from djepa.studies.design import Case, Measure
from djepa.studies.results import Results
from djepa.studies.stages import Say
from djepa.studies.study import Study

FINE_TUNED = "fine-tuned"  # is judged by prediction error, not by success


def calibrated(methods: Sequence[str], only: tuple[str, ...]) -> Measure:
    """Checkpoints of these methods; sampled ones use the fit of another and have none."""
    fitted = tuple(name for name in methods if name not in SAMPLED)

    def run(study: Study, case: Case, say: Say) -> dict[str, Any]:
        """Method -> checkpoints and the chosen one, and the number of calibration starts."""
        sizes, group, found = study.sizes, case.group, {}
        for name in fitted:
            if study.place.made(group, name):
                card = load_patch(study.place.own(group, name)).card
                found[name] = {key: card[key] for key in ("chosen", "checkpoints")}
        return {"starts": sizes.plastic[1] or sizes.calibration, "methods": found}

    return Measure(
        name="calibrated",
        title="What calibration chose",
        text=("Where it kept the unchanged model, a method's choices are those of the model.",),
        run=run,
        tables=_tables,
        only=only,
    )


def _tables(results: Results) -> Iterator[Table]:
    for case, found in results.measured("calibrated").items():
        lines = [_line(name, of) for name, of in found["methods"].items()]
        columns = (
            *("method", "chosen update", "learning rate", "solved, unchanged", "solved, changed"),
            *("error, unchanged", "error, changed"),
        )
        note = (
            f"On {found['starts']} calibration starts. Solved: by the lowest cost of each adapted "
            "predictor; changed: by the best checkpoint after update 0. Error: mean squared error "
            "of predicted latents; fine-tuning is judged by it alone."
        )
        yield Table(f"calibrated-{case}", "What calibration chose", columns, tuple(lines), note)


def _line(name: str, of: Any) -> tuple[str, ...]:
    """One method: the chosen checkpoint, the unchanged model and the best changed one."""
    first, chosen = of["checkpoints"][0], of["chosen"]
    later = [point for point in of["checkpoints"] if point["update"]]
    best = min(later, key=lambda p: (-p["successes"], p["error"] or 0.0, p["update"]))
    pair = (first, best)
    solved = [""] * 2 if name == FINE_TUNED else [str(point["successes"]) for point in pair]
    errors = ["" if p["error"] is None else f"{p['error']:.4f}" for p in pair]
    kept = "0, unchanged" if chosen["update"] == 0 else str(chosen["update"])
    return (label(name), kept, f"{chosen['rate']:g}", *solved, *errors)
