"""Supervision from closed loop: moments at which a planner decided become starts to learn from.

At every decision of finished episodes the same search is made again, and all candidates that it
leaves are executed from that moment's state. So an alignment can be fitted on what its planner
meets: states off the recorded way, and candidates that have only the rest of the horizon left.

FOLDER/
  manifest.json            of which episodes, by hash; the planner that searched
  pools/BLOCK.safetensors  evidence and outcomes of the decisions of a block of episodes

Legend: N decisions, K candidates, M geometries, D latent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.align.methods import Population
from djepa.align.outcomes import Outcomes
from djepa.artefacts.folder import Arrays, Folder, encode, load_arrays
from djepa.artefacts.records import Kind
from djepa.artefacts.write import Writer
from djepa.control.episodes import EpisodeConfig, draw_episodes
from djepa.control.planners import COST, ENDS, GOAL, Planner
from djepa.control.results import Episodes
from djepa.evidence.evidence import Evidence
from djepa.rollout.engine import Engine
from djepa.seeds import seed_for

Array = npt.NDArray[Any]
VISITED = Kind("set of visited pools", "djepa-visited", 1, shards=r"pools/\d{6}\.safetensors")


@dataclass(frozen=True)
class Visit:
    """A block of episodes that were run."""

    config: EpisodeConfig
    planner: Planner
    block: int
    controls: Array  # (n, T, A) executed
    executed: Array  # (n,)


def visit(path: Path, episodes: Episodes, planner: Planner, engine: Engine) -> Path:
    """Search and execute at every decision of episodes into a folder, or finish what is there."""
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
            writer.write({f"pools/{block:06d}.safetensors": encode(found)})
        writer.finish()
    return path


def visit_block(work: Visit) -> Arrays:
    """Evidence and outcomes of every decision; the episodes are executed again on the way."""
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
    files = sorted(folder.manifest.files)
    loaded = [load_arrays(folder.path / name, folder.read(name)) for name in files]
    arrays = {name: np.concatenate([of[name] for of in loaded]) for name in loaded[0]}
    at = np.isin(arrays["episode"], np.array(part))
    arrays = {name: of[at] for name, of in arrays.items()}
    numbers = zip(arrays["episode"].tolist(), arrays["turn"].tolist(), strict=True)
    evidence = Evidence.from_arrays(
        start_ids=[f"{episodes.names[n]}-{turn}" for n, turn in numbers],
        candidate_ids=arrays["ids"],
        costs={n: arrays[COST + n] for n in names},
        latents={n: arrays[ENDS + n] for n in names if ENDS + n in arrays},
        goals={n: arrays[GOAL + n] for n in names if GOAL + n in arrays},
    )
    weights = {n: of for n, of in folder.about["planner"]["weights"].items() if n in names}
    outcomes = Outcomes.from_arrays(evidence, arrays["success"], cost=arrays["cost"])
    return Population(replace(evidence, weights=weights), outcomes)
