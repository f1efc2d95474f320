"""What a deployed decision costs: milliseconds from frames to choice, files to carry."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from djepa.align.registry import label
from djepa.bank.read import Bank
from djepa.evaluate.intervals import rate_of
from djepa.evaluate.rows import successes
from djepa.lift.planner import Planner
from djepa.models.protocol import CONTEXT
from djepa.models.weights import load_geometry
from djepa.report.tables import Table
from djepa.studies.design import Case, Measure
from djepa.studies.results import Results
from djepa.studies.stages import Say
from djepa.studies.study import Study

WARM, BATCH = 2, 16
FILES = {"geometry": 4, "alignment": 5}  # of a folder each: weights, configuration, card, hashes


def deployment(methods: Sequence[tuple[str, bool]], lifted: str, cases: tuple[str, ...]) -> Measure:
    """Planners of these (method, whether its decision is lifted), on the starts of some cases."""

    def run(study: Study, case: Case, say: Say) -> dict[str, dict[str, Any]]:
        found, suite, device = {}, study.suite(case.group), study.place.device
        for name, lift in methods:
            alignment = suite.alignments[name]
            needed = tuple(dict.fromkeys((*alignment.config.geometries, lifted)))
            models = {n: load_geometry(n, device) for n in needed}
            planner = Planner(models, alignment, lifted)
            found[f"{name}, lifted" if lift else name] = {
                "method": name,
                "milliseconds": latency(
                    planner, study.bank(case), device, lift, study.sizes.repeats
                ),
                "files": FILES["geometry"] * len(models) + FILES["alignment"] + 1,
                "device": device,
            }
        return found

    return Measure(
        name="deployment",
        title="Deployment",
        text=("A planner takes frames, a goal and candidates, and returns a decision.",),
        run=run,
        tables=_tables,
        only=cases,
    )


def latency(planner: Planner, bank: Bank, device: str, lift: bool, repeats: int) -> list[float]:
    """Milliseconds per start, frames to decision, of every repeat of a batch of 16."""
    image = next(iter(planner.geometries.values())).image
    context, goal, proprio, history, actions, ids = frames_of(bank, image, device)
    times = []
    for _ in range(WARM + repeats):
        _wait(device)
        began = time.perf_counter()
        planner.plan(context, history, goal, actions, ids, proprio, lift=lift)
        _wait(device)
        times.append(1000 * (time.perf_counter() - began) / len(ids))
    return times[WARM:]


def frames_of(bank: Bank, image: int, device: str) -> tuple[Tensor, ...]:
    """Frames, goal frame, proprioception, history, candidates and IDs of the first 16 starts."""
    d, scene = bank.decisions, bank.scene()
    states = np.concatenate([d.context[:BATCH], d.goal[:BATCH, None]], axis=1)
    frames, proprio = scene.observe(torch.from_numpy(states).to(device), image)
    arrays = (d.history, d.actions, d.candidate_ids)
    rest = [torch.from_numpy(np.ascontiguousarray(x[:BATCH])).to(device) for x in arrays]
    frame = (frames[:, :CONTEXT], frames[:, CONTEXT], proprio)
    return *frame, rest[0].float(), rest[1].float(), rest[2]


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def _shown(entry: str, method: str) -> str:
    return label(method) + entry.removeprefix(method)


def _tables(results: Results) -> Iterator[Table]:
    for case, value in results.measured("deployment").items():
        solved = successes(results.rows[case]) if case in results.rows else {}
        theirs = {n: results.printed(case, n, "milliseconds", "confirmation") for n in value}
        printed = any(theirs.values())
        lines = tuple(
            (
                _shown(name, of["method"]),
                rate_of(solved[of["method"]]).percent(interval=True) if solved else "",
                f"{np.median(of['milliseconds']):.2f} ({min(of['milliseconds']):.2f}-"
                f"{max(of['milliseconds']):.2f})",
                *([f"{found.value:.2f}" if (found := theirs[name]) else ""] if printed else []),
                str(of["files"]),
            )
            for name, of in value.items()
        )
        device = next(iter(value.values()))["device"]
        yield Table(
            f"deployment-{case}",
            f"Deployed planners, {case} pools",
            ("planner", "success", "ms per start", *(["ms, paper"] if printed else []), "files"),
            lines,
            f"Milliseconds: median (fastest-slowest) of the repeats on {device}, in batches of "
            f"{BATCH}; they depend on the machine.",
        )
