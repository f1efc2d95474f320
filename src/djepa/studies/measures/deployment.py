"""The cost of a deployed decision: milliseconds from frames to choice, and size of the file.

Every method is exported into one file, which is loaded and plans. As in the paper (App. A), up to
256 starts are planned in batches of 16, two passes to warm up and ten that are timed.
"""

import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from djepa.align.methods import Composition
from djepa.align.plastic import load_patch
from djepa.align.registry import METHODS, label, slug
from djepa.artefacts.records import folder_hash
from djepa.bank.read import Bank
from djepa.evaluate.intervals import rate_of
from djepa.evaluate.rows import successes
from djepa.evidence.ranks import order
from djepa.lift.file import write_planner
from djepa.lift.ordinal import native_distance
from djepa.lift.planner import Planner, load_planner
from djepa.models.protocol import CONTEXT
from djepa.report.tables import Table
from djepa.studies.design import Case, Measure
from djepa.studies.results import Results
from djepa.studies.stages import Say
from djepa.studies.study import Study

WARM, BATCH = 2, 16
COMPOSED = "composition"
Given = list[tuple[Tensor, ...]]
INSTALLED = """
import sys
from pathlib import Path
from importlib.metadata import requires
from djepa.lift.planner import load_planner
for file in sys.argv[1:]:
    load_planner(Path(file))
named = [line.split(";")[0] for line in requires("djepa") or () if "extra ==" not in line]
base = ["".join(c if c.isalnum() else " " for c in line).split()[0] for line in named]
print(*sorted({"PIL" if name == "pillow" else name for name in base} & set(sys.modules)))
"""


def deployment(methods: Sequence[tuple[str, bool]], lifted: str, cases: tuple[str, ...]) -> Measure:
    """Planners of these (method, whether its decision is lifted), on the starts of some cases."""

    def run(study: Study, case: Case, say: Say) -> dict[str, dict[str, Any]]:
        found, bank, device = {}, study.bank(case), study.place.device
        chosen: dict[str, list[int]] = {}
        for row in study.rows(case.name):
            chosen.setdefault(row.method, []).append(row.chosen)
        known = [one for one in methods if one[0] in chosen]  # no composition without a patch
        files = {name: exported(study, case.group, name, lifted) for name, _ in known}
        needed = installed(files.values())
        for name, lift in known:
            file = files[name]
            planner = load_planner(file, device)
            given = batches(bank, planner, study.sizes.timed, device)
            times, recovered = planned(planner, given, lift, study.sizes.repeats, chosen[name])
            found[f"{name}, lifted" if lift else name] = {
                "method": name,
                "milliseconds": times,
                "device": device,
                "files": 1,
                "packages": 1,
                "megabytes": round(file.stat().st_size / 1e6, 1),
                "installed": needed,
                **recovered,
            }
        return found

    return Measure(
        name="deployment",
        title="Deployment",
        text=(
            "A planner is one file. It takes frames, a goal and candidates, and returns a "
            "decision; lifted, the distance to the goal gives that decision back.",
        ),
        run=run,
        tables=_tables,
        only=cases,
    )


def exported(study: Study, group: str, method: str, lifted: str) -> Path:
    """The file of a method, written unless it is there."""
    file = study.out / "planners" / group / f"{slug(method)}.safetensors"
    if file.exists():
        return file
    suite, composition = study.suite(group), None
    if method == COMPOSED:
        assert suite.threshold is not None
        folder = study.place.own(group, "plasticity")
        composition = Composition(load_patch(folder), suite.threshold, folder_hash(folder))
        method = study.design.published
    alignment = suite.alignments[method]
    weights = tuple(dict.fromkeys((*alignment.config.geometries, lifted)))
    write_planner(file, alignment, weights, lifted, study.card(group), composition)
    return file


