"""Train the patch JEPA of the head view on executed demonstrations and variants of them.

    python -m djepa.models.bimanual_jepa_train runs/weights/bimanual-jepa

First the encoder: principal components of patches, under a smooth window. Then the goal head, by
ridge on successful demonstrations except every eighth. Then the predictor, rolled out over all five
steps, with the mean squared error of tokens and tools after each. Last the units u of the cost, on
the held-out eighths. Training, validation and study have disjoint starts. The result does not
depend on the clock.

Legend: N episodes, B branches, W width of a token, R directions, S numbers of a glance.
"""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import tyro
from torch import Tensor

from djepa.models.bimanual_jepa import (
    DIRECTIONS,
    BimanualJEPA,
    camera,
    cost_of,
    look,
    save_jepa,
    seven,
)
from djepa.models.bimanual_jepa_data import Data, load
from djepa.models.native import Say, fit_components, saying
from djepa.models.nets import initialise
from djepa.models.step import Step
from djepa.models.weights import TWO_ARMS_JEPA, claim_native
from djepa.rollout.engine import LocalEngine
from djepa.seeds import generator, seed_for
from djepa.threads import one_thread
from djepa.worlds.bimanual.scene import TASKS

PICTURES = 1200  # that the encoder is fitted to
RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
HELD = 8  # every 8th successful demonstration is held out from the goal head
LEAST = 1e-3  # of a unit
MEASURED = ("error of tokens", "error of no change", "error of tools, m", "lowest cost succeeds",
            "random succeeds", "best succeeds")  # fmt: skip


@dataclass(frozen=True)
class JEPATraining:
    """What is trained on, and how long."""

    episodes: int = 400
    """Of each task; each is a demonstration and two variants."""
    held: int = 24
    """Validation episodes of each task; each has eight variants."""
    steps: int = 3000
    """Updates of the predictor."""
    batch: int = 32
    """Branches of an update."""
    rate: float = 2e-3
    """Highest learning rate."""
    seed: int = 0
    """Of all draws."""


@torch.no_grad()
def fit_encoder(model: BimanualJEPA, data: Data, rng: np.random.Generator) -> None:
    """On the patches of some pictures, of starts and of later moments."""
    every = torch.cat([data.first[:, None], data.frames.flatten(1, 2)], 1).flatten(0, 1)
    some = torch.from_numpy(rng.permutation(len(every))[:PICTURES])
    fit_components(model.encoder, seven(every[some]), rng)


@torch.no_grad()
def see(model: BimanualJEPA, data: Data) -> Tensor:
    """(N, B, 6, 80, W) tokens of all moments."""
    N, B = data.success.shape
    first = _seen(model, data.first)[:, None, None].expand(-1, B, -1, -1, -1)
    later = _seen(model, data.frames.flatten(0, 2)).unflatten(0, (N, B, -1))
    return torch.cat([first, later], 2)


def _seen(model: BimanualJEPA, frames: Tensor) -> Tensor:
    return torch.cat([model.tokens(part) for part in frames.split(256)])


@torch.no_grad()
def standardise(model: BimanualJEPA, data: Data, tokens: Tensor) -> None:
    """Means and spreads of tools and colours; principal directions of tokens, first and last."""
    model.camera.copy_(torch.from_numpy(camera()))
    tools, colours = data.tools.flatten(0, 2), torch.cat([look(x) for x in data.first.split(256)])
    for name, values, least in (("felt", tools, 1e-2), ("look", colours, 0.1)):
        getattr(model, f"{name}_mean").copy_(values.mean(0))
        getattr(model, f"{name}_std").copy_(values.std(0).clamp_min(least))
    both = torch.cat([tokens[:, 0, 0], tokens[:, 0, -1]]).flatten(1).double()
    mean = both.mean(0)
    spread, axes = torch.linalg.eigh((both - mean).T.cov())
    spread, axes = spread[-DIRECTIONS:].clamp_min(1e-4).sqrt(), axes[:, -DIRECTIONS:]
    model.token_mean.copy_(mean)
    model.directions.copy_((axes * axes.sum(0).sign()).T)
    model.spread.copy_(spread)


