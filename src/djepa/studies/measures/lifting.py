"""Decisions written into predicted futures and read back by distance to the goal alone."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from djepa.align.methods import Choice
from djepa.align.registry import label
from djepa.bank.read import Bank
from djepa.evidence.evidence import Evidence
from djepa.evidence.ranks import strict_ranks
from djepa.lift.ordinal import lift as write_order
from djepa.lift.ordinal import native_distance
from djepa.models.predictions import read_predictions
from djepa.report.maps import rank_recovery, terminal_geometry
from djepa.report.tables import Table
from djepa.studies.design import Case, Measure
from djepa.studies.results import Results
from djepa.studies.stages import Say
from djepa.studies.study import Study

DRAWN = 256  # starts whose ranks are drawn


def lifting(methods: Sequence[str], geometry: str) -> Measure:
    """Ranks of these methods lifted into futures of one geometry; the last method is drawn."""

    def run(study: Study, case: Case, say: Say) -> dict[str, Any]:
        (test, choices), found = study.decided(case), {}
        for name in methods:
            found[name], drawn = lift(choices[name], test.evidence, study.bank(case), geometry)
        study.keep_arrays("lifting", case.name, drawn)
        return found

    return Measure(
        name="lifting",
        title="Written back into latents",
        text=(
            "The order of a method is written into the predicted futures, so that the plain "
            "distance to the goal gives the same order. Counted is how much of it is read back.",
        ),
        run=run,
        tables=_tables,
        figures=_figures,
    )


def lift(
    choice: Choice, evidence: Evidence, bank: Bank, name: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Statistics of recovered ranks, and arrays to draw: (n, K) ranks before, wanted and after;
    for the first start whose choice the lift changes, last latents (K, D) before and after, goal.
    """
    stored = read_predictions(bank, name)
    assert stored.futures is not None
    futures, goal = torch.from_numpy(stored.futures), torch.from_numpy(stored.goal)
    score, ids = choice.score.cpu(), evidence.ids.cpu()
    wanted = strict_ranks(score, ids)
    parts = zip(*(x.split(64) for x in (futures, goal, score, ids)), strict=True)
    found = torch.cat(
        [strict_ranks(native_distance(write_order(*part)[0], part[1]), part[3]) for part in parts]
    )
    first = found.gather(1, choice.position.cpu()[:, None])[:, 0] == 0
    before = strict_ranks(native_distance(futures, goal), ids)
    changed = (before.argmin(1) != choice.position.cpu()).nonzero().flatten().tolist() or [0]
    at = slice(changed[0], changed[0] + 1)
    lifted = write_order(futures[at], goal[at], score[at], ids[at])[0][0, :, -1]
    ranks = {"before": before, "wanted": wanted, "after": found}
    drawn = {what: of[:DRAWN].numpy().astype(np.int32) for what, of in ranks.items()} | {
        "original": futures[at][0, :, -1].numpy(),
        "lifted": lifted.numpy(),
        "goal": goal[at][0].numpy(),
        "chosen": np.array([before[at].argmin(), choice.position[at].item()]),
    }
    return {
        "geometry": name,
        "precision": str(futures.dtype).removeprefix("torch."),
        "starts": len(ids),
        "ranks": ids.numel(),
        "ranks_recovered": int((found == wanted).sum()),
        "choices_recovered": int(first.sum()),
    }, drawn


def _tables(results: Results) -> Iterator[Table]:
    lines = [
        (
            case,
            label(method),
            f"{of['ranks_recovered']:,} of {of['ranks']:,}",
            f"{of['choices_recovered']:,} of {of['starts']:,}",
        )
        for case, value in results.measured("lifting").items()
        for method, of in sorted(value.items(), reverse=True)
    ]
    columns = ("pools", "method", "ranks read back", "choices read back")
    if lines:
        yield Table("lifting", "What distance to the goal gives back", columns, tuple(lines))


def _figures(results: Results, folder: Path) -> Iterator[tuple[str, str]]:
    for case, of in results.arrays("lifting").items():
        ranks = [of[name] + 1 for name in ("wanted", "after", "before")]
        rank_recovery(folder / f"lift-ranks-{case}", *ranks)
        yield f"lift-ranks-{case}", "Ranks read back by distance."
        original, lifted, goal = (of[name].astype(float) for name in ("original", "lifted", "goal"))
        before, after = of["chosen"].tolist()
        stem = folder / f"lift-geometry-{case}"
        terminal_geometry(stem, original, lifted, goal, (before, after))
        yield f"lift-geometry-{case}", "One start before and after the lift."
