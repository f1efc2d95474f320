"""Training data: episodes simulated during training, nothing downloaded.

Workers of an engine simulate shards of episodes. The trainer loads each shard when it appears and
keeps all states on its device; frames are rendered from them inside the training step.

Legend: E episodes, L controls of an episode, S numbers in a state, A action width.
"""

import re
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from djepa.artefacts.folder import Arrays, open_shard, seal_shard, shard_record
from djepa.artefacts.layout import check_layout
from djepa.artefacts.lock import locked
from djepa.errors import DjepaError
from djepa.files import TEMPORARY, naming, write_atomically
from djepa.rollout.engine import Engine
from djepa.seeds import generator
from djepa.tasks.task import get_task
from djepa.worlds.behaviours import drive

FORMAT, VERSION = "djepa-episodes", 2
NAME = re.compile(r"episodes-\d{5,}\.safetensors")
SETTINGS = ("format", "version", "world", "shapes", "seed")  # that all shards of a folder share
FRAMES = 16  # strides of controls that make an episode
SHARD = 1024  # episodes of a shard
Report = Callable[[int, int], None]
SPREADS = (0.05, 0.15, 0.3)  # of the noise on perturbed controls, as in pools


@dataclass(frozen=True)
class Shard:
    """One file of episodes, and the settings that determine its contents."""

    folder: Path
    world: str
    shapes: tuple[str, ...]  # in turn
    seed: int
    number: int
    perturbed: bool = False  # controls disturbed by noise and executed again

    @property
    def path(self) -> Path:
        """The path of the file, written or not."""
        return self.folder / f"episodes-{self.number:05d}.safetensors"

    @property
    def record(self) -> dict[str, Any]:
        """The record stored in the file: the world and all settings."""
        drawn = {"shapes": [*self.shapes], "seed": self.seed, "number": self.number}
        drawn |= {"perturbed": True} if self.perturbed else {}
        return {"format": FORMAT, "version": VERSION, "world": self.world, **drawn}

    def read(self) -> Arrays:
        """Read states and controls, checked against this record."""
        arrays = open_shard(self.path, self.record)
        L, A = length(self.world), get_task(self.world).actions
        layout = {  # a world could say what S is, but making one takes long
            "states": ("float32", f"{SHARD} {L + 1} S"),
            "controls": ("float32", f"{SHARD} {L} {A}"),
        }
        check_layout(self.path, arrays, layout, again="Remove it, and it is made again.")
        return arrays


