"""Statistics of a bank's pools: their difficulty, and how much their construction reveals.

Everything is counted over executed candidates: one that was not executed is not a failure.
"""

import dataclasses
import io
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.align.registry import label
from djepa.artefacts.claim import metadata_of
from djepa.bank.read import Bank
from djepa.errors import DjepaError, MissingExtraError
from djepa.evaluate.intervals import Rate, markdown_table, plain, rate_of, rates_by
from djepa.files import to_json, write_atomically
from djepa.pools import density_pick
from djepa.rollout.execute import CollectConfig
from djepa.worlds.push import PushWorld

Array = npt.NDArray[Any]
Pick = Callable[[Array, Array], int]  # (k, F) points or (k,) costs, (k,) IDs -> the ID chosen
NEIGHBOURS = 8
ANGLE_SCALE = 50.0  # px per unit of (cos, sin): about the reach of a block, so a turn is a distance
DENSITY_ACTIONS, DENSITY_OUTCOMES = "density on actions", "density on outcomes"
RANDOM, SMALLEST = label("random"), label("first")
ENDPOINT, ORACLE = label("endpoint"), label("oracle")
COLOURS = {  # Okabe and Ito: different for any colour vision
    RANDOM: "#56B4E9",
    DENSITY_ACTIONS: "#E69F00",
    DENSITY_OUTCOMES: "#D55E00",
    SMALLEST: "#F0E442",
    ENDPOINT: "#CC79A7",
    ORACLE: "#009E73",
}
PRIVILEGED = (
    "Density on outcomes sees executed states: a bound, not a method. The pusher endpoint "
    "needs\nno execution, because nothing pushes the pusher back; it knows the goal and ignores "
    "the block.\n"
)
CENTRES = np.array(["no centre", "reference centre", "decoy centres"])  # by the sign of centre_of


@dataclasses.dataclass(frozen=True)
class Chooser:
    """One pick per start, by a rule that sees no label."""

    success: Rate
    families: dict[str, int]  # number of picks of each family
    cluster: Rate | None  # picks made around the reference; decoy pools only, chance is 1 / C


@dataclasses.dataclass(frozen=True)
class PoolStats:
    """Statistics of one bank. Intervals are for rates of starts; candidates are not independent."""

    name: str
    hash: str
    config: CollectConfig
    starts: int
    candidates: int
    centres: int
    success: Rate  # of all candidates
    mixed: Rate  # starts with a success and a failure
    all_fail: Rate
    all_success: Rate
    median_successes: float
    by_family: dict[str, Rate]
    by_centre: dict[str, Rate]
    by_behaviour: dict[str, Rate]
    drops: dict[str, int]
    random: float  # expected success of a uniform pick: mean share of successes per start
    oracle: Rate  # starts with a success
    choosers: dict[str, Chooser]


def pool_stats(bank: Bank) -> PoolStats:
    """Statistics over all starts of a bank.

    Choosers without a model, ties to the smaller ID:
    `smallest ID` always takes the first; it shows what the order of the IDs reveals;
    `density on actions` sees the raw sequences (H · A numbers), as any planner does;
    `density on outcomes` sees true final states: pusher xy, block xy, 50 px · (cos, sin) of the
    block's angle. It is the best case of a density chooser, and privileged;
    `pusher endpoint` takes the candidate whose pusher ends nearest the goal's, block ignored. The
    pusher is kinematic, so its path follows from the controls and nothing has to be executed.
    """
    seen, made = bank.outcomes, bank.provenance
    ran, won = seen.observed, seen.success & seen.observed
    known = ran.any(axis=1)
    if not known.any():
        raise DjepaError(f"{bank.path}: no candidate was executed, so there is nothing to count.")
    hits, runs = won[known].sum(axis=1), ran[known].sum(axis=1)
    return PoolStats(
        name=bank.path.resolve().name,
        hash=bank.hash,
        config=bank.config,
        starts=len(bank),
        candidates=bank.candidates,
        centres=made.centres.shape[1],
        success=Rate(int(hits.sum()), int(runs.sum())),
        mixed=rate_of((hits > 0) & (hits < runs)),
        all_fail=rate_of(hits == 0),
        all_success=rate_of(hits == runs),
        median_successes=float(np.median(hits)),
        by_family=rates_by(won, ran, made.family),
        by_centre=rates_by(won, ran, CENTRES[np.sign(made.centre_of) + 1]),
        by_behaviour=rates_by(won, ran, np.broadcast_to(made.behaviour[:, None], ran.shape)),
        drops=dict(bank.manifest["drops"]),
        random=float(np.mean(hits / runs)),
        oracle=rate_of(hits > 0),
        choosers=_choosers(bank),
    )


