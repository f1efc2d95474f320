"""Supervision from closed loop: states at which a planner decided become fitting starts.

At every decision of finished episodes the same search is repeated, and all its final candidates are
executed from the state of that time. So an alignment can be fitted on the distribution of its
planner: states off the recorded path, and candidates with a shorter horizon.

FOLDER/
  manifest.json            of which episodes, by hash; the planner that searched
  pools/BLOCK.safetensors  evidence and outcomes of the decisions of a block of episodes

Legend: N decisions, K candidates, M geometries, D latent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from djepa.align.methods import Population
from djepa.align.outcomes import Outcomes
from djepa.artefacts.folder import Arrays, Folder, encode, load_arrays, stacked
from djepa.artefacts.layout import Layout, check_blocks, check_layout
from djepa.artefacts.records import Kind
from djepa.artefacts.write import Writer
from djepa.control.episodes import EpisodeConfig, draw_episodes
from djepa.control.planners import COST, ENDS, GOAL, Planner
from djepa.control.results import Episodes
from djepa.errors import DjepaError, check_name
from djepa.evidence.evidence import Evidence
from djepa.rollout.engine import Engine
from djepa.seeds import seed_for

Array = npt.NDArray[Any]


class SearchedBy(msgspec.Struct, frozen=True):
    """The settings of a planner; only the weights of its geometries are read."""

    weights: dict[str, str]  # geometry -> hash


class VisitedRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the manifest says about visited pools."""

    planner: SearchedBy


VISITED = Kind(
    "set of visited pools",
    "djepa-visited",
    1,
    VisitedRecord,
    shards=r"pools/\d{6}\.safetensors",
    again="Remove it, and the episodes are visited again.",
)
SHARD = "pools/{:06d}.safetensors"  # the file of a block
LAYOUT: Layout = {
    "episode": ("int64", "N"),
    "turn": ("int64", "N"),
    "ids": ("int64", "N K"),
    "success": ("bool", "N K"),
    "cost": ("float64", "N K"),
}


@dataclass(frozen=True)
class Visit:
    """One block of finished episodes."""

    config: EpisodeConfig
    planner: Planner
    block: int
    controls: Array  # (n, T, A) executed
    executed: Array  # (n,)


def visit(path: Path, episodes: Episodes, planner: Planner, engine: Engine) -> Path:
    """Search and execute at every decision of episodes; resumes a partial folder."""
    config, arrays = episodes.config, episodes.arrays
    writer = Writer(path, VISITED, {"planner": planner.settings}, {"episodes": episodes.hash})
    with writer.opened():
        done = {int(name[6:12]) for name in writer.files}
        members = {b: list(config.starts().members(b)) for b in range(config.starts().blocks)}
        items = (
            (b, Visit(config, planner, b, arrays["controls"][rows], arrays["executed"][rows]))
            for b, rows in members.items()
            if b not in done
        )
        for block, found in engine.map(visit_block, items, device=planner.device):
            writer.write({SHARD.format(block): encode(found)})
        writer.finish()
    return path


def visit_block(work: Visit) -> Arrays:
    """Evidence and outcomes of every decision; the episodes are executed again."""
    config, planner = work.config, work.planner
    world, episodes = config.starts().make_world(), draw_episodes(config, work.block)
    rows = list[Arrays]()
    for turn in range(config.rounds):
        begin = turn * config.replan
        left = [i for i in range(len(episodes)) if begin < work.executed[i]]
        now = [episodes[i].now() for i in left]
        seeds = [seed_for("visited", episodes[i].name, turn) for i in left]
        found = planner.pools(config.scene, now, seeds, planner.ahead(begin, config.replan))
        for i, start, (actions, evidence) in zip(left, now, found, strict=True):
            states = world.execute(start.state, actions)
            success, cost = world.judge(start.goal, states[:, -1])
            about = {"episode": np.array(episodes[i].number), "turn": np.array(turn)}
            rows.append({**about, **evidence, "success": success, "cost": cost})
            episodes[i].execute(world, work.controls[i, begin : begin + config.replan])
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def read_visited(path: Path, episodes: Episodes, part: range, names: Sequence[str]) -> Population:
    """Decisions of some episodes, by number, as starts to fit on; evidence of these geometries."""
    folder = Folder(path, VISITED)
    folder.belongs("episodes", episodes.hash)
    weights = folder.about.planner.weights
    blocks = range(episodes.config.starts().blocks)
    check_blocks(folder, [SHARD], len(blocks))
    parts = [_pools(folder, episodes, block) for block in blocks]
    arrays = stacked(folder.path, parts, sum(len(part["turn"]) for part in parts))
    for name in names:
        check_name(f"geometry in {folder.path}:", name, _costed(weights, arrays))
    at = np.isin(arrays["episode"], np.array(part))
    arrays = {name: of[at] for name, of in arrays.items()}
    numbers = zip(arrays["episode"].tolist(), arrays["turn"].tolist(), strict=True)
    evidence = Evidence.from_arrays(
        start_ids=[f"{episodes.names[n]}@{turn}" for n, turn in numbers],  # one start, often
        candidate_ids=arrays["ids"],
        costs={n: arrays[COST + n] for n in names},
        latents={n: arrays[ENDS + n] for n in names if ENDS + n in arrays},
        goals={n: arrays[GOAL + n] for n in names if GOAL + n in arrays},
    )
    outcomes = Outcomes.from_arrays(evidence, arrays["success"], cost=arrays["cost"])
    return Population(replace(evidence, weights={n: weights[n] for n in names}), outcomes)


def _pools(folder: Folder, episodes: Episodes, block: int) -> Arrays:
    """Arrays of a block, checked to hold exactly the decisions of its episodes."""
    name = SHARD.format(block)
    path, weights = folder.path / name, folder.about.planner.weights
    arrays, (episode, turn) = load_arrays(path, folder.read(name)), _decided(episodes, block)
    layout = dict(LAYOUT)
    for number, of in enumerate(_costed(weights, arrays)):
        layout[COST + of] = ("float64", "N K")
        if ENDS + of in arrays:  # geometries whose directions the alignment uses
            layout[ENDS + of] = ("float16", f"N K D{number}")
            layout[GOAL + of] = ("float16", f"N D{number}")
    check_layout(path, arrays, layout, {"N": len(turn)}, VISITED.again)
    if not (np.array_equal(arrays["episode"], episode) and np.array_equal(arrays["turn"], turn)):
        raise DjepaError(f"{path} does not hold the decisions of its episodes. {VISITED.again}")
    return arrays


def _costed(weights: dict[str, str], arrays: Arrays) -> list[str]:
    """Geometries of the planner that the alignment reads."""
    return [name for name in weights if COST + name in arrays]


def _decided(episodes: Episodes, block: int) -> tuple[Array, Array]:
    """Episode and turn of the decisions of a block, in the order in which they are visited."""
    config, members = episodes.config, np.array(episodes.config.starts().members(block))
    begins = np.arange(config.rounds) * config.replan
    turn, row = np.nonzero(begins[:, None] < episodes.arrays["executed"][members])
    return members[row], turn
