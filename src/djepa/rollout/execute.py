"""Draw starts, propose candidates, execute every candidate of every start, record the outcomes.

One block of starts is one unit of work. Its result depends on the configuration and the start
numbers alone.  Legend: N starts of the block, K candidates, H horizon, A action width, C centres,
B recorded states per candidate (one every stride of controls).
"""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

import djepa
from djepa.errors import DjepaError, check_name
from djepa.pools import REFERENCE, Pool
from djepa.pools.control import DECOY, PoolSpec
from djepa.seeds import generator, seed_for
from djepa.tasks.task import Scene, Task, get_task
from djepa.worlds.protocol import World
from djepa.worlds.starts import Start, replays

Array = npt.NDArray[Any]
MIXED = "mixed"
MAX_DRAWS = 1000  # draws for one start before giving up


@dataclass(frozen=True)
class CollectConfig:
    """Everything that the recorded bytes depend on. Empty fields take the world's default."""

    world: str = "push"
    shape: str = ""
    rule: str = ""
    behaviour: str = MIXED
    profile: str = ""
    split: str = "fit"
    starts: int = 512
    seed: int = 0
    horizon: int = 0
    block: int = 16
    # the decoy profile alone
    candidates: int = 64
    centres: int = 4
    shuffles: int = 3

    def __post_init__(self) -> None:
        task = self.task
        own = {"shape": task.shapes[0], "rule": task.rules[0], "profile": task.profiles[0]}
        for name, value in {**own, "horizon": task.horizon}.items():
            object.__setattr__(self, name, getattr(self, name) or value)
        for name in ("starts", "block", "horizon", "candidates", "centres", "shuffles", "seed"):
            if type(getattr(self, name)) is not int:
                raise DjepaError(f"{name} must be a whole number, got {getattr(self, name)!r}.")
        for name in ("starts", "block", "horizon"):
            if getattr(self, name) < 1:
                raise DjepaError(f"{name} must be at least 1, got {getattr(self, name)}.")
        for name in ("candidates", "centres", "shuffles"):
            if getattr(self, name) < 0:
                raise DjepaError(f"{name} must be 0 or more, got {getattr(self, name)}.")
        if self.seed < 0:
            raise DjepaError(f"The seed must be 0 or more, got {self.seed}.")
        if not self.split:
            raise DjepaError("The split needs a name, such as fit.")
        for what, known in (("shape", task.shapes), ("rule", task.rules)):
            check_name(what, getattr(self, what), known)
        check_name("behaviour", self.behaviour, (*task.behaviours, MIXED))
        self._check_pool()

    def _check_pool(self) -> None:
        if self.horizon % (stride := self.task.stride):
            raise DjepaError(
                f"The horizon must be a multiple of {stride} controls, got {self.horizon}."
            )
        each = -(-self.candidates // max(1, self.centres))
        if self.profile == DECOY and not (2 <= self.centres <= 16 and 0 <= self.shuffles < each):
            raise DjepaError(
                f"A decoy pool needs 2 to 16 centres and fewer shuffles than candidates a centre; "
                f"got {self.centres} centres, {self.shuffles} shuffles, {each} candidates each."
            )

    @property
    def task(self) -> Task:
        """The task record of the world."""
        return get_task(self.world)

    def make_world(self) -> World:
        """The world, with this shape and rule."""
        world: World = self.task.make(self.shape, self.rule)
        return world

    def searches(self) -> bool:
        """Whether candidates come from a search rather than from one of the world's profiles."""
        return self.profile not in self.task.profiles

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return -(-self.starts // self.block)

    def members(self, block: int) -> range:
        """Start numbers of a block."""
        return range(block * self.block, min((block + 1) * self.block, self.starts))


class Proposer(Protocol):
    """Chooses the candidates that are executed: it searches for them, or retains some of those
    that the world's profile drew.

    It sees starts, but neither a reference nor an outcome. With `portable = True` it runs in the
    worker that executes the block: it must be picklable, and its pools must not depend on the
    process. Otherwise it runs in the driver.
    """

    name: str  # the profile it belongs to: one of its own, or one of the world's
    settings: Mapping[str, Any]  # what its pools depend on; kept in the manifest

    def propose(
        self, scene: Scene, starts: list[Start], seeds: list[int], drawn: Sequence[Pool]
    ) -> list[Pool]:
        """One pool per start, all of the same size; `seeds` fix the draws.

        `drawn` are the pools of the world's profile, the reference removed; it is empty where the
        profile is the proposer's own.
        """


@dataclass(frozen=True)
class BlockWork:
    """One block to execute.

    `pools` are given if candidates are already proposed; else the `proposer` proposes them.
    """

    config: CollectConfig
    block: int
    versions: Mapping[str, str] = field(default_factory=dict)  # the driver's, if known
    pools: tuple[Pool, ...] | None = None
    proposer: Proposer | None = None


@dataclass(frozen=True)
class Block:
    """What one block recorded: three groups of arrays that are kept apart on disk."""

    decision: dict[str, Array]
    outcome: dict[str, Array]
    provenance: dict[str, Array]
    drops: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Drawn:
    """A kept start, how it was made, and what was dropped before it."""

    start: Start
    centres: Array  # (C, H, A), the reference first
    behaviour: str
    pool: Pool | None  # of the world's profile, with the reference; None if a search proposes
    drops: dict[str, int]


def run_block(work: BlockWork) -> Block:
    """Draw, propose and execute one block."""
    config = work.config
    here = versions(config.world)
    if work.versions and work.versions != here:
        raise DjepaError(
            f"This worker has {here}, the driver {dict(work.versions)}. "
            "Install the same versions on every machine."
        )
    world, task = config.make_world(), config.task
    drawn = draw_block(work)
    if work.proposer is not None:
        work = replace(work, pools=propose(work, work.proposer, drawn))
    given = work.pools or [entry.pool for entry in drawn]
    pools = [pool.without(REFERENCE) for pool in given if pool is not None]
    rows = [_execute(world, d.start, p, task.stride) for d, p in zip(drawn, pools, strict=True)]
    return Block(
        decision=_decision(world, config, work.block, drawn, pools),
        outcome={name: np.stack([row[name] for row in rows]) for name in rows[0]},
        provenance=_provenance(task, drawn, pools),
        drops={why: sum(entry.drops[why] for entry in drawn) for why in task.drops},
    )


def draw_block(work: BlockWork) -> list[Drawn]:
    """The starts of a block, with the pools of the world's profile."""
    return [_draw(work.config, index) for index in work.config.members(work.block)]


def propose(work: BlockWork, proposer: Proposer, drawn: list[Drawn]) -> tuple[Pool, ...]:
    """The proposer's pool for every start of a block."""
    starts, seeds = [entry.start for entry in drawn], pool_seeds(work.config, work.block)
    pools = [entry.pool.without(REFERENCE) for entry in drawn if entry.pool is not None]
    scene = Scene(work.config.world, work.config.shape)
    return tuple(proposer.propose(scene, starts, seeds, pools))


def pool_seeds(config: CollectConfig, block: int) -> list[int]:
    """The pool seed of every start of a block."""
    return [seed_for(*_key(config), index, "pool") for index in config.members(block)]


def _key(config: CollectConfig) -> tuple[str | int, ...]:
    # Not the profile: the same seed gives the same starts under every profile that keeps them.
    return (config.world, config.shape, config.behaviour, config.horizon, config.seed, config.split)


def _draw(config: CollectConfig, index: int) -> Drawn:
    """Draw until a start passes every filter."""
    world, task = config.make_world(), config.task
    drops = dict.fromkeys(task.drops, 0)
    centres = config.centres if config.profile == DECOY else 1
    for attempt in range(MAX_DRAWS):
        rng = generator(*_key(config), index, "start", attempt)
        names = sorted(task.behaviours)
        behaviour = config.behaviour
        if behaviour == MIXED:
            behaviour = names[int(rng.integers(len(names)))]
        found = task.draw_start(world, behaviour, rng, config.horizon, centres)
        if isinstance(found, str):
            check_name(f"drop of '{config.world}'", found, drops)
            drops[found] += 1
            continue
        start, segments = found
        seed = seed_for(*_key(config), index, "pool")
        pool = None if config.searches() else task.pool(world, start, segments, _spec(config, seed))
        stored = segments[0] if pool is None else _reference(pool, segments)
        if not replays(world, start, stored):
            drops["replay"] += 1
            continue
        return Drawn(start, segments, behaviour, pool, drops)
    dropped = ", ".join(f"{why} {n}" for why, n in drops.items() if n)
    raise DjepaError(
        f"No start passed the filters in {MAX_DRAWS} draws (dropped: {dropped}). "
        "Try a shorter --horizon or fewer --centres."
    )


def _spec(config: CollectConfig, seed: int) -> PoolSpec:
    return PoolSpec(config.profile, config.horizon, config.candidates, config.shuffles, seed)


def _reference(pool: Pool, segments: Array) -> Array:
    """The reference in the precision in which the pool stores it."""
    if REFERENCE in pool.families:
        return np.asarray(pool.actions[pool.families.index(REFERENCE)])
    return np.asarray(segments[0].astype(pool.actions.dtype))


def _execute(world: World, start: Start, pool: Pool, stride: int) -> dict[str, Array]:
    states = world.execute(start.state, pool.actions)
    success, cost = world.judge(start.goal, states[:, -1])
    return {
        "success": success,
        "cost": cost,
        "observed": np.ones(len(pool), dtype=np.bool_),
        "states": states[:, stride::stride],
    }


def _decision(
    world: World, config: CollectConfig, block: int, drawn: list[Drawn], pools: list[Pool]
) -> dict[str, Array]:
    starts = [entry.start for entry in drawn]
    return {
        "start_ids": np.array(config.members(block), dtype=np.int64),
        "identities": np.stack([np.frombuffer(s.identity(world), np.uint8) for s in starts]),
        "state": np.stack([s.state for s in starts]),
        "goal": np.stack([s.goal for s in starts]),
        "context": np.stack([s.context for s in starts]),
        "history": np.stack([s.history for s in starts]),
        "candidate_ids": np.stack([p.ids for p in pools]),
        "actions": np.stack([p.actions for p in pools]),
        "action_hashes": np.stack([_hash_bytes(p) for p in pools]),
    }


def _provenance(task: Task, drawn: list[Drawn], pools: list[Pool]) -> dict[str, Array]:
    """How candidates were made. This reveals the solution, so a decision must not see it."""
    behaviours = sorted(task.behaviours)
    costs = [pool.costs for pool in pools if pool.costs is not None]
    return ({"native_cost": np.stack(costs)} if costs else {}) | {
        "centres": np.stack([entry.centres for entry in drawn]),
        "behaviour": np.array([behaviours.index(entry.behaviour) for entry in drawn], np.int64),
        "family": np.stack([_text(pool.families) for pool in pools]),
        "centre_of": np.stack([pool.centres for pool in pools]),
        "pool_seed": np.array([pool.seed for pool in pools], dtype=np.int64),
        "draws": np.array([1 + sum(entry.drops.values()) for entry in drawn], dtype=np.int64),
    }


def _hash_bytes(pool: Pool) -> Array:
    """(K, 32) the SHA-256 of every sequence."""
    return np.frombuffer(bytes.fromhex("".join(pool.hashes())), np.uint8).reshape(-1, 32)


def versions(world: str) -> dict[str, str]:
    """What the recorded numbers depend on beside the configuration."""
    task = get_task(world)
    return {
        "djepa": djepa.__version__,
        "world": f"{task.name}.{task.version}",
        **{package: metadata.version(package) for package in task.engines},
        "numpy": np.__version__,
        "machine": platform.machine(),
    }


def _text(words: tuple[str, ...], width: int = 24) -> Array:
    """(K, 24) names as zero-padded bytes: a bank holds arrays only."""
    for word in words:
        if len(word.encode()) > width:
            raise DjepaError(f"The family name '{word}' is longer than {width} bytes.")
    return np.stack([np.frombuffer(w.encode().ljust(width, b"\0"), np.uint8) for w in words])