def _choosers(bank: Bank) -> dict[str, Chooser]:
    known, seen = bank.decisions, bank.outcomes
    N, K = known.candidate_ids.shape
    ran, everyone = seen.observed, np.ones_like(seen.observed)
    found = {
        SMALLEST: _chooser(bank, known.candidate_ids, everyone, _least),
        DENSITY_ACTIONS: _chooser(bank, known.actions.reshape(N, K, -1), everyone, _densest),
    }
    if bank.config.task.name == PushWorld.name:  # whose states have a pusher and a block
        points = outcome_points(seen.states[:, :, -1])
        found[DENSITY_OUTCOMES] = _chooser(bank, points, ran, _densest)
    rule = bank.config.task.endpoint
    if rule is not None:
        far = rule(known.state, known.actions.astype(float), known.goal)
        found[ENDPOINT] = _chooser(bank, far, everyone, _least)
    return found


def outcome_points(final: Array) -> Array:
    """Final states (..., S) -> (..., 6) in pixels, whose distance measures similarity."""
    angle = final[..., 4:5]
    turn = [ANGLE_SCALE * np.cos(angle), ANGLE_SCALE * np.sin(angle)]
    return np.concatenate([final[..., :4], *turn], axis=-1)


def _densest(points: Array, ids: Array) -> int:
    return int(density_pick(points, ids, NEIGHBOURS)) if len(ids) > 1 else int(ids[0])


def _least(cost: Array, ids: Array) -> int:
    return int(ids[np.lexsort((ids, cost))[0]])


def _chooser(bank: Bank, points: Array, allowed: Array, pick: Pick) -> Chooser:
    """Let `pick` choose an allowed ID for every start; count its successes and families."""
    ids, seen, made = bank.decisions.candidate_ids, bank.outcomes, bank.provenance
    rows = np.flatnonzero(allowed.any(axis=1))
    chosen = [pick(points[n, allowed[n]], ids[n, allowed[n]]) for n in rows]
    columns = np.argmax(ids[rows] == np.array(chosen)[:, None], axis=1)
    centre, judged = made.centre_of[rows, columns], seen.observed[rows, columns]
    return Chooser(
        success=rate_of(seen.success[rows, columns][judged]),
        families=dict(sorted(Counter(made.family[rows, columns].tolist()).items())),
        cluster=rate_of(centre == 0) if (made.centre_of > 0).any() else None,
    )


def stats_json(stats: Sequence[PoolStats]) -> str:
    """All numbers, rates with share and 95 % interval; equal statistics give equal bytes."""
    return to_json([plain(entry) for entry in stats])


def stats_markdown(stats: Sequence[PoolStats]) -> str:
    """Tables with a column per bank: the pools, success by group, success and picks by chooser."""
    names, columns = [s.name for s in stats], [_cells(s) for s in stats]
    titles = [title for column in columns[:1] for title in column]
    tables = [markdown_table(title, names, [c[title] for c in columns]) for title in titles]
    note = [PRIVILEGED] if any(ENDPOINT in s.choosers for s in stats) else []
    return "\n".join([table for table in tables if table] + note)


def _counted(s: PoolStats) -> dict[str, Rate]:
    return {name: c.success for name, c in s.choosers.items()} | {ORACLE: s.oracle}


