"""The Reacher study: two geometries, one of which plans by a learned temporal distance.

    relational   operator and temporal transport learned together, conservative gate  (§4.3, App. A)
    D-JEPA       mixture of both costs, density and ranks if folds want them, careful gate

The transport moves TD-JEPA's futures along LeWM's by at most ρ = 0.1 a step; the executed choice is
the operator's. What it moves is measured on the calibration starts.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from djepa.align.presets import careful, mixed
from djepa.align.suite import Recipe
from djepa.bank.read import Bank
from djepa.evidence.evidence import Evidence
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
from djepa.report.shifts import coefficient_map, paired_costs
from djepa.rollout.execute import CollectConfig
from djepa.studies.case_pages import case_rows, measures
from djepa.studies.cases import Case, CaseStudy, Design, split_of
from djepa.studies.stages import Say
from djepa.worlds.reacher import TOLERANCE

PAIR = ("lewm", "tdjepa")
FUSION, CONTROL, OURS = "fusion", "consensus + fusion", "D-JEPA"
POOLS = {"reference": "reference-control", "decoy": "decoy"}
RADIUS, BINS = 0.1, 9
UPDATES = {"quick": 200, "paper": 1500, "large": 1500}


def _evidence(bank: Bank, look: str) -> Evidence:
    return Evidence.from_bank(bank, PAIR, PAIR)


def _cases(role: str, starts: int, seed: int) -> list[Case]:
    return [
        Case(
            name,
            CollectConfig(
                "reacher",
                profile=profile,
                split=split_of("reacher", role),
                starts=starts,
                seed=seed,
            ),
            group=name,
        )
        for name, profile in POOLS.items()
    ]


def fit_transported(study: CaseStudy, group: str, say: Say) -> TemporalAlignment:
    """Operator and transport together, on disk once fitted."""
    folder = study.place.fits(group) / "relational"
    if not (folder / "manifest.json").exists():
        say(f"  operator and transport, {group} pools")
        fit, calibration = (_of(study, role, group) for role in ("fit", "calibration"))
        found = fit_temporal(
            study.population("fit", fit),
            trajectories(study, "fit", fit),
            study.population("calibration", calibration),
            _criterion(study),
            TemporalConfig(replace(JOINT, updates=UPDATES[study.preset]), radius=RADIUS),
        )
        save_temporal(found, folder, study.card(group))
    return load_temporal(folder)


def trajectories(study: CaseStudy, role: str, case: Case) -> Trajectories:
    """Futures of both geometries as they are stored, and TD-JEPA's goals."""
    bank = study.bank(role, case)
    held = {name: read_predictions(bank, name) for name in PAIR}
    futures = [torch.from_numpy(np.asarray(held[name].futures)).float() for name in PAIR]
    goal = torch.from_numpy(held["tdjepa"].goal).float()
    return Trajectories(futures[0], futures[1], goal).to(study.place.device)


def _criterion(study: CaseStudy) -> Criterion:
    """TD-JEPA's own planning cost, learned distance and all."""
    return load_geometry("reacher-tdjepa", study.place.device).native_cost


def _of(study: CaseStudy, role: str, group: str) -> Case:
    return next(case for case in study.cases(role) if case.group == group)


def _measure(study: CaseStudy, say: Say) -> dict[str, Any]:
    """What the transport moves on the calibration starts, by rank and step."""
    found: dict[str, Any] = {}
    for group in POOLS:
        case = _of(study, "calibration", group)
        temporal = fit_transported(study, group, say)
        evidence = study.population("calibration", case).evidence
        moved = temporal.transport(
            evidence, trajectories(study, "calibration", case), _criterion(study)
        )
        table = coefficient_table(moved.coefficients, moved.ranks, BINS)
        found[group] = {
            "coefficients": [[round(float(x), 6) for x in row] for row in table],
            **displacement(moved.coefficients, RADIUS),
        }
    return {"transport": found, "tables": [_transport_table(found)]}


def _transport_table(found: dict[str, Any]) -> dict[str, Any]:
    rows = [
        [
            group,
            f"{of['mean']:.4f}",
            f"{of['largest']:.4f}",
            f"{100 * of['at_bound']:.1f} %",
            ", ".join(f"{50 + 50 * sign:.0f} %" for sign in of["signs"]),
        ]
        for group, of in found.items()
    ]
    return {
        "name": "transport",
        "title": "What temporal transport moves, on calibration starts",
        "columns": ["pools", "mean |β|", "largest", "near the bound", "positive, by step"],
        "rows": rows,
        "note": "β is the signed step along LeWM's future, at most 0.1; near it: above 90 %.",
    }


def _figures(study: CaseStudy) -> list[Path]:
    made, folder = list[Path](), study.out / "figures"
    for group, of in measures(study.out).get("transport", {}).items():
        table = np.array(of["coefficients"], float)
        made += coefficient_map(folder / f"transport-{group}", table, RADIUS)
    for case, rows in case_rows(study).items():
        paid = [
            [row.cost for row in sorted(rows, key=lambda r: r.start) if row.method == name]
            for name in (OURS, "native lewm")
        ]
        names, marks = (OURS, "native lewm"), {"solved below": 1.0}
        made += paired_costs(folder / f"costs-{case}", paid[0], paid[1], names, marks, log=True)
    return made


RECIPE = Recipe(
    mixtures={FUSION: (PAIR, None), CONTROL: (PAIR, "tdjepa")},
    alignments={
        "log costs": mixed(PAIR, (), "log"),
        "mixture": mixed(PAIR, PAIR),
        OURS: careful(PAIR, PAIR),
    },
)
REACHER = Design(
    name="reacher",
    title="Does alignment choose better for an arm?",
    question=(
        "dm_control's two-link arm, driven by torques. A start is solved when both joints end "
        "within 0.05 rad of the goal's. LeWM plans by latent distance, TD-JEPA by its **learned "
        "temporal distance**, of which the last step weighs 0.3. Every candidate was executed.",
        "The published operator is learned together with a **temporal transport**, which moves "
        "TD-JEPA's futures a little along LeWM's. On pools around a hidden solution density points "
        "at it; decoy pools take that away, and consensus + fusion is the control.",
    ),
    weights=("reacher-lewm", "reacher-tdjepa"),
    sizes={"quick": (64, 32, 48), "paper": (384, 128, 128), "large": (2048, 512, 2048)},
    cases=_cases,
    evidence=_evidence,
    recipe=RECIPE,
    natives={"native lewm": "lewm", "native tdjepa": "tdjepa"},
    density=("tdjepa",),
    methods=(
        "random",
        "consensus tdjepa",
        "native lewm",
        "native tdjepa",
        FUSION,
        CONTROL,
        "relational",
        "log costs",
        "mixture",
        OURS,
        "oracle",
    ),
    against=("native lewm", "native tdjepa", FUSION, CONTROL, "mixture"),
    paper={
        ("reference", "native lewm"): 86.72,
        ("reference", "native tdjepa"): 68.75,
        ("reference", "relational"): 93.75,
    },
    paper_cost={
        ("reference", "native lewm"): 0.0302,
        ("reference", "native tdjepa"): 0.0515,
        ("reference", "relational"): 0.0245,
    },
    unit=(TOLERANCE, "The larger error of the two joints, in rad; solved below 0.05."),
    extra=lambda study, group, say: {"relational": fit_transported(study, group, say).relational},
    measure=_measure,
    figures=_figures,
)