@torch.no_grad()
def fit_goals(model: BimanualJEPA, data: Data, tokens: Tensor, glances: Tensor) -> dict[str, Any]:
    """Fit G for each task by ridge on successful demonstrations except every eighth.

    The held-out ones choose λ, for tokens and for tools; returns the unexplained variance there.
    """
    left = {}
    for number, task in enumerate(TASKS):
        rows, held = shown(data, number)
        x = F.pad(glances[rows], (0, 1), value=1.0).double()
        y = model.flat(tokens[rows, 0, -1], data.tools[rows, 0, -1]).double()
        fits = [_ridge(x[~held], y[~held], ridge) for ridge in RIDGES]
        chosen = []
        for part in (slice(None, DIRECTIONS), slice(DIRECTIONS, None)):
            truth = y[held][:, part]
            misses = [(x[held] @ w[:, part] - truth).square().sum() for w in fits]
            best = int(torch.stack(misses).argmin())
            model.goals[number][:, part] = fits[best][:, part].float()
            total = (truth - y[~held][:, part].mean(0)).square().sum()
            chosen.append(round(float(misses[best] / total), 4))
        left[task] = dict(zip(("tokens", "tools"), chosen, strict=True))
    return left


def shown(data: Data, task: int) -> tuple[Tensor, Tensor]:
    """Episodes of a task whose demonstration succeeds, and which of them are kept from G."""
    rows = ((data.task == task) & data.success[:, 0]).nonzero().flatten()
    return rows, torch.arange(len(rows)) % HELD == 0


def _ridge(x: Tensor, y: Tensor, ridge: float) -> Tensor:
    """(n, inputs + 1), (n, outputs) -> (inputs + 1, outputs); the constant is free."""
    penalty = ridge * len(x) * torch.ones(x.shape[1], dtype=x.dtype)
    penalty[-1] = 0.0
    return torch.linalg.solve(x.T @ x + torch.diag(penalty), x.T @ y)


def train_predictor(
    model: BimanualJEPA,
    data: Data,
    tokens: Tensor,
    glances: Tensor,
    config: JEPATraining,
    say: Say,
) -> None:
    """Rolled out from the first picture, on branches drawn at random."""
    N, B = data.success.shape
    unit = (tokens[:, :, 1:] - tokens[:, :, :1]).square().mean()

    def loss(
        begin: Tensor, tools: Tensor, told: Tensor, glance: Tensor, seen: Tensor, done: Tensor
    ) -> Tensor:
        there, felt = model.path(begin, tools, told, glance)
        away = (felt - done) / model.felt_std
        return (there - seen).square().mean() / unit + away.square().mean()

    update = Step(loss, model, config.rate, 1e-2)
    for i in range(config.steps):
        rng = generator("bimanual-jepa", "batch", config.seed, i)
        n, b = (torch.from_numpy(rng.integers(many, size=config.batch)) for many in (N, B))
        seen, tools = tokens[n, b], data.tools[n, b]
        begin = seen[:, 0], tools[:, 0], data.told[n, b], glances[n]
        last = update((*begin, seen[:, 1:], tools[:, 1:]), i / config.steps)
        if i % 100 == 0 or i == config.steps - 1:
            say(f"update {i}: {float(last):.4f}")


@torch.no_grad()
def fit_units(model: BimanualJEPA, data: Data, tokens: Tensor, glances: Tensor) -> None:
    """Mean squares of P - G, of demonstrations that succeed and that G was not fitted on."""
    for number in range(len(TASKS)):
        rows, held = shown(data, number)
        every = [_ends(model, data, tokens, glances, int(n), 1) for n in rows[held]]
        away = torch.cat([ends - goal for ends, goal in every])
        model.units[number] = away.square().mean(0).clamp_min(LEAST)


def _ends(
    model: BimanualJEPA,
    data: Data,
    tokens: Tensor,
    glances: Tensor,
    n: int,
    last: int | None = None,
) -> tuple[Tensor, Tensor]:
    """(B, R + 20), (R + 20,): P of the branches of one episode, and G."""
    told, glance = data.told[n, :last], glances[n]
    ends = model.ends(tokens[n, 0, 0], data.tools[n, 0, 0], told, glance)
    return ends, model.goal(glance[None], int(data.task[n]))[0]


