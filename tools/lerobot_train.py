"""A small diffusion policy of LeRobot's, trained for minutes on the push world.

python -m tools.lerobot_train --out runs/lerobot

OUT/episodes   demonstrations as a LeRobotDataset v3: what is felt, poses, controls; no frames
OUT/policy     LeRobot's own folder of the policy and its processors

The policy is told the poses of block and goal (`poses` of the environment type `djepa`), which a
small network learns in minutes where frames would take a GPU. It samples chunks of 25 controls.

Legend: E episodes, T controls of one, A action width.
"""

import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from torch import Tensor

from djepa.errors import DjepaError, MissingExtraError
from djepa.interop.lerobot_env import ACTION, FELT, POSE, POSES, STATE, poses
from djepa.seeds import generator, seed_for
from djepa.tasks.task import get_task

try:
    from lerobot.configs.types import FeatureType, NormalizationMode, PolicyFeature
    from lerobot.datasets.lerobot_dataset import LeRobotDataset
    from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig
    from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy
    from lerobot.policies.factory import make_pre_post_processors
except ImportError as error:
    raise MissingExtraError("Training a policy of LeRobot", "lerobot") from error

T, CENTRES = 25, 4  # controls of a demonstration; demonstrations from one start
PAD = "action_is_pad"


@dataclass(frozen=True)
class Training:
    """How many demonstrations, how long."""

    out: Path = Path("runs/lerobot")
    """Folder of the demonstrations and the policy."""
    episodes: int = 3200
    """Demonstrations; a multiple of 4, which share a start and have goals of their own."""
    steps: int = 4000
    """Updates."""
    batch: int = 64
    rate: float = 1e-3
    """Learning rate at its highest."""
    width: int = 64
    """Channels of the first level of the U-Net; the second has twice as many."""
    seed: int = 0

    def run(self) -> Path:
        """Write demonstrations if there are none, train, store."""
        data = self.out / "episodes"
        if not data.exists():
            write_demonstrations(data, self.episodes, self.seed)
        dataset = LeRobotDataset("djepa/push", root=data)
        policy = DiffusionPolicy(self._config())
        processors = make_pre_post_processors(policy.config, dataset_stats=dataset.meta.stats)
        self._fit(policy, processors[0], tensors(dataset))
        for part in (policy, *processors):
            part.save_pretrained(self.out / "policy")
        return self.out / "policy"

    def _config(self) -> Any:
        torch.manual_seed(self.seed)
        return DiffusionConfig(
            input_features={
                STATE: PolicyFeature(FeatureType.STATE, (FELT,)),
                POSE: PolicyFeature(FeatureType.ENV, (POSES,)),
            },
            output_features={ACTION: PolicyFeature(FeatureType.ACTION, (2,))},
            normalization_mapping={
                "STATE": NormalizationMode.MEAN_STD,
                "ENV": NormalizationMode.IDENTITY,
                "ACTION": NormalizationMode.IDENTITY,  # so that chunks are controls
            },
            n_obs_steps=1,
            horizon=T + 3,  # a multiple of 4, which the U-Net halves twice
            n_action_steps=T,
            down_dims=(self.width, 2 * self.width),
            diffusion_step_embed_dim=64,
            noise_scheduler_type="DDIM",
            num_inference_steps=10,
            do_mask_loss_for_padding=True,
            device="cpu",
        )

    def _fit(self, policy: Any, before: Any, known: dict[str, Tensor]) -> None:
        """Train on batches of (episode, control); half of the samples are at control 0."""
        optimizer = torch.optim.AdamW(policy.get_optim_params(), lr=self.rate, weight_decay=1e-4)
        plan = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.rate, self.steps)
        random = torch.Generator().manual_seed(seed_for("lerobot", self.seed) % 2**31)
        ahead, began, losses = torch.arange(T + 3), time.perf_counter(), []
        policy.train()
        for step in range(1, self.steps + 1):
            at = torch.randint(len(known[ACTION]), (self.batch,), generator=random)
            t = torch.randint(T, (self.batch,), generator=random)
            t[: self.batch // 2] = 0
            later = t[:, None] + ahead
            batch = {name: known[name][at, t][:, None] for name in (STATE, POSE)}
            batch[ACTION] = known[ACTION][at[:, None], later.clamp(max=T - 1)]
            batch[PAD] = later >= T
            given = before({name: x for name, x in batch.items() if name != PAD})
            loss, _ = policy.forward({**given, PAD: batch[PAD]})
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            plan.step()
            losses.append(float(loss))
            if step % 500 == 0 or step == self.steps:
                mean, spent = np.mean(losses[-500:]), time.perf_counter() - began
                print(f"step {step}, loss {mean:.4f}, {spent:.0f} s", flush=True)
        policy.eval()


def write_demonstrations(root: Path, episodes: int, seed: int) -> None:
    """Write segments of the behaviour that draws the environment's episodes; the end is the goal.

    Their generators differ from those of the environment, so no start is shared.
    """
    if episodes < CENTRES or episodes % CENTRES:
        raise DjepaError(f"episodes must be a multiple of {CENTRES}, got {episodes}.")
    numbers = {STATE: FELT, POSE: POSES, ACTION: 2}
    features = {
        name: {"dtype": "float32", "shape": (n,), "names": None} for name, n in numbers.items()
    }
    data = LeRobotDataset.create(
        "djepa/push", fps=10, features=features, root=root, use_videos=False
    )
    for path, controls in demonstrations(episodes, seed):
        felt = path[:-1][:, [0, 1, 5, 6]].astype(np.float32)
        told = poses(path[:-1], np.broadcast_to(path[-1], path[:-1].shape))
        for t in range(T):
            frame = {STATE: felt[t], POSE: told[t], ACTION: controls[t].astype(np.float32)}
            data.add_frame({**frame, "task": "bring the world push to the goal frame"})
        data.save_episode()
    data.finalize()


def demonstrations(episodes: int, seed: int) -> Any:
    """(T + 1, 10) states and (T, 2) controls, four from each start."""
    task = get_task("push")
    world, hand = task.make(task.shapes[0], task.rules[0]), next(iter(task.behaviours))
    for number in range(episodes // CENTRES):
        rng = generator("lerobot-demonstrations", seed, number)
        while isinstance(drawn := task.draw_start(world, hand, rng, T, CENTRES), str):
            pass  # a dropped start
        start, centres = drawn
        yield from zip(world.execute(start.state, centres), centres, strict=True)


def tensors(dataset: Any) -> dict[str, Tensor]:
    """All arrays of the dataset, (E, T, ...); thousands of episodes are a few MB."""
    table, found = dataset.hf_dataset.data.table, {}
    for name, width in ((STATE, FELT), (POSE, POSES), (ACTION, 2)):
        numbers = table.column(name).combine_chunks().flatten().to_numpy()
        found[name] = torch.from_numpy(numbers.astype(np.float32)).view(-1, T, width)
    return found


def main() -> None:
    """Train and say where."""
    warnings.filterwarnings("ignore")
    print(tyro.cli(Training).run())


if __name__ == "__main__":
    main()
