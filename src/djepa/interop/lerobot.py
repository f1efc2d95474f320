"""LeRobot: the policy type `djepa` wraps any policy that samples chunks; see `chunks`.

Importing this module registers it. For LeRobot's own commands to find it, install the package
`lerobot_policy_djepa` (plugins/), which only imports this module.
"""

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from djepa.errors import DjepaError, MissingExtraError
from djepa.interop.chunks import Chooser, How, choosing
from djepa.interop.record import write_decisions

try:
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.policies.factory import get_policy_class
    from lerobot.policies.pretrained import PreTrainedPolicy
except ImportError as error:
    raise MissingExtraError("The adapter to LeRobot", "lerobot") from error


@PreTrainedConfig.register_subclass("djepa")
@dataclass
class DJEPAConfig(PreTrainedConfig):  # type: ignore[misc]
    """Which policy, how many chunks, how one is chosen."""

    base: str = ""  # folder or repository of the policy that is wrapped
    samples: int = 8
    how: str = "consensus"  # score, planner, random, first, consensus: draccus reads no Literal
    score: str = ""  # for how = score: package.module:function of batch and (N, K, T, A) chunks
    alignment: str = ""  # folder of an alignment of these scores, for a gated choice
    planner: str = ""  # for how = planner: file that `djepa export` wrote
    record_only: bool = False  # execute the first chunk, record what would be chosen
    record: str = ""  # write the decision record here when an episode ends
    seed: int = 0

    @property
    def observation_delta_indices(self) -> None:
        """None: the wrapped policy keeps observations."""

    @property
    def action_delta_indices(self) -> None:
        """None: the wrapped policy keeps actions."""

    @property
    def reward_delta_indices(self) -> None:
        """None."""

    def get_optimizer_preset(self) -> Any:
        """Nothing is trained here."""
        raise DjepaError("The policy 'djepa' is not trained: train the one that it wraps.")

    def get_scheduler_preset(self) -> None:
        """None."""

    def validate_features(self) -> None:
        """Does nothing: the wrapped policy validates."""


class DJEPAPolicy(PreTrainedPolicy):  # type: ignore[misc]
    """A policy that executes the chosen one of K chunks of another, unchanged."""

    config_class, name = DJEPAConfig, "djepa"

    def __init__(self, config: DJEPAConfig, base: Any = None, **more: Any) -> None:
        super().__init__(config)
        self.chooser = _chooser(config)
        if base is None:
            if not config.base:
                raise DjepaError("Name the policy to wrap: --policy.base=FOLDER")
            about = PreTrainedConfig.from_pretrained(config.base)
            base = get_policy_class(about.type).from_pretrained(config.base, config=about)
        self.base = choosing(base.eval(), self.chooser)

    def reset(self) -> None:
        """Prepare for an episode, and write the records so far."""
        if self.config.record and self.chooser.records:
            write_decisions(self.config.record, self.chooser.records)
        self.base.reset()

    def select_action(self, batch: dict[str, Tensor], **more: Any) -> Tensor:
        """One action of the chosen chunk."""
        return self.base.select_action(batch, **more)

    def predict_action_chunk(self, batch: dict[str, Tensor], **more: Any) -> Tensor:
        """The chosen chunk."""
        return self.base.predict_action_chunk(batch, **more)

    def forward(self, batch: dict[str, Tensor]) -> Any:
        """The loss of the wrapped policy."""
        return self.base.forward(batch)

    def get_optim_params(self) -> Any:
        """Nothing is trained here."""
        return self.config.get_optimizer_preset()


def make_djepa_pre_post_processors(config: DJEPAConfig, dataset_stats: Any = None) -> Any:
    """The processors of the wrapped policy."""
    from lerobot.policies.factory import make_pre_post_processors

    about = PreTrainedConfig.from_pretrained(config.base)
    return make_pre_post_processors(about, config.base, dataset_stats=dataset_stats)


def _chooser(config: DJEPAConfig) -> Chooser:
    score, alignment = None, None
    if config.score:
        module, _, name = config.score.partition(":")
        try:
            score = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise DjepaError(
                f"score '{config.score}' is no package.module:function: {error}"
            ) from None
    if config.alignment:
        from djepa.align.api import load

        alignment = load(config.alignment)
    planner = None
    if config.planner:
        from djepa.interop.planner_score import PlannerScore
        from djepa.lift.planner import load_planner

        planner = PlannerScore(load_planner(Path(config.planner)))
    kept = (config.record_only, config.seed)
    how = cast(How, config.how)  # checked there
    return Chooser(how, config.samples, score, alignment, planner, *kept)
