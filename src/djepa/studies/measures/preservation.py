"""Objective preservation: the effect of adapting a predictor on predictions and decisions.

For every method the mean squared error of predicted against realised latents, over all candidates
and blocks, beside the success of its choices (App. E): a better predictor need not decide better,
and a method that decides better may predict worse.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from djepa.align.dynamics import realised
from djepa.align.registry import label, ordered
from djepa.evaluate.intervals import rate_of
from djepa.evaluate.paired import bootstrap
from djepa.evaluate.rows import successes
from djepa.models.lewm import LeWM
from djepa.models.predictions import read_predictions
from djepa.models.weights import load_geometry
from djepa.report.results import pair_of
from djepa.report.tables import Table
from djepa.studies.design import Case, Measure
from djepa.studies.results import Results
from djepa.studies.stages import Say
from djepa.studies.study import Study

STARTS, BATCH = 64, 8  # starts, with 315 executed frames each to encode; starts at a time


def preservation(native: str, adapted: Mapping[str, str], geometry: str = "tdjepa") -> Measure:
    """Measure the unchanged geometry and adapted ones; `adapted` is method -> column."""

    def run(study: Study, case: Case, say: Say) -> dict[str, list[float]]:
        """Method -> error of each of the first starts; not for methods that sample futures."""
        bank, device = study.bank(case), study.place.device
        model = load_geometry(geometry, device)
        assert isinstance(model, LeWM)
        columns = {native: model.name, **adapted}  # weights of a world have a longer name
        stored = {method: read_predictions(bank, column) for method, column in columns.items()}
        known = {m: of.futures for m, of in stored.items() if of.futures is not None}
        errors: dict[str, list[float]] = {method: [] for method in known}
        for rows in torch.arange(min(STARTS, len(bank.decisions.start_ids))).split(BATCH):
            say(f"  start {rows[0]}")
            after = realised(model, bank, rows.tolist(), device).double().cpu().numpy()
            for method, futures in known.items():
                off = np.square(futures[rows.numpy()] - after).mean((1, 2, 3))
                errors[method] += [round(float(x), 6) for x in off]
        return errors

    return Measure(
        name="preservation",
        title="Prediction error beside success",
        text=("What each way to adapt TD-JEPA does to its predictions and to its choices.",),
        run=run,
        tables=lambda results: _tables(results, native, adapted),
    )


def _tables(results: Results, native: str, adapted: Mapping[str, str]) -> Iterator[Table]:
    for case, errors in results.measured("preservation").items():
        rows = results.rows[case]
        solved, base, lines = successes(rows), np.array(errors[native]), []
        for method in ordered([native, *adapted]):
            own = np.array(errors.get(method, []))
            error = f"{own.mean():.4f}" if len(own) else ""
            cells = [label(method), error, "", rate_of(solved[method]).percent(interval=True)]
            pair = pair_of({case: rows}, method, native)
            if pair is not None and len(own):
                cells[2] = "{:+.4f} to {:+.4f}".format(*bootstrap(own - base))
            lines.append((*cells, *_paid(pair)))
        yield Table(
            f"preservation-{case}",
            f"Prediction error beside success, {case} pools",
            ("method", "prediction error", "its change", "success", "gained", "lost", "p"),
            tuple(lines),
            f"Prediction error: mean square of predicted less realised latents on the first "
            f"{len(base)} starts, its change with a 95 % interval of whole starts. Gained and "
            f"lost: starts that only this method, or only {label(native)}, solves; exact p, not "
            "adjusted.",
        )


def _paid(pair: Any) -> tuple[str, str, str]:
    return ("", "", "") if pair is None else (str(pair.gains), str(pair.losses), f"{pair.p:.2g}")