def _glances(model: BimanualJEPA, data: Data, tokens: Tensor) -> Tensor:
    """(N, S) of all starts."""
    starts = data.first, tokens[:, 0, 0], data.tools[:, 0, 0]
    parts = zip(*(of.split(256) for of in starts), strict=True)
    return torch.cat([model.glance(*part) for part in parts])


@torch.no_grad()
def measure(model: BimanualJEPA, data: Data) -> dict[str, Any]:
    """On validation episodes: errors of predicted ends, and how well the lowest cost chooses."""
    tokens = see(model, data)
    glances, found = _glances(model, data, tokens), dict[str, Any]()
    for number, task in enumerate(TASKS):
        sums, won = [], []
        rows = (data.task == number).nonzero().flatten().tolist()
        for n in rows:
            ends, goal = _ends(model, data, tokens, glances, n)
            true = model.flat(tokens[n, :, -1], data.tools[n, :, -1])
            still = model.flat(tokens[n, :, 0], data.tools[n, :, 0])
            felt = (ends - true)[:, DIRECTIONS:] * model.felt_std
            apart = felt.unflatten(1, (2, -1))[..., :3].norm(dim=-1).mean()
            seen = [(x - true)[:, :DIRECTIONS].square().mean() for x in (ends, still)]
            sums.append(torch.stack([*seen, apart]))
            one = (model.coordinates(x, number) for x in (ends[1:], goal))
            cost, solved = cost_of(*one), data.success[n, 1:]
            won.append([solved[cost.argmin()], solved.float().mean(), solved.any()])
        means = [*torch.stack(sums).mean(0), *np.mean(np.array(won, float), 0)]
        found[task] = {n: round(float(x), 4) for n, x in zip(MEASURED, means, strict=True)}
        found[task]["episodes"] = len(rows)
    return found


def train(
    config: JEPATraining, data: Data, say: Say, hidden: int = 40
) -> tuple[BimanualJEPA, dict[str, Any]]:
    """Encoder, goal head, predictor, units; with what the goal head leaves unexplained."""
    model = BimanualJEPA(hidden)
    initialise(model, torch.Generator().manual_seed(seed_for("bimanual-jepa", config.seed)))
    model.head.weight.data.zero_()  # at first nothing is expected to change
    model.reach.weight.data.zero_()  # and the tools get where they should
    with one_thread():
        fit_encoder(model, data, generator("bimanual-jepa", "patches", config.seed))
        tokens = see(model, data)
        standardise(model, data, tokens)
        glances = _glances(model, data, tokens).detach()
        left = fit_goals(model, data, tokens, glances)
        say(f"variance that the goal head does not explain: {left}")
        train_predictor(model, data, tokens, glances, config, say)
        fit_units(model.eval(), data, tokens, glances)
    return model.half().float(), left  # as it is stored


def main(
    out: tyro.conf.Positional[Path],
    config: tyro.conf.OmitArgPrefixes[JEPATraining] = JEPATraining(),  # noqa: B008
    workers: int = 0,
) -> None:
    """Simulate on `workers` cores (0: all), train, measure, write to OUT."""
    say = saying()
    claim_native(out, TWO_ARMS_JEPA)
    engine = LocalEngine(workers)
    parts = {"training": (config.episodes, 2), "validation": (config.held, 8)}
    data, held = (load(out, p, config.seed, *many, engine, say) for p, many in parts.items())
    model, left = train(config, data, say)
    card: dict[str, Any] = {
        "command": " ".join(["python -m djepa.models.bimanual_jepa_train", *sys.argv[1:]]),
        "recipe": {"world": "bimanual", **asdict(config)},
        "parameters": sum(p.numel() for p in model.parameters()),
        "goal head, unexplained": left,
        "validation": measure(model, held),
    }
    say(f"validation: {card['validation']}")
    save_jepa(out, model, card)


if __name__ == "__main__":
    tyro.cli(main)