def plan_shards(
    folder: Path,
    episodes: int,
    seed: int,
    shapes: tuple[str, ...],
    world: str = "push",
    perturbed: float = 0.0,
) -> list[Shard]:
    """The shards that hold so many episodes; that share of them, evenly spread, is perturbed."""
    if episodes < 1 or seed < 0:
        raise DjepaError(f"Ask for one episode or more, and a seed of 0 or more, not {episodes}.")
    if SHARD % len(shapes):
        raise DjepaError(f"{len(shapes)} shapes do not share {SHARD} episodes evenly.")
    return [
        Shard(folder, world, shapes, seed, n, int((n + 1) * perturbed) > int(n * perturbed))
        for n in range(-(-episodes // SHARD))
    ]


def length(world: str) -> int:
    """L: controls of an episode."""
    return FRAMES * get_task(world).stride


def claim_shards(shards: list[Shard]) -> None:
    """Make the shards' folders; raise, before any long work, if one holds other files."""
    for shard in {shard.folder: shard for shard in shards}.values():
        with naming(shard.folder):
            shard.folder.mkdir(parents=True, exist_ok=True)
            for file in sorted(shard.folder.iterdir()):
                _refuse_stranger(file, shard)


def _refuse_stranger(file: Path, shard: Shard) -> None:
    """Only shards of the same settings lie beside a shard, and what a kill leaves of them."""
    name = file.name.removesuffix(TEMPORARY)
    if file.name.startswith("."):  # the lock, or what a file manager leaves
        return
    if not NAME.fullmatch(name):
        raise DjepaError(
            f"{shard.folder} is not empty and not a folder of episodes (it holds {file.name}). "
            "Nothing was changed; choose another --out."
        )
    if file.name == name:
        theirs, ours = shard_record(file), shard.record
        odd = [key for key in SETTINGS if theirs.get(key) != ours[key]]
        if odd:
            raise DjepaError(
                f"{file} holds {theirs}: another {', '.join(odd)} than {ours}. "
                "Nothing was changed; choose another --out."
            )


def simulating(shards: list[Shard], engine: Engine) -> Generator[Shard, None, None]:
    """Simulate the shards that are not there yet; each is yielded once it is written.

    Workers continue with the next ones while the caller does something else. The folder is locked
    until the last one is written or the generator is closed.
    """
    claim_shards(shards)
    with ExitStack() as locks:
        for folder in sorted({shard.folder for shard in shards if not shard.path.exists()}):
            locks.enter_context(locked(folder))
        left = [(n, shard) for n, shard in enumerate(shards) if not shard.path.exists()]
        for done, (n, data) in enumerate(engine.map(play, left), 1):
            write_atomically(shards[n].path, data)
            if done == len(left):
                locks.close()
            yield shards[n]


def simulate_all(shards: list[Shard], engine: Engine, report: Report) -> None:
    """All shards that are not there yet; damaged ones, or those of other settings, are named."""
    claim_shards(shards)
    there = [shard for shard in shards if shard.path.exists()]
    for shard in there:
        shard.read()
    report(len(there), len(shards))
    with closing(simulating(shards, engine)) as made:
        for done, _ in enumerate(made, len(there) + 1):
            report(done, len(shards))


def play(shard: Shard) -> bytes:
    """The file of one shard."""
    task, L = get_task(shard.world), length(shard.world)
    worlds = [task.make(shape, task.rules[0]) for shape in shard.shapes]
    if task.validating is not None and shard.number == 0:  # the first shard validates
        worlds = [task.validating(world) for world in worlds]
    states = np.empty((SHARD, L + 1, worlds[0].state_size), np.float32)
    controls = np.empty((SHARD, L, task.actions), np.float32)
    for i in range(SHARD):
        rng = generator("episode", *shard.shapes, shard.seed, shard.number, i)
        world = worlds[i % len(worlds)]
        world.restore(task.initial_state(world, rng))
        states[i], controls[i] = drive(world, task.explorer(world, rng), L)
        if shard.perturbed:
            controls[i] = perturb(controls[i], rng)
            states[i] = world.execute(states[i, 0], controls[i][None])[0]
    arrays = {"states": states, "controls": controls}
    return seal_shard(shard.path, arrays, shard.record)


def perturb(controls: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(L, A) controls with normal noise of one of the spreads, within the bounds of controls."""
    bound = max(1.0, float(np.abs(controls).max()))
    return np.clip(controls + rng.normal(0.0, rng.choice(SPREADS), controls.shape), -bound, bound)


class Episodes:
    """All episodes loaded so far, on one device; shards are loaded as they appear."""

    def __init__(
        self,
        shards: list[Shard],
        device: torch.device,
        patience: float = 900.0,
        simulation: Iterable[Shard] = (),
    ) -> None:
        self._shards, self.device, self._patience = shards, device, patience
        self._simulation = iter(simulation)
        self._states, self._controls = torch.empty(0), torch.empty(0)
        self._taken = 0
        if len(shards) < 2:
            raise DjepaError(f"Ask for more than {SHARD} episodes: the first {SHARD} validate.")

    @property
    def validation(self) -> int:
        """Number of first episodes that are held out for validation."""
        return SHARD

    @property
    def capacity(self) -> int:
        """Number of episodes when all shards are written."""
        return len(self._shards) * SHARD

    @property
    def ready(self) -> int:
        """Number of loaded episodes."""
        return self._taken * SHARD

    def take(self, episodes: int) -> None:
        """Load shards in order until `episodes` are loaded; wait for missing ones.

        Never more, so that the data of a training step depend on its number and not on time.
        """
        since = time.monotonic()
        while self.ready < episodes:
            shard = self._shards[self._taken]
            if shard.path.exists():
                self._take(shard)
                since = time.monotonic()
            elif next(self._simulation, None) is None:  # another process simulates
                if time.monotonic() - since > self._patience:
                    raise DjepaError(
                        f"No {shard.path} after {self._patience:.0f} s. Who simulates?"
                    )
                time.sleep(0.1)

    def _take(self, shard: Shard) -> None:
        arrays = shard.read()
        if not self._taken:  # now it is known how wide they are
            self._states, self._controls = (
                torch.empty((self.capacity, *arrays[name].shape[1:]), device=self.device)
                for name in ("states", "controls")
            )
        if arrays["states"].shape[2:] != self._states.shape[2:]:
            raise DjepaError(f"{shard.path} has states of another size than those before it.")
        rows = slice(self.ready, self.ready + SHARD)
        self._states[rows] = torch.from_numpy(arrays["states"]).to(self.device)
        self._controls[rows] = torch.from_numpy(arrays["controls"]).to(self.device)
        self._taken += 1

    @property
    def states(self) -> Tensor:
        """(E, L + 1, S) states."""
        return self._states[: self.ready]

    @property
    def controls(self) -> Tensor:
        """(E, L, A) controls."""
        return self._controls[: self.ready]
