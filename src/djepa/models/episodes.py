"""Training data: episodes simulated as training goes, nothing downloaded.

Worker processes write shards of episodes; the trainer takes up each shard as it appears and keeps
all states on its device, from which frames are drawn inside the training step.

Legend: E episodes, L controls of an episode, S numbers in a state, A action width.
"""

import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save
from torch import Tensor

from djepa.errors import DjepaError
from djepa.files import write_atomically
from djepa.rollout.engine import usable_cores
from djepa.seeds import generator
from djepa.tasks.task import get_task
from djepa.worlds.behaviours import drive

FRAMES = 16  # strides of controls that make an episode
SHARD = 1024  # episodes of a shard


@dataclass(frozen=True)
class Shard:
    """One file of episodes and what its contents follow from."""

    folder: Path
    world: str
    shapes: tuple[str, ...]  # in turn
    seed: int
    number: int

    @property
    def path(self) -> Path:
        """Where it is, or will be."""
        return self.folder / f"episodes-{self.number:05d}.safetensors"

    @property
    def source(self) -> dict[str, str]:
        """What is written into it: the world and all that was drawn."""
        return {"world": self.world, "shapes": " ".join(self.shapes), "seed": str(self.seed)}

    def check(self) -> None:
        """Refuse a file that holds other episodes."""
        with safe_open(self.path, "np") as file:
            there = file.metadata()
        if there and there != self.source:  # those of earlier versions do not say
            raise DjepaError(f"{self.path} holds episodes of {there}, not of {self.source}.")


def plan_shards(
    folder: Path, episodes: int, seed: int, shapes: tuple[str, ...], world: str = "push"
) -> list[Shard]:
    """The shards that hold so many episodes."""
    if SHARD % len(shapes):
        raise DjepaError(f"{len(shapes)} shapes do not share {SHARD} episodes evenly.")
    return [Shard(folder, world, shapes, seed, number) for number in range(-(-episodes // SHARD))]


def length(world: str) -> int:
    """L: controls of an episode."""
    return FRAMES * get_task(world).stride


def simulate(shard: Shard) -> Path:
    """Play the episodes of one shard, unless they are there already."""
    if shard.path.exists():
        shard.check()
        return shard.path
    task, L = get_task(shard.world), length(shard.world)
    worlds = [task.make(shape, task.rules[0]) for shape in shard.shapes]
    states = np.empty((SHARD, L + 1, worlds[0].state_size), np.float32)
    controls = np.empty((SHARD, L, task.actions), np.float32)
    for i in range(SHARD):
        rng = generator("episode", *shard.shapes, shard.seed, shard.number, i)
        world = worlds[i % len(worlds)]
        world.restore(task.initial_state(world, rng))
        states[i], controls[i] = drive(world, task.explorer(world, rng), L)
    write_atomically(shard.path, save({"states": states, "controls": controls}, shard.source))
    return shard.path


class Simulation:
    """Worker processes that play shard after shard."""

    def __init__(self, shards: list[Shard], workers: int = 0) -> None:
        shards[0].folder.mkdir(parents=True, exist_ok=True)
        workers = workers or usable_cores()
        self._pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
        self.futures = [self._pool.submit(simulate, shard) for shard in shards]

    def check(self) -> None:
        """Raise what a worker has raised."""
        for future in self.futures:
            if future.done() and not future.cancelled():
                future.result()

    def close(self, wait: bool = False) -> None:
        """Let the workers go; at the end of a process wait until they are gone."""
        self._pool.shutdown(wait=wait, cancel_futures=True)


class Episodes:
    """All episodes there are so far, on one device; shards are taken up as they appear."""

    def __init__(
        self,
        shards: list[Shard],
        device: torch.device,
        patience: float = 120.0,
        simulation: Simulation | None = None,
    ) -> None:
        self._shards, self._device, self._patience = shards, device, patience
        self._simulation = simulation
        self._states, self._controls = torch.empty(0), torch.empty(0)
        self._taken = 0
        if len(shards) < 2:
            raise DjepaError(f"Ask for more than {SHARD} episodes: the first {SHARD} validate.")

    @property
    def validation(self) -> int:
        """The first so many episodes are never trained on."""
        return SHARD

    @property
    def capacity(self) -> int:
        """Episodes there will be."""
        return len(self._shards) * SHARD

    @property
    def ready(self) -> int:
        """Number of episodes taken up."""
        return self._taken * SHARD

    def refresh(self, least: int = 0) -> int:
        """Take up finished shards in order; wait until `least` episodes are there."""
        since = time.monotonic()
        while self._taken < len(self._shards):
            shard = self._shards[self._taken]
            if shard.path.exists():
                self._take(shard)
            elif self.ready >= least:
                break
            elif time.monotonic() - since > self._patience:
                raise DjepaError(f"No {shard.path} after {self._patience:.0f} s. Who simulates?")
            else:
                if self._simulation is not None:
                    self._simulation.check()
                time.sleep(0.1)
        return self.ready

    def _take(self, shard: Shard) -> None:
        shard.check()
        arrays = load_file(shard.path)
        if not self._taken:  # now it is known how wide they are
            self._states, self._controls = (
                torch.empty((self.capacity, *arrays[name].shape[1:]), device=self._device)
                for name in ("states", "controls")
            )
        rows = slice(self.ready, self.ready + SHARD)
        self._states[rows] = torch.from_numpy(arrays["states"]).to(self._device)
        self._controls[rows] = torch.from_numpy(arrays["controls"]).to(self._device)
        self._taken += 1

    @property
    def states(self) -> Tensor:
        """(E, L + 1, S) states."""
        return self._states[: self.ready]

    @property
    def controls(self) -> Tensor:
        """(E, L, A) controls."""
        return self._controls[: self.ready]
