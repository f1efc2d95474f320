"""Success with fewer candidates."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from djepa.align.methods import Chooser, Population
from djepa.align.registry import label, ordered
from djepa.evidence.evidence import Evidence
from djepa.report.curves import budget_curves
from djepa.report.results import PRINTED
from djepa.report.tables import Table
from djepa.seeds import generator
from djepa.studies.decisions import solved
from djepa.studies.design import Case, Measure
from djepa.studies.results import Results
from djepa.studies.stages import Say
from djepa.studies.study import Study

SUBSETS, SEEDS = (8, 16, 32), tuple(range(9201, 9217))
Budgets = dict[str, dict[int, list[float]]]  # method -> candidates -> success by seed


def budget(methods: Sequence[str], eligible: tuple[str, ...] = ()) -> Measure:
    """Success of these methods on 8, 16 and 32 candidates of a pool and on all of them.

    On all starts of every case; or on eligible starts of the cases in `eligible`, beside the paper.
    """

    def run(study: Study, case: Case, say: Say) -> Budgets:
        test = study.population("confirmation", case)
        if eligible:
            test = test.rows(torch.tensor(study.design.eligible(test)).nonzero()[:, 0])
        known = study.choosers(case.group, test.evidence.names)
        return budgets({name: known[name] for name in methods if name in known}, test)

    name = "budget-eligible" if eligible else "budget"
    return Measure(
        name=name,
        title="Fewer candidates" + (", eligible starts" if eligible else ""),
        text=(
            "Success on nested subsets of each pool, the same for all methods. Ranks and "
            "corrections are computed within the subset; fitted weights stay the same.",
        ),
        run=run,
        tables=partial(_tables, name),
        figures=_figures if not eligible else lambda results, folder: (),
        only=eligible,
    )


def budgets(
    choosers: Mapping[str, Chooser], test: Population, seeds: Sequence[int] = SEEDS
) -> Budgets:
    """Method -> number of candidates -> success by seed."""
    K = test.evidence.candidates
    sizes = [k for k in SUBSETS if k < K]
    found: Budgets = {n: {k: [] for k in sizes} for n in choosers}
    for seed in seeds:
        order = nested(test.evidence, seed)
        for k in sizes:
            part = smaller(test, order[:, :k])
            for name, choose in choosers.items():
                found[name][k].append(_share(choose, part))
    for name, choose in choosers.items():  # the whole pool is one subset
        found[name][K] = [_share(choose, test)]
    return found


def nested(evidence: Evidence, seed: int) -> Tensor:
    """(N, K) a random order of each start's candidates; the first k are its subset of size k."""
    by_id = evidence.ids.argsort(dim=1).cpu().numpy()
    rows = [
        by_id[i][generator("budget", seed, identity).permutation(evidence.candidates)]
        for i, identity in enumerate(evidence.identities)
    ]
    return torch.from_numpy(np.stack(rows)).to(evidence.ids.device)


def smaller(test: Population, positions: Tensor) -> Population:
    """The same starts with some of their candidates, in the order of the pool."""
    at = positions.sort(dim=1).values
    return Population(test.evidence.columns(at), test.outcomes.columns(at))


def _share(choose: Chooser, test: Population) -> float:
    return float(solved(choose(test.evidence), test).double().mean())


def _stored(name: str, results: Results) -> Iterator[tuple[str, Budgets]]:
    for case, value in results.measured(name).items():
        of = {m: {int(k): v for k, v in by.items()} for m, by in value.items()}
        yield case, {m: dict(sorted(of[m].items())) for m in ordered(of)}


def _tables(name: str, results: Results) -> Iterator[Table]:
    for case, of in _stored(name, results):
        sizes, lines = list(next(iter(of.values()))), []
        on = f"{case}, eligible" if name.endswith("eligible") else case
        printed = False
        for method, by in of.items():
            lines.append((label(method), *(_spread(by[k]) for k in sizes)))
            theirs = [_printed(results, case, method, k) for k in sizes] if on != case else []
            if any(theirs):
                lines.append((f"{label(method)}, paper", *theirs))
                printed = True
        seeds = max(len(by[k]) for by in of.values() for k in sizes)
        note = f"Mean (smallest-largest) over {seeds} subsets, which the methods share."
        yield Table(
            f"{name}-{case}",
            f"Success by number of candidates, {on.replace(case, f'{case} pools', 1)}, %",
            ("method", *(f"K = {k}" for k in sizes)),
            tuple(lines),
            f"{note} {PRINTED}" if printed else note,
        )


def _printed(results: Results, case: str, method: str, k: int) -> str:
    found = results.printed(case, method, "success, mean of 16 subsets", "confirmation", k)
    return "" if found is None else f"{found.value:.2f}"


def _spread(shares: Sequence[float]) -> str:
    """Mean and range in percent; the mean alone if all are equal."""
    low, high, mean = (100 * f(shares) for f in (min, max, np.mean))
    return f"{mean:.1f}" if low == high else f"{mean:.1f} ({low:.1f}-{high:.1f})"


def _figures(results: Results, folder: Path) -> Iterator[tuple[str, str]]:
    for case, of in _stored("budget", results):
        named = {label(method): by for method, by in of.items()}
        budget_curves(folder / f"budget-{case}", named, len({r.start for r in results.rows[case]}))
        yield f"budget-{case}", "Bands: range over the subsets."
