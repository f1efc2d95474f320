"""Propose, execute and judge the candidates of bimanual starts.

A block of starts is one unit of work; its result depends on the configuration alone. All
candidates of a start are executed from one snapshot. As in RoboTwin, success is judged after every
command, and a candidate succeeds at the first success, whatever follows.

Legend: N starts of the block, K candidates, H commands, P target coordinates.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.artefacts.records import sha256
from djepa.checks import check_int
from djepa.errors import DjepaError
from djepa.seeds import generator
from djepa.worlds import aloha
from djepa.worlds.aloha import AlohaWorld
from djepa.worlds.bimanual.rules import RULES
from djepa.worlds.bimanual.world import BimanualWorld
from djepa.worlds.protocol import Floats

Arrays = dict[str, npt.NDArray[Any]]
World = BimanualWorld | AlohaWorld
Propose = Callable[[Any, Floats], Arrays]  # world, state -> arrays of `Known`, from the start alone


@dataclass(frozen=True)
class BimanualConfig:
    """Everything that the bytes of a bank depend on."""

    split: str
    task: str
    starts: int
    seed: int = 0
    block: int = 4
    policy: str = ""  # hash of the native policy
    world: str = "bimanual"
    rule: str = RULES[0]

    def __post_init__(self) -> None:
        for name, least in {"starts": 1, "seed": 0, "block": 1}.items():
            check_int(name, getattr(self, name), least)

    @property
    def shape(self) -> str:
        """The task, in the form of a folder name."""
        return self.task.replace(" ", "-")

    @property
    def profile(self) -> str:
        """The number of starts, as text."""
        return str(self.starts)

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return -(-self.starts // self.block)

    def members(self, block: int) -> range:
        """Starts of a block."""
        return range(block * self.block, min((block + 1) * self.block, self.starts))


@dataclass(frozen=True)
class BimanualWork:
    """One block to execute."""

    config: BimanualConfig
    block: int
    propose: Propose


@lru_cache(maxsize=6)
def world_of(task: str) -> World:
    """The world of a task, made once per process."""
    return AlohaWorld(task) if task in aloha.TASKS else BimanualWorld(task)


def start_of(config: BimanualConfig, number: int) -> Floats:
    """(S,) the start of that number."""
    key = (config.world, config.split, config.task, config.seed, number)
    return world_of(config.task).initial_state(generator(*key))


def run_bimanual(work: BimanualWork) -> dict[str, Arrays]:
    """Arrays of one block by kind: known before execution, and outcomes."""
    config = work.config
    rows = []
    for number in config.members(work.block):
        world, state = world_of(config.task), start_of(config, number)
        known = work.propose(world, state)
        identity = bytes.fromhex(sha256(config.task.encode() + state.tobytes()))
        decision = {
            "number": np.array(number),
            "identity": np.frombuffer(identity, np.uint8),
            "state": state,
            **known,
        }
        rows.append({"decision": decision, "outcome": outcomes(world, state, known["commands"])})
    return {
        kind: {name: np.stack([row[kind][name] for row in rows]) for name in rows[0][kind]}
        for kind in ("decision", "outcome")
    }


def outcomes(world: World, state: Floats, commands: npt.NDArray[np.float32]) -> Arrays:
    """(K, H, 14) commands -> success, least task cost, first success, executed length, error (K,).

    A candidate whose physics cannot be executed counts as a failure with the cost of the start.
    """
    goal = world.goal(state)
    states, error = attempt(world, state, commands)
    success, cost = world.judge(goal, states[:, 1:])
    success &= ~error[:, None]
    first = np.where(success.any(1), success.argmax(1) + 1, 0)
    return {
        "success": success.any(1),
        "cost": cost.min(1),
        "first": first,  # number of the command after which the task is solved; 0: never
        "length": np.where(first > 0, first, commands.shape[1]),
        "error": error,
    }


def attempt(
    world: World, state: Floats, commands: npt.NDArray[np.float32]
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """(K, H, 14) commands -> states (K, H + 1, S), and (K,) whether the physics failed.

    A candidate whose physics fails does not affect the others: its states are all the start.
    """
    given = commands.astype(np.float64)
    K, H, _ = given.shape
    try:
        return world.execute(state, given), np.zeros(K, bool)
    except DjepaError:
        states, error = np.tile(state, (K, H + 1, 1)), np.zeros(K, bool)
    for k in range(K):
        try:
            states[k] = world.execute(state, given[k : k + 1])[0]
        except DjepaError:
            error[k] = True
    return states, error