def planned(
    planner: Planner, given: Given, lift: bool, repeats: int, chosen: Sequence[int]
) -> tuple[list[float], dict[str, int]]:
    """Milliseconds per start of every timed pass; how many choices and ranks the lift recovered."""
    times, starts = [], sum(len(batch[-1]) for batch in given)
    device = given[0][0].device
    for turn in range(WARM + repeats):
        plans, spent = [], 0.0
        for context, goal, proprio, history, actions, ids in given:
            _wait(device)
            began = time.perf_counter()
            plans.append(planner.plan(context, history, goal, actions, ids, proprio, lift=lift))
            _wait(device)
            spent += time.perf_counter() - began
        times += [1000 * spent / starts] if turn >= WARM else []
    choices = torch.cat([plan.choice for plan in plans]).tolist()
    agreed = sum(a == b for a, b in zip(choices, chosen, strict=False))
    found = {"starts": starts, "choices_as_decided": agreed}
    if lift:
        read = [ids.gather(1, order(native_distance(plan.futures, plan.goal), ids))
                for plan, (*_, ids) in zip(plans, given, strict=True)]  # fmt: skip
        same = torch.cat([a == plan.order for a, plan in zip(read, plans, strict=True)])
        found |= {"ranks": same.numel(), "ranks_recovered": int(same.sum()),
                  "choices_recovered": int(same[:, 0].sum())}  # fmt: skip
    return times, found


def batches(bank: Bank, planner: Planner, most: int, device: str) -> Given:
    """Frames, goal frame, proprioception, history, candidates and IDs of the first starts."""
    d, scene = bank.decisions, bank.scene()
    image = next(iter(planner.geometries.values())).image
    found: Given = []
    for first in range(0, min(most, len(d.context)), BATCH):
        rows = slice(first, min(first + BATCH, most))
        states = np.concatenate([d.context[rows], d.goal[rows, None]], axis=1)
        frames, proprio = scene.observe(torch.from_numpy(states).to(device), image)
        arrays = (d.history, d.actions, d.candidate_ids)
        rest = [torch.from_numpy(np.ascontiguousarray(x[rows])).to(device) for x in arrays]
        frame = (frames[:, :CONTEXT], frames[:, CONTEXT], proprio)
        found.append((*frame, rest[0].float(), rest[1].float(), rest[2]))
    return found


def installed(files: Iterable[Path]) -> list[str]:
    """Required packages beside djepa that a new process loads for planners."""
    command = [sys.executable, "-c", INSTALLED, *map(str, files)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _tables(results: Results) -> Iterator[Table]:
    for case, value in results.measured("deployment").items():
        solved = successes(results.rows[case]) if case in results.rows else {}
        eligible = successes([row for row in results.rows.get(case, []) if row.eligible])
        places = {name: place for place, name in enumerate(METHODS)}
        names = sorted(value, key=lambda n: (places.get(value[n]["method"], len(places)), n))
        lines = tuple(_line(results, case, name, value[name], (solved, eligible)) for name in names)
        first = next(iter(value.values()))
        note = (
            f"Milliseconds: median (fastest-slowest) of the repeats on {first['device']}, in "
            f"batches of {BATCH}; they depend on the machine."
        )
        if any("[" in cell for line in lines for cell in line):
            note += " In square brackets: the paper's figure."
        if needed := first.get("installed"):
            note += f" Beside djepa a planner needs {', '.join(needed)}."
        heads = ("planner", "success", "eligible", "ms per start", "files", "packages",
                 "choices as decided", "ranks read back", "choices read back")  # fmt: skip
        kept = [i for i, _ in enumerate(heads) if any(line[i] for line in lines)]
        yield Table(
            f"deployment-{case}",
            f"Deployed planners, {case} pools",
            tuple(heads[i] for i in kept),  # earlier results have fewer columns
            tuple(tuple(line[i] for i in kept) for line in lines),
            note,
        )


def _line(
    results: Results, case: str, name: str, of: dict[str, Any], solved: tuple[Any, Any]
) -> tuple[str, ...]:
    """The row of one planner, with the paper's figure in parentheses if it prints one."""
    ms, method = of["milliseconds"], of["method"]

    def beside(text: str, quantity: str) -> str:
        theirs = results.printed(case, name, quantity, "confirmation")
        return f"{text} [{theirs.value:g}]" if theirs else text

    def share(what: str, total: str) -> str:
        return f"{of[what]:,} of {of[total]:,}" if what in of else ""

    return (
        label(method) + name.removeprefix(method),
        rate_of(solved[0][method]).percent(interval=True) if method in solved[0] else "",
        beside(rate_of(solved[1][method]).percent(), "success") if method in solved[1] else "",
        beside(f"{np.median(ms):.2f} ({min(ms):.2f}-{max(ms):.2f})", "milliseconds"),
        beside(str(of["files"]), "files"),
        beside(str(of["packages"]), "packages") if "packages" in of else "",
        share("choices_as_decided", "starts"),
        share("ranks_recovered", "ranks"),
        share("choices_recovered", "starts"),
    )
