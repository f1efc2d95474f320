"""LeRobot's rollout of a policy on the push world, with and without a choice among its chunks.

python -m tools.lerobot_trial --policy runs/lerobot/policy \
    --planner runs/planner.safetensors --out runs/lerobot.json

Every method gets the same seeds, so the same starts and goals; the chunks of its first decision are
the same ones too. Which succeed is what LeRobot's `rollout` says, by the world's own rule.
"""

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tools.trials import Trial, run_and_print

from djepa.artefacts.records import sha256
from djepa.errors import MissingExtraError
from djepa.interop.chunks import Chooser, choosing
from djepa.interop.lerobot_env import DJEPAEnv
from djepa.interop.planner_score import PlannerScore
from djepa.lift.planner import Planner, load_planner

try:
    import torch
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.envs.factory import make_env
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors
    from lerobot.scripts.lerobot_eval import rollout
except ImportError as error:
    raise MissingExtraError("The rollout of LeRobot", "lerobot") from error

NATIVE, FIRST, RANDOM, CONSENSUS = "model's cost", "first chunk", "random chunk", "consensus"
PLAIN, ALIGNED = "policy alone", "D-JEPA"
METHODS = (PLAIN, FIRST, RANDOM, CONSENSUS, NATIVE, ALIGNED)
FROM = 10**6  # first seed of the environment


@dataclass(frozen=True)
class LeRobotTrial:
    """Which policy and planner, how many episodes."""

    policy: Path = Path("runs/lerobot/policy")
    """Folder of a diffusion policy, such as `lerobot_train` writes."""
    planner: Path = Path("runs/planner.safetensors")
    """File that `djepa export` wrote."""
    out: Path = Path("runs/lerobot.json")
    """Rows; run again to continue."""
    episodes: int = 128
    samples: int = 16
    """Chunks to choose from."""
    budget: int = 50
    """Controls until an episode ends."""
    together: int = 8
    """Episodes of one call of `rollout`."""

    def run(self) -> Trial:
        """Run what is missing."""
        planner = load_planner(self.planner)
        about = {
            "methods": METHODS,
            "policy": sha256((self.policy / "model.safetensors").read_bytes()),
            "planner": sha256(self.planner.read_bytes()),
            "lifted": planner.lifted,
            "settings": {n: getattr(self, n) for n in ("samples", "budget", "together")},
            "versions": {n: version(n) for n in ("lerobot", "torch")},
        }
        trial = Trial.open(self.out, about)
        done = {key for key, _ in trial.missing(self.episodes, METHODS)}
        for first in sorted({n - n % self.together for n in done}):
            seeds = list(range(first, min(first + self.together, self.episodes)))
            for method in METHODS:
                if any((n, method) not in trial.rows for n in seeds):
                    self._batch(trial, method, planner, seeds)
        return trial

    def _batch(self, trial: Trial, method: str, planner: Planner, seeds: list[int]) -> None:
        """Some episodes by LeRobot's own rollout; each ends with its first success."""
        about = PreTrainedConfig.from_pretrained(str(self.policy))
        policy = get_policy_class(about.type).from_pretrained(str(self.policy), config=about).eval()
        processors = make_pre_post_processors(about, str(self.policy))
        if method != PLAIN:
            policy = choosing(policy, self._chooser(method, planner, seeds[0]))
        torch.manual_seed(seeds[0])
        config = DJEPAEnv(episode_length=self.budget, poses=True, size=_image(planner))
        env = make_env(config, n_envs=len(seeds))["djepa"][0]
        found = rollout(env, policy, _same, _same, *processors, seeds=[FROM + n for n in seeds])
        env.close()
        for i, seed in enumerate(seeds):
            ended = int(found["done"][i].int().argmax())
            solved = bool(found["success"][i, : ended + 1].any())
            trial.add(seed, method, solved, ended + 1)

    def _chooser(self, method: str, planner: Planner, seed: int) -> Chooser:
        scorer = PlannerScore(planner)
        if method == NATIVE:
            return Chooser("score", self.samples, scorer.native, planner=scorer, seed=seed)
        if method == ALIGNED:
            return Chooser("planner", self.samples, planner=scorer, seed=seed)
        how = {FIRST: "first", RANDOM: "random", CONSENSUS: "consensus"}[method]
        return Chooser(how, self.samples, seed=seed)  # type: ignore[arg-type]


def _image(planner: Planner) -> int:
    """Pixels of its models' frames."""
    return int(next(iter(planner.geometries.values())).image)


def _same(batch: Any) -> Any:
    return batch


if __name__ == "__main__":
    run_and_print(LeRobotTrial, FIRST)
