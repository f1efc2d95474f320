"""Success by number of fitting starts. It is reported; nothing is selected by it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from djepa.align.methods import Chooser, Mixture, aligned, fit_each
from djepa.align.registry import label
from djepa.report.curves import learning_curve
from djepa.studies.decisions import solved
from djepa.studies.design import Case, Measure
from djepa.studies.results import Results
from djepa.studies.stages import Say
from djepa.studies.study import Study


def learning(methods: Sequence[str]) -> Measure:
    """These fusions and alignments of the recipe, refitted on increasing numbers of starts."""

    def run(study: Study, case: Case, say: Say) -> list[dict[str, Any]]:
        fit, calibration = study.parts(case.group)
        test, recipe, rows = study.population("confirmation", case), study.recipe, []
        for n in study.sizes.curve:
            part = fit.rows(torch.arange(n, device=fit.evidence.ids.device))
            say(f"  {', '.join(methods)} on {n} starts")
            configs = [(m, recipe.alignments[m]) for m in methods if m in recipe.alignments]
            found: dict[str, Chooser] = {
                m: Mixture.fit(recipe.mixtures[m][0], part) for m in methods if m in recipe.mixtures
            }
            for name, fitted in fit_each(configs, part, calibration, study.place.engine):
                found[name] = aligned(fitted)
            for name in methods:
                won = solved(found[name](test.evidence), test)
                rows.append({"method": name, "fit": n, "hits": int(won.sum()), "of": len(won)})
        return rows

    return Measure(
        name="learning",
        title="More supervision",
        text=("Success on the confirmation starts, by number of fitting starts.",),
        run=run,
        figures=_figures,
        when=lambda sizes: bool(sizes.curve),
    )


def _figures(results: Results, folder: Path) -> Iterator[tuple[str, str]]:
    for case, rows in results.measured("learning").items():
        curves: dict[str, dict[int, tuple[int, int]]] = {}
        for row in rows:
            curves.setdefault(label(row["method"]), {})[row["fit"]] = (row["hits"], row["of"])
        learning_curve(folder / f"learning-{case}", curves)
        yield f"learning-{case}", "Bars: 95 % intervals."