def _pool_cells(s: PoolStats) -> dict[str, str]:
    return {
        "profile": s.config.profile,
        "starts × candidates": f"{s.starts} × {s.candidates}",
        "candidates that succeed": s.success.percent(),
        "mixed starts": s.mixed.percent(),
        "starts where all fail": s.all_fail.percent(),
        "starts where all succeed": s.all_success.percent(),
        "successes per start, median": f"{s.median_successes:g}",
        "draws dropped": ", ".join(f"{n} {why}" for why, n in s.drops.items() if n) or "none",
    }


def _cells(s: PoolStats) -> dict[str, dict[str, str]]:
    """Table -> row -> text of one bank's column."""
    cells = {"pools": _pool_cells(s)}
    for kind in ("family", "centre", "behaviour"):
        rates: dict[str, Rate] = getattr(s, f"by_{kind}")
        cells[f"success by {kind}"] = {n: f"{r.percent()} of {r.of}" for n, r in rates.items()}
    by_chooser = {name: rate.percent(interval=True) for name, rate in _counted(s).items()}
    cells["success by chooser (95 % interval)"] = {RANDOM: f"{100 * s.random:.1f} %"} | by_chooser
    cells["picks in the reference's cluster (95 % interval)"] = {
        name: f"{c.cluster.percent(interval=True)}, chance {100 / s.centres:.1f} %"
        for name, c in s.choosers.items()
        if c.cluster is not None
    }
    cells["picks by family"] = {
        name: ", ".join(f"{n} {family}" for family, n in Counter(c.families).most_common())
        for name, c in s.choosers.items()
    }
    return cells


def stats_figure(stats: Sequence[PoolStats], path: Path) -> None:
    """Success by family and by chooser, a panel per bank, as PNG or SVG by the suffix of `path`.

    Only choosers have Wilson intervals: candidates of one start are not independent, and the
    expectation of a uniform pick is not a count.
    """
    if path.suffix not in (".png", ".svg") or not stats:
        raise DjepaError(f"A figure needs banks and a name ending in .png or .svg, got {path}.")
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("A figure", "report") from None
    families = sorted({family for s in stats for family in s.by_family})
    size = (1.6 + 4.2 * len(stats), 0.3 * (len(families) + 5) + 1.2)
    # No pyplot, which needs a display and keeps the figure alive. No date: same bytes.
    with matplotlib.rc_context({"svg.hashsalt": "djepa", "axes.titlesize": 11}):
        figure = Figure(figsize=size, dpi=150, layout="constrained")
        panels = figure.subplots(1, len(stats), squeeze=False, sharey=True)[0]
        for axes, entry in zip(panels, stats, strict=True):
            _panel(axes, entry, families)
        panels[0].invert_yaxis()  # shared by all
        data = io.BytesIO()
        figure.savefig(data, format=path.suffix[1:], metadata=metadata_of(path.suffix))
    write_atomically(path, data.getvalue())


def _panel(axes: Any, s: PoolStats, families: list[str]) -> None:
    counted = _counted(s)
    shares = {n: r.share for n, r in (s.by_family | counted).items()} | {RANDOM: s.random}
    names = [*families, RANDOM, *counted]
    places = [y + 0.5 * (y >= len(families)) for y in range(len(names))]  # a gap before choosers
    for y, name in zip(places, names, strict=True):
        share = end = 100 * shares.get(name, 0.0)
        axes.barh(y, share, 0.68, color=COLOURS.get(name, "#999999"))
        if name in counted:
            low, end = (100 * edge for edge in counted[name].interval)
            axes.plot([low, end], [y, y], color="black", linewidth=1.2)
        label = f"{share:.1f}" if name in shares else "not in this pool"
        axes.text(end + 1.5, y, label, va="center", color="black", fontsize=9)
    axes.set_yticks(places, names)
    axes.set(xlim=(0, 112), xticks=range(0, 101, 25), xlabel="success, %")
    axes.set_title(f"{s.name}: {s.starts} starts, {s.candidates} candidates", loc="left")
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
