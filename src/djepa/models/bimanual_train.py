"""Train the native bimanual policy on scripted demonstrations, split by episode.

    python -m djepa.models.bimanual_train runs/weights/bimanual --device cuda --workers 16

Demonstrations that fail are left out. Training episodes fit policy and proposals, calibration ones
choose the ridge, validation ones are only measured: the executed success of the policy's chunks.
A training is so many updates. One that is cut off, or reaches `--minutes`, goes on when the same
command is run again, and on a CPU ends in the same bytes.

Legend: N demonstrations, H commands.
"""

import math
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from torch import Tensor

from djepa.artefacts.folder import open_shard, seal_shard
from djepa.artefacts.lock import held
from djepa.files import write_atomically
from djepa.models.bimanual import (
    HEIGHT,
    SENTENCES,
    WIDTH_OF_IMAGE,
    Policy,
    begin,
    save_policy,
    words_of,
)
from djepa.models.bimanual_scene import fit_scene
from djepa.models.bimanual_state import MEASURED, State
from djepa.models.native import device_of, processes, saying
from djepa.models.resume import STATE
from djepa.models.train import SAVE_EVERY, OutOfTimeError
from djepa.models.weights import TWO_ARMS, claim_native
from djepa.pools.bimanual import features, fit_proposer
from djepa.seeds import generator, seed_for
from djepa.worlds.bimanual.experts import expert
from djepa.worlds.bimanual.rules import goal_state
from djepa.worlds.bimanual.scene import TASKS
from djepa.worlds.bimanual.world import COMMAND, BimanualWorld

PARTS = {"train": 0.8, "calibration": 0.1, "validation": 0.1}
Arrays = dict[str, Any]
SELF = 1e-2  # weight of the error that the policy expects of itself
RISE = 200  # updates
FORMAT, VERSION = "djepa-demonstrations", 1


@dataclass(frozen=True)
class PolicyTraining:
    """What is trained on, and how long."""

    episodes: int = 2000
    """Demonstrations of each task, of which four fifths are trained on."""
    steps: int = 12000
    """Updates."""
    batch: int = 64
    """Demonstrations of an update."""
    rate: float = 1e-3
    """Peak learning rate; it rises for 200 updates and falls to 0 as a half cosine of all."""
    decay: float = 1e-3
    """Weight decay."""
    measured: int = 50
    """Validation episodes of a task that are executed at the end, at most."""
    seed: int = 0
    """Of episodes, first weights and batches."""


@lru_cache(maxsize=4)
def _world(task: str) -> BimanualWorld:
    return BimanualWorld(task)


def demonstrate(number: int, task: str, seed: int) -> Arrays | None:
    """One episode of the scripted expert, or nothing if it failed."""
    world = _world(task)
    state = world.initial_state(generator("bimanual", "demonstration", task, seed, number))
    commands, poses = expert(world, state)
    states = world.execute(state, commands[None])[0]
    if not world.judge(goal_state(world, state), states)[0].any():
        return None
    return {
        "state": state,
        "image": world.view(state, "head", HEIGHT, WIDTH_OF_IMAGE),
        "features": features(task, world.view(state)),
        "commands": commands,
        "poses": poses,
    }


def demonstrations(
    out: Path, task: str, config: PolicyTraining, pool: ProcessPoolExecutor
) -> Arrays:
    """All of a task, from the file that an earlier run left, or simulated into it."""
    name = f"{task.replace(' ', '-')}-{config.episodes}-{config.seed}.safetensors"
    file, drawn = out / name, {"task": task, "episodes": config.episodes, "seed": config.seed}
    record = {"format": FORMAT, "version": VERSION, **drawn}
    if not file.exists():
        job = partial(demonstrate, task=task, seed=config.seed)
        found = list(pool.map(job, range(config.episodes), chunksize=10))
        good = [one for one in found if one is not None]
        arrays: Arrays = {name: np.stack([one[name] for one in good]) for name in good[0]}
        write_atomically(file, seal_shard(file, arrays, record))
    return open_shard(file, record)


def succeeded(item: tuple[str, Any, Any]) -> bool:
    """Whether a chunk solves a start."""
    task, state, commands = item
    world = _world(task)
    states = world.execute(state, commands[None])[0]
    return bool(world.judge(goal_state(world, state), states)[0].any())


def split(count: int) -> dict[str, slice]:
    """Episodes of each part."""
    ends = np.cumsum([0, *(round(share * count) for share in PARTS.values())])
    return {n: slice(int(ends[i]), int(ends[i + 1])) for i, n in enumerate(PARTS)}


def rate_at(step: int, config: PolicyTraining) -> float:
    """The learning rate of an update, from 1 on: it follows from its number alone."""
    fall = 0.5 * (1 + np.cos(np.pi * step / config.steps))
    return float(config.rate * min(1, step / RISE) * fall)


