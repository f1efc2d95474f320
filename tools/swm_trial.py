"""`World.evaluate` of stable-worldmodel on its PushT, with its CEM alone and with ours on top.

python -m tools.swm_trial --planner runs/planner.safetensors --out runs/swm.json

Starts and goals are those of one of our episode lists, given to the library as reset options; its
own rule says whether the goal was reached. Every method sees the same episodes, and the first
populations of its searches are the same. Model evaluations of a decision are equal: one is one
candidate rolled out by one geometry.
"""

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from tools.trials import Trial, run_and_print
from torch import Tensor

from djepa.artefacts.records import sha256
from djepa.control.episodes import Episode, EpisodeConfig, draw_episodes
from djepa.errors import DjepaError, MissingExtraError, check_name
from djepa.interop.gym import Remember
from djepa.interop.swm import AlignedSolver, PlannerCost, make_solver
from djepa.lift.planner import load_planner

RANDOM, MEAN, CHEAPEST, ALIGNED = "random controls", "its CEM", "cheapest", "aligned"
METHODS = (RANDOM, MEAN, CHEAPEST, ALIGNED)  # the third runs only if named
BLOCK, PLAN = 5, 5  # controls of a step of a plan, steps of a plan: 25 controls
COLOURS = {"block.color": (99, 113, 128), "agent.color": (54, 88, 188)}  # drawn 1.2 times lighter


@dataclass(frozen=True)
class SwmTrial:
    """Which episodes, and how large a search."""

    planner: Path = Path("runs/planner.safetensors")
    """File that `djepa export` wrote."""
    out: Path = Path("runs/swm.json")
    """Rows; run again to continue."""
    episodes: int = 64
    samples: int = 32
    """Candidates of a population."""
    evaluations: int = 320
    """Of models, in a decision at most."""
    elites: int = 4
    receding: int = 5
    """Steps of five controls that are executed before the next decision."""
    budget: int = 50
    """Controls until an episode ends."""
    methods: tuple[str, ...] = (RANDOM, MEAN, ALIGNED)
    """Which methods; "cheapest" executes the cheapest candidate of the last population."""
    seed: int = 0
    colours: bool = True
    """Let the library draw block and pusher in the colours that the models were trained on, through
    its own variations; it draws them lighter."""

    def run(self) -> Trial:
        """Run what is missing."""
        for method in self.methods:
            check_name("method", method, METHODS)
        _library()
        planner = load_planner(self.planner)
        cost = PlannerCost(planner)
        config = EpisodeConfig(split="swm", seed=self.seed, episodes=self.episodes)
        about = {
            "methods": self.methods,
            "planner": sha256(self.planner.read_bytes()),
            "searched": planner.lifted,
            "list": [config.split, config.goal, self.seed],
            "settings": {
                name: getattr(self, name)
                for name in ("samples", "evaluations", "elites", "receding", "budget", "colours")
            },
            "versions": {name: version(name) for name in ("stable-worldmodel", "torch")},
        }
        trial, drawn = Trial.open(self.out, about), dict[int, Episode]()
        for episode, method in trial.missing(self.episodes, self.methods):
            if episode not in drawn:
                drawn = {e.number: e for e in draw_episodes(config, episode // config.block)}
            success, steps = self._episode(drawn[episode], self._policy(method, cost, episode))
            trial.add(episode, method, success, steps, name=drawn[episode].name[:16])
        return trial

    def steps(self, method: str, models: int) -> int:
        """Populations of a search: aligned choice rolls the last one out again with all models."""
        last = models * self.samples if method == ALIGNED else 0
        found = (self.evaluations - last) // self.samples
        if found < 1:
            raise DjepaError(f"{self.evaluations} evaluations are too few for {method}.")
        return found

    def _policy(self, method: str, cost: PlannerCost, episode: int) -> Any:
        swm = _library()
        if method == RANDOM:
            policy = swm.policy.RandomPolicy()
            policy.first = 1000 * self.seed + episode
            return policy
        count = self.steps(method, len(cost.planner.geometries))
        options = {"num_samples": self.samples, "n_steps": count, "topk": self.elites}
        solver = make_solver("CEMSolver", cost, seed=1000 * self.seed + episode, **options)
        if method != MEAN:
            solver = (AlignedSolver if method == ALIGNED else CheapestSolver)(solver, cost)
        config = swm.policy.PlanConfig(
            horizon=PLAN, receding_horizon=self.receding, action_block=BLOCK
        )
        return swm.policy.WorldModelPolicy(solver, config)

    def _episode(self, episode: Episode, policy: Any) -> tuple[bool, int]:
        """Success by the library's own rule, and how many controls were executed."""
        swm = _library()
        world = swm.World(
            "swm/PushT-v1",
            num_envs=1,
            image_shape=(112, 112),
            max_episode_steps=self.budget,
            extra_wrappers=[Remember, Count],
            with_target=False,
        )
        world.set_policy(policy)
        if hasattr(policy, "first"):
            policy.set_seed(policy.first)
        start, goal = (state[:7].copy() for state in (episode.start.state, episode.start.goal))
        options: dict[str, Any] = {"state": start, "goal_state": goal}
        if self.colours:
            drawn = {name: np.array(rgb, np.uint8) for name, rgb in COLOURS.items()}
            options["variation_values"] = drawn
        found = world.evaluate(episodes=1, seed=0, options=options)
        counted = world.envs.envs[0].executed[0]
        world.close()
        return bool(found["episode_successes"][0]), counted


class CheapestSolver(AlignedSolver):
    """The cheapest candidate of the last population: an ablation of `aligned`."""

    def choose(self, info: Any, candidates: Tensor) -> Tensor:
        """Positions of the cheapest candidates by the cost of the search."""
        return self.recorder.last[1].argmin(1)  # ties: the first


class Count(gymnasium.Wrapper):  # type: ignore[misc]
    """Counts the controls of every episode."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.executed: list[int] = []

    def reset(self, **given: Any) -> Any:
        """Begin an episode."""
        self.executed.append(0)
        return self.env.reset(**given)

    def step(self, action: Any) -> Any:
        """Execute."""
        self.executed[-1] += 1
        return self.env.step(action)


def _library() -> Any:
    try:
        import stable_worldmodel
    except ImportError:
        raise MissingExtraError("The adapter to stable-worldmodel", "swm") from None
    return stable_worldmodel


if __name__ == "__main__":
    run_and_print(SwmTrial, MEAN)
