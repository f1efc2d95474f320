"""Receding-horizon control: decide, execute `replan` controls, repeat; stored block by block.

FOLDER/
  manifest.json               episodes, planner, versions, the hash of the episode list
  episodes/BLOCK.safetensors  what happened in the episodes of a block

Legend: N episodes, T the budget in controls, R decisions, S numbers in a state, A action width,
M geometries.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from djepa.artefacts.folder import Arrays, encode
from djepa.artefacts.records import Kind
from djepa.artefacts.store import locate
from djepa.artefacts.write import Writer
from djepa.control.episodes import Episode, EpisodeConfig, draw_episodes, is_frozen, list_hash
from djepa.control.planners import RANDOM, Decision, Planner, PlannerConfig
from djepa.control.recorded import executed, packed
from djepa.errors import DjepaError
from djepa.rollout.engine import Engine
from djepa.rollout.execute import versions
from djepa.seeds import seed_for

Array = npt.NDArray[Any]
Report = Callable[[int, int], None]
SHARD = "episodes/{:06d}.safetensors"  # the file of a block


class ControlRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the manifest says about episodes."""

    config: EpisodeConfig
    planner: dict[str, Any]
    versions: dict[str, str]
    names: list[str]  # of the episodes, in order
    list_hash: str
    frozen: bool  # whether they are from a frozen list


CONTROL = Kind(
    "set of episodes",
    "djepa-control",
    1,
    ControlRecord,
    shards=r"episodes/\d{6}\.safetensors",
    again="Choose another --out.",
)


@dataclass(frozen=True)
class Work:
    """One block of episodes."""

    config: EpisodeConfig
    planner: Planner
    block: int
    versions: dict[str, str] = field(default_factory=dict)  # the driver's, if known


def control(
    path: Path | str,
    config: EpisodeConfig,
    planner: Planner,
    engine: Engine,
    report: Report = lambda done, total: None,
) -> Path:
    """Run all episodes in the workers of the engine and store them; resumes a partial folder."""
    here, count = versions(config.world), config.starts().blocks
    about = {"config": asdict(config), "planner": planner.settings, "versions": here}
    writer = Writer(path, CONTROL, about)
    with writer.opened():
        done = {int(p.note["block"]): p.note["names"] for p in writer.pieces if "block" in p.note}
        if writer.complete:
            report(config.episodes, config.episodes)
            writer.tidy()
            return locate(path)
        report(sum(map(len, done.values())), config.episodes)
        items = ((b, Work(config, planner, b, here)) for b in range(count) if b not in done)
        for block, (names, arrays) in engine.map(run_block, items, device=planner.device):
            file = SHARD.format(block)
            writer.write({file: encode(arrays)}, {"block": block, "names": names})
            done[block] = names
            report(sum(map(len, done.values())), config.episodes)
        names = [name for block in range(count) for name in done[block]]
        frozen = is_frozen(config, names)
        writer.finish({**about, "names": names, "list_hash": list_hash(names), "frozen": frozen})
    return locate(path)


def run_block(work: Work) -> tuple[list[str], Arrays]:
    """Names of the episodes of a block, and their arrays under the planner and random controls.

    The random baseline has the same episodes and takes hardly any time.
    """
    here = versions(work.config.world)
    if work.versions and work.versions != here:
        raise DjepaError(
            f"This worker has {here}, the driver {work.versions}. "
            "Install the same versions on every machine."
        )
    drawn = draw_episodes(work.config, work.block)
    floor = _drive(drawn, Planner(PlannerConfig(RANDOM), work.config.world))
    again = work.planner.config.planner == RANDOM
    planned = floor if again else _drive([e.afresh() for e in drawn], work.planner)
    names = [episode.name for episode, _ in planned]
    arrays = {**_arrays(work, planned), "floor_cost": _costs(work.config, floor)}
    if work.planner.config.record:
        said = [
            executed(episode, turn, decision.said)
            for episode, decisions in planned
            for turn, decision in enumerate(decisions)
            if decision.said is not None
        ]
        arrays["decisions"] = packed(said)
    return names, arrays


def _drive(episodes: list[Episode], planner: Planner) -> list[tuple[Episode, list[Decision]]]:
    """Run all episodes to their ends; returns them with their decisions."""
    config = episodes[0].config
    world = config.starts().make_world()
    found = [(episode, list[Decision]()) for episode in episodes]
    for turn in range(config.rounds):
        left = [(episode, before) for episode, before in found if not episode.done]
        if not left:
            break
        seeds = [seed_for("control", episode.name, turn) for episode, _ in left]
        horizon = planner.ahead(turn * config.replan, config.replan)
        plans = [_left(before, config.replan, horizon) for _, before in left]
        now = [episode.now() for episode, _ in left]
        chosen = planner.decide(config.scene, now, seeds, plans, horizon)
        for (episode, before), decision in zip(left, chosen, strict=True):
            episode.execute(world, decision.controls[: config.replan])
            before.append(decision)
    return found


def _left(before: list[Decision], replan: int, horizon: int) -> Array | None:
    """(H, A) the rest of the latest plan, its last control repeated up to the horizon."""
    left = before[-1].controls[replan:][:horizon] if before else None
    if left is None or not len(left):
        return None
    return np.concatenate([left, np.repeat(left[-1:], horizon - len(left), axis=0)])


def _arrays(work: Work, found: list[tuple[Episode, list[Decision]]]) -> Arrays:
    """Arrays of full length; after its end an episode repeats its last state, with 0 controls."""
    T, R, names = work.config.budget, work.config.rounds, work.planner.names
    states = [_padded(np.stack(e.states), T + 1) for e, _ in found]
    controls = [_padded(np.stack(e.controls), T, 0.0) for e, _ in found]
    each, decided = work.planner.evaluations(), [len(of) for _, of in found]
    counts = [[n * each[name] for name in names] for n in decided]
    return {
        "number": np.array([e.number for e, _ in found], np.int64),
        "goal": np.stack([e.start.goal for e, _ in found]),
        "states": np.stack(states),  # (N, T + 1, S)
        "controls": np.stack(controls).astype(np.float32),  # (N, T, A)
        "cost": _costs(work.config, found),  # (N, T + 1)
        "executed": np.array([len(e.controls) for e, _ in found], np.int64),
        "candidate": _rows(R, [[d.candidate for d in of] for _, of in found]),  # (N, R)
        "opened": _rows(R, [[d.opened for d in of] for _, of in found]) > 0,
        "evaluations": np.array(counts, np.int64).reshape(len(found), len(names)),  # (N, M)
    }


def _costs(config: EpisodeConfig, found: list[tuple[Episode, list[Decision]]]) -> Array:
    return np.stack([_padded(np.array(e.cost), config.budget + 1) for e, _ in found])


def _padded(array: Array, length: int, fill: float | None = None) -> Array:
    """Pad rows up to a length, with the last row or with `fill`."""
    last = array[-1:] if fill is None else np.full_like(array[-1:], fill)
    return np.concatenate([array, np.repeat(last, length - len(array), axis=0)])


def _rows(length: int, rows: list[list[Any]]) -> Array:
    return np.array([[*row, *[-1] * (length - len(row))] for row in rows], np.int64)
