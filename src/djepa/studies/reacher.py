"""The Reacher study: two models, one of which plans by a learned temporal distance.

    relational   operator and temporal transport learned together, conservative gate  (§4.3, App. A)
    D-JEPA       mixture of both costs, density and ranks if folds gain by them, careful gate

The transport moves TD-JEPA's futures along LeWM's by at most ρ = 0.1 per step; the executed choice
is the operator's. The motion is measured on calibration starts.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from djepa.align.presets import PAIR
from djepa.lift.temporal import REACHER as JOINT
from djepa.lift.temporal import (
    Criterion,
    TemporalAlignment,
    TemporalConfig,
    Trajectories,
    coefficient_table,
    displacement,
    load_temporal,
    save_temporal,
)
from djepa.lift.temporal_fit import fit_temporal
from djepa.models.predictions import read_predictions
from djepa.models.weights import load_geometry
from djepa.report.maps import coefficient_map
from djepa.report.tables import Table
from djepa.studies.design import Case, Measure, Sizes
from djepa.studies.pair import pair_design
from djepa.studies.results import Results
from djepa.studies.stages import Say
from djepa.studies.study import Study
from djepa.worlds.reacher import TOLERANCE

RADIUS, BINS = 0.1, 9
UPDATES, FEW = 1500, 200  # updates of operator and transport; with a preset that limits them


def fit_transported(study: Study, group: str, say: Say) -> TemporalAlignment:
    """Fit operator and transport together and store them, or read them if stored."""
    folder = study.place.own(group, "relational")
    if not study.place.made(group, "relational"):
        say(f"  operator and transport, {group} pools")
        most = study.sizes.updates
        updates = UPDATES if most is None else min(FEW, most)
        fit, calibration = study.parts(group)
        found = fit_temporal(
            fit,
            trajectories(study, study.cases("fit", group)[0]),
            calibration,
            _criterion(study),
            TemporalConfig(replace(JOINT, updates=updates), radius=RADIUS),
        )
        save_temporal(found, folder, study.card(group))
    return load_temporal(folder)


def trajectories(study: Study, case: Case) -> Trajectories:
    """Stored futures of both models, and TD-JEPA's goals."""
    stored = {name: read_predictions(study.bank(case), name) for name in PAIR}
    futures = [torch.from_numpy(np.asarray(stored[name].futures)).float() for name in PAIR]
    goal, part = torch.from_numpy(stored["tdjepa"].goal).float(), slice(*(case.part or (None,)))
    return Trajectories(futures[0][part], futures[1][part], goal[part]).to(study.place.device)


def _criterion(study: Study) -> Criterion:
    """TD-JEPA's own planning cost, with its learned distance."""
    return load_geometry("reacher-tdjepa", study.place.device).native_cost


def _moved(study: Study, case: Case, say: Say) -> dict[str, Any]:
    """Motion by the transport on the calibration starts, by rank and step."""
    (own,) = study.cases("calibration", case.group)
    temporal = fit_transported(study, case.group, say)
    evidence = study.population("calibration", own).evidence
    moved = temporal.transport(evidence, trajectories(study, own), _criterion(study))
    table = coefficient_table(moved.coefficients, moved.ranks, BINS)
    return {
        "coefficients": [[round(float(x), 6) for x in row] for row in table],
        **displacement(moved.coefficients, RADIUS),
    }


def _transport_tables(results: Results) -> Iterator[Table]:
    rows = tuple(
        (
            case,
            f"{of['mean']:.4f}",
            f"{of['largest']:.4f}",
            f"{100 * of['at_bound']:.1f} %",
            ", ".join(f"{50 + 50 * sign:.0f} %" for sign in of["signs"]),
        )
        for case, of in results.measured("transport").items()
    )
    columns = ("pools", "mean |β|", "largest", "near the bound", "positive, by step")
    note = (
        "β is the signed step along LeWM's future, at most 0.1; near the bound: above 90 % of it."
    )
    if rows:
        yield Table("transport", "Temporal transport on calibration starts", columns, rows, note)


def _transport_figures(results: Results, folder: Path) -> Iterator[tuple[str, str]]:
    for case, of in results.measured("transport").items():
        coefficient_map(folder / f"transport-{case}", np.array(of["coefficients"], float), RADIUS)
        yield f"transport-{case}", "Mean coefficient by learned rank and future step."


TRANSPORT = Measure(
    name="transport",
    title="Temporal transport",
    text=("How far the published transport moves the futures of TD-JEPA along those of LeWM.",),
    run=_moved,
    tables=_transport_tables,
    figures=_transport_figures,
)
REACHER = pair_design(
    "reacher",
    16,
    TRANSPORT,
    {},
    title="Does alignment choose better for an arm?",
    question=(
        "dm_control's two-link arm, driven by torques. A start is solved when both joints end "
        "within 0.05 rad of the goal's. LeWM plans by latent distance, TD-JEPA by its **learned "
        "temporal distance**, in which the last step has the weight 0.3. Every candidate was "
        "executed.",
        "The published operator is learned together with a **temporal transport**, which moves "
        "TD-JEPA's futures a little along LeWM's. In reference pools, made around a hidden "
        "solution, pool density alone finds that solution; in decoy pools it does not. Fusion + "
        "pool density is the control.",
    ),
    sizes={
        "quick": Sizes(64, 32, 48, updates=300),
        "paper": Sizes(384, 128, 128),
        "large": Sizes(2048, 512, 2048),
    },
    paper={"reference": ("reference-control", "")},
    unit=(TOLERANCE, "The larger error of the two joints, in rad; solved below 0.05."),
    extra=lambda study, group, say: {"relational": fit_transported(study, group, say).relational},
)
