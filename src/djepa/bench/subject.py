"""The subject of the geometry bench: a model, and a batch of decisions in its world."""

import multiprocessing
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from djepa.bench.measure import Row
from djepa.errors import unknown_name
from djepa.models.fast import Inputs
from djepa.models.kinds import GEOMETRIES, build, get_kind
from djepa.models.protocol import CONTEXT
from djepa.models.weights import load_geometry, read_card, shipped
from djepa.rollout.execute import BlockWork, CollectConfig, Drawn, draw_block
from djepa.tasks.task import PLAIN, Scene, get_task

STORED, RANDOM = "stored weights", "random weights"
PUSH = Scene()
BLOCK = 64  # starts that one process draws


@dataclass(frozen=True)
class Subject:
    """A model under measurement, its size, and where its weights come from."""

    name: str
    model: Any
    size: str
    weights: str
    scene: Scene = PUSH  # its world and look

    @property
    def title(self) -> str:
        """Name and size."""
        return f"{self.name} {self.size}"

    def row(
        self, what: str, unit: str, ours: float, plain: float | None, note: str, **details: float
    ) -> Row:
        """A row about this model."""
        note = f"{note}; {self.weights}"
        return Row(f"{self.title}, {what}", unit, ours, plain, note, details)

    def decisions(self, starts: int, candidates: int, device: str) -> Inputs:
        """Real starts of its world, as it sees them, and candidates from their pools."""
        return decisions(self.model.image, starts, candidates, device, self.scene)


def load_subject(where: str, size: str, device: str) -> Subject:
    """Weights from a folder, or by name in that size; random ones if there are none."""
    if where not in GEOMETRIES:
        if where not in shipped() and not Path(where).is_dir():
            raise unknown_name("geometry", where, {*GEOMETRIES, *shipped()})
        return stored_subject(where, device)
    if where in shipped():
        subject = stored_subject(where, device)
        if subject.size == size:
            return subject
    return Subject(where, random_model(where, size).to(device), size, RANDOM)


def stored_subject(where: str, device: str) -> Subject:
    """Weights from a folder or by name, of any size."""
    model = load_geometry(where, device)
    world = {"actions": model.config.actions, "stride": model.config.stride}  # same for all sizes
    sizes = {name: replace(size, **world) for name, size in get_kind(model.name).sizes.items()}
    size = next((name for name in sizes if sizes[name] == model.config), "own size")
    return Subject(
        where if where in shipped() else model.name, model, size, STORED, scene_of(where)
    )


def scene_of(where: str) -> Scene:
    """World and look of the training, by the card of the weights; push if it names no world."""
    recipe = read_card(where).get("recipe", {})
    world, look = recipe.get("world", "push"), recipe.get("look", PLAIN)
    shapes = recipe.get("shapes") or [recipe.get("shape", get_task(world).shapes[0])]
    return Scene(world, shapes[0], look)


def random_model(name: str, size: str, seed: int = 0) -> nn.Module:
    """A geometry with fresh weights, in eval mode."""
    random = torch.Generator().manual_seed(seed)
    model = build(name, random, size).eval().requires_grad_(False)
    for parameter in model.parameters():
        if parameter.ndim > 1 and not parameter.any():  # a gate at zero would block the actions
            nn.init.normal_(parameter, std=0.2, generator=random)
    return model


def decisions(
    image: int,
    starts: int,
    candidates: int,
    device: str = "cpu",
    scene: Scene = PUSH,
    split: str = "fit",
) -> Inputs:
    """Real starts of a world in its look, and candidates from their pools."""
    hand, block = next(iter(get_task(scene.world).behaviours)), min(starts, BLOCK)
    config = CollectConfig(
        scene.world, scene.shape, behaviour=hand, split=split, starts=starts, block=block
    )
    drawn, rng = _drawn(config), np.random.default_rng(0)
    states = np.stack([[*entry.start.context, entry.start.goal] for entry in drawn])
    frames, proprio = scene.observe(torch.from_numpy(states), image)
    pools = [np.asarray(e.pool.without().actions) for e in drawn if e.pool is not None]
    histories = np.stack([entry.start.history for entry in drawn])
    actions = np.stack([_enough(pool, candidates, rng) for pool in pools])
    given = Inputs(
        frames[:, :CONTEXT].contiguous(),
        frames[:, CONTEXT].contiguous(),
        proprio,
        *(scene.controls(torch.from_numpy(taken).float()) for taken in (histories, actions)),
    )
    return Inputs(*(tensor.to(device) for tensor in given))


def _drawn(config: CollectConfig) -> list[Drawn]:
    """The starts of all blocks, drawn by several processes if there are several."""
    works = [BlockWork(config, block) for block in range(-(-config.starts // config.block))]
    if len(works) == 1:
        return draw_block(works[0])
    with multiprocessing.get_context("spawn").Pool(min(len(works), os.cpu_count() or 1)) as pool:
        return [entry for block in pool.map(draw_block, works) for entry in block]


def _enough(
    pool: npt.NDArray[Any], candidates: int, rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """(K', H, A) -> (K, H, A): the pool, then noisy copies, so that no two are equal."""
    turn, index = np.divmod(np.arange(candidates), len(pool))
    noise = rng.normal(0, 0.05, (candidates, *pool.shape[1:])) * (turn > 0)[:, None, None]
    bound = max(1.0, np.abs(pool).max())  # controls of a world may exceed 1
    return np.clip(pool[index] + noise, -bound, bound)
