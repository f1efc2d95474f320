"""Episodes: a start, a goal some controls away, and a seed, which are the same for all planners.

An `EpisodeConfig` determines an episode list. Lists for reported results are frozen: the names of
their episodes, each a hash of start and goal, are stored in frozen/.

Legend: N episodes, T controls executed, S numbers in a state, A action width.
"""

from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.artefacts.records import sha256
from djepa.checks import check_int
from djepa.errors import DjepaError
from djepa.models.planner_pool import PLANNER
from djepa.rollout.execute import BlockWork, CollectConfig, draw_block
from djepa.tasks.task import Scene, get_task
from djepa.worlds.protocol import World
from djepa.worlds.starts import Start

Array = npt.NDArray[Any]
SPLIT = "control"  # of the frozen lists; tune on others
MODERATE, STRICT = "moderate", "strict"
STRICTER = {"granular": 2 / 3}  # cost below which the strict rule holds; elsewhere 1/2
LETTERS = 16  # of an episode's name that a frozen list keeps


@dataclass(frozen=True)
class EpisodeConfig:
    """What episodes depend on beside the planner. 0 or empty takes the world's default."""

    world: str = "push"
    shape: str = ""
    rule: str = ""
    split: str = SPLIT
    seed: int = 0
    episodes: int = 16
    goal: int = 0  # controls from the start to the goal
    budget: int = 0  # controls until an episode ends; by default twice `goal`
    replan: int = 0  # controls executed before the next decision
    block: int = 4  # episodes per unit of work

    def __post_init__(self) -> None:
        task = get_task(self.world)
        for name in ("goal", "budget", "replan"):
            check_int(f"The {name}", getattr(self, name), 0)
        goal = self.goal or task.horizon
        own = {"shape": task.shapes[0], "rule": task.rules[0], "goal": goal}
        own |= {"budget": 2 * goal, "replan": task.stride}
        for name, value in own.items():
            object.__setattr__(self, name, getattr(self, name) or value)
        check_int("episodes", self.episodes, 1)
        for name in ("goal", "replan"):
            if getattr(self, name) % task.stride:
                raise DjepaError(
                    f"The {name} must be a multiple of {task.stride} controls, which lie between "
                    f"two frames of {self.world}, got {getattr(self, name)}."
                )
        if self.budget % self.replan:
            raise DjepaError(
                f"The budget must be a multiple of replan ({self.replan} controls), "
                f"got {self.budget}."
            )
        self.starts()  # checks the other fields

    def starts(self) -> CollectConfig:
        """How starts and goals are drawn: the goal is the end of a hidden reference."""
        return CollectConfig(
            self.world,
            self.shape,
            self.rule,
            profile=PLANNER,
            split=f"{self.split}-{self.goal}",
            starts=self.episodes,
            seed=self.seed,
            horizon=self.goal,
            block=self.block,
        )

    @property
    def scene(self) -> Scene:
        """The world and look that geometries see."""
        return Scene(self.world, self.shape)

    @property
    def rounds(self) -> int:
        """Number of decisions of a full episode."""
        return self.budget // self.replan

    @property
    def thresholds(self) -> dict[str, float]:
        """Success rule -> the task cost below which it holds; the first is the world's own."""
        return {MODERATE: 1.0, STRICT: STRICTER.get(self.world, 0.5)}


class Episode:
    """An episode in progress. `states` (T + 1, S) and `cost` (T + 1,) begin with the start."""

    def __init__(self, number: int, start: Start, world: World, config: EpisodeConfig) -> None:
        self.number, self.start, self.config = number, start, config
        self.name = start.identity(world).hex()
        self.states, self.controls = [start.state], list[Array]()
        self.cost = [float(world.judge(start.goal, start.state)[1])]
        self.stride = config.starts().task.stride
        self.frames = list(start.context)  # a stride apart

    def afresh(self) -> "Episode":
        """The same episode from its start."""
        return Episode(self.number, self.start, self.config.starts().make_world(), self.config)

    @property
    def done(self) -> bool:
        """Whether the strict rule holds or the budget is spent."""
        solved = self.cost[-1] < self.config.thresholds[STRICT]
        return solved or len(self.controls) >= self.config.budget

    def now(self) -> Start:
        """The present state, context and history, as input of a decision."""
        history = np.concatenate([self.start.history, *(c[None] for c in self.controls)])
        context = np.stack(self.frames[-len(self.start.context) :])
        recent = history[-len(self.start.history) :].astype(self.start.history.dtype)
        return Start(self.states[-1], self.start.goal, context, recent)

    def execute(self, world: World, controls: Array) -> None:
        """Execute (R, A) controls from the restored state; stop when the strict rule holds."""
        path = world.execute(self.states[-1], controls[None])[0]
        _, cost = world.judge(self.start.goal, path)
        for step in range(1, len(path)):
            self.states.append(path[step])
            self.controls.append(controls[step - 1])
            self.cost.append(float(cost[step]))
            if len(self.controls) % self.stride == 0:
                self.frames.append(path[step])
            if self.done:
                return


def draw_episodes(config: EpisodeConfig, block: int) -> list[Episode]:
    """The episodes of one block; an episode does not depend on its block."""
    starts = config.starts()
    world, numbers = starts.make_world(), starts.members(block)
    drawn = draw_block(BlockWork(starts, block))
    return [Episode(n, d.start, world, config) for n, d in zip(numbers, drawn, strict=True)]


def list_hash(names: list[str]) -> str:
    """SHA-256 of an episode list: of the names of its episodes in order, one per line."""
    return sha256("".join(f"{name}\n" for name in names).encode())


def frozen_names(config: EpisodeConfig) -> list[str]:
    """Prefixes of the names of the frozen list; empty if there is none for this configuration."""
    if config.split != SPLIT or config.seed != 0:
        return []
    stem = f"{config.world}-{config.shape}-{config.goal}"
    file = files("djepa.control") / "frozen" / f"{stem}.txt"
    return file.read_text().split() if file.is_file() else []


def is_frozen(config: EpisodeConfig, names: list[str]) -> bool:
    """Whether these are the first episodes of the frozen list, to the last bit."""
    known = frozen_names(config)
    return len(names) <= len(known) and known[: len(names)] == [name[:LETTERS] for name in names]