def train(
    config: PolicyTraining,
    data: dict[str, Arrays],
    device: str,
    say: Any,
    kept: Path,
    minutes: float = math.inf,
) -> tuple[Policy, float]:
    """The policy after all updates, and its last error; goes on from the state at `kept`.

    Once the minutes are over it saves its state and raises `OutOfTimeError`.
    """
    policy = Policy()
    policy.initialise(torch.Generator().manual_seed(seed_for("bimanual", "init", config.seed)))
    images, joints, chunks, tasks = _stacked(data)
    begin(policy, images, joints, chunks, tasks)
    policy = policy.to(device)
    images, joints, chunks, tasks = (x.to(device) for x in (images, joints, chunks, tasks))
    phrases = torch.tensor(
        [[words_of(s) for s in SENTENCES[task]] for task in TASKS], device=device
    )
    optimiser = torch.optim.AdamW(policy.parameters(), config.rate, weight_decay=config.decay)
    random = torch.Generator().manual_seed(seed_for("bimanual", "batches", config.seed))
    state, settings = State(policy, optimiser, random), asdict(config)
    if kept.exists():
        state.load(kept, settings)
        say(f"going on after update {state.step}")
    begun = saved = time.perf_counter()
    while state.step < config.steps:
        for group in optimiser.param_groups:
            group["lr"] = rate_at(state.step + 1, config)
        rows = torch.randint(len(images), (config.batch,), generator=random).to(device)
        which = torch.randint(phrases.shape[1], (config.batch,), generator=random).to(device)
        found, log_scale = policy(images[rows], joints[rows], phrases[tasks[rows], which])
        error = (found - chunks[rows]).abs().mean((1, 2))
        loss = (error + SELF * (error.detach() / log_scale.exp() + log_scale)).mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimiser.step()
        state.step += 1
        state.errors = [*state.errors[1 - MEASURED :], float(error.detach().mean())]
        if state.step % 200 == 0:
            say(f"update {state.step}: error {np.mean(state.errors):.4f} rad")
        now = time.perf_counter()
        late = now - begun > 60 * minutes and state.step < config.steps
        if late or now - saved > SAVE_EVERY:
            state.save(kept, settings)
            saved = now
        if late:
            raise OutOfTimeError(f"update {state.step:,} of {config.steps:,}")
    return policy.eval(), float(np.mean(state.errors))


def _stacked(data: dict[str, Arrays]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images, joints, chunks and task numbers of the training episodes."""
    parts: list[list[Any]] = [[], [], [], []]
    for i, of in enumerate(data.values()):
        some = split(len(of["state"]))["train"]
        parts[0].append(of["image"][some])
        parts[1].append(of["state"][some, -COMMAND:])
        parts[2].append(of["commands"][some])
        parts[3].append(np.full(len(of["state"][some]), i))
    images, joints, chunks, tasks = (torch.from_numpy(np.concatenate(part)) for part in parts)
    return images, joints.float(), chunks.float(), tasks


def _part(data: dict[str, Arrays], name: str) -> dict[str, Arrays]:
    """The episodes of one part, with the joints at their starts."""
    found = {}
    for task, of in data.items():
        some = split(len(of["state"]))[name]
        joints = {"joints": of["state"][:, -COMMAND:]}
        found[task] = {key: array[some] for key, array in (of | joints).items()}
    return found


@torch.no_grad()
def chunks_of(policy: Policy, task: str, of: Arrays, some: slice, device: str) -> Any:
    """(n, H, 14) commands of the policy."""
    words = torch.tensor([words_of(SENTENCES[task][0])], device=device)
    images, joints = (
        torch.from_numpy(of["image"][some]),
        torch.from_numpy(of["state"][some, -COMMAND:]),
    )
    found, _ = policy(images.to(device), joints.float().to(device), words.expand(len(images), -1))
    return found.double().cpu().numpy()


def main(
    out: tyro.conf.Positional[Path],
    config: PolicyTraining = PolicyTraining(),  # noqa: B008
    device: str = "auto",
    workers: int = 0,
    minutes: float = math.inf,
) -> None:
    """Simulate on `workers` cores (0: all), train, write to OUT.

    Stopped after so many `minutes` of training, it goes on when the same command is run again. The
    weights stay the same.
    """
    say, device = saying(), device_of(device)
    claim_native(out, TWO_ARMS)
    with held(out), processes(workers) as pool:
        data = {}
        for task in TASKS:
            data[task] = demonstrations(out, task, config, pool)
            many = len(data[task]["state"])
            say(f"{task}: {many} of {config.episodes} demonstrations succeed")
        card: Arrays = {
            "config": asdict(config),
            "episodes": {t: len(d["state"]) for t, d in data.items()},
        }
        proposers, card["target error, m"] = {}, {}
        for task, of in data.items():
            some = split(len(of["state"]))
            unseen = (of["features"][some["calibration"]], of["poses"][some["calibration"]])
            proposers[task], card["target error, m"][task] = fit_proposer(
                task, of["features"][some["train"]], of["poses"][some["train"]], *unseen
            )
        scene, card["scene error, m"] = fit_scene(
            *(_part(data, n) for n in ("train", "calibration"))
        )
        say(f"proposals: {card['target error, m']}")
        try:
            policy, card["error"] = train(config, data, device, say, out / STATE, minutes)
        except OutOfTimeError as stopped:
            say(f"Stopped at {stopped}. Its state is in {out}: the same command goes on from it.")
            return
        card["updates"], card["success"] = config.steps, {}
        for task, of in data.items():
            some_held = split(len(of["state"]))["validation"]
            states = of["state"][some_held][: config.measured]
            chunks = chunks_of(policy, task, of, some_held, device)[: config.measured]
            items = [(task, s, c) for s, c in zip(states, chunks, strict=True)]
            card["success"][task] = float(np.mean(list(pool.map(succeeded, items))))
            say(f"{task}: {100 * card['success'][task]:.0f} % of {len(items)} validation starts")
        save_policy(out, policy, proposers, scene, card)
        (out / STATE).unlink(missing_ok=True)


if __name__ == "__main__":
    tyro.cli(main)
