"""Use with NAVSIM (v1 devkit) and a Drive-JEPA-like agent; this contains no code of either.

    exported(model)   context: outputs of the scorer, by a forward hook on `scorer.pred_score`
    chooser(...)      the agent's class: the same proposals, chosen by a fitted readout
    judged(...)       PDMS of every proposal through the devkit, one at a time

A model has `scorer.pred_score`, whose input is the (B, 32, 256) queries and whose output the six
logits, and its forward gives `proposals` (B, 32, 8, 3) and `pdm_score` (B, 32). NAVSIM scores a
proposal beside its own reference, so proposals must never be scored in one batch: progress would be
normalised over the set.

Legend: B scenes, K candidates.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from djepa.align.driving import DrivingEvidence
from djepa.errors import DjepaError

POSES, LOGITS = (8, 3), 6
PARTS = {  # ours -> the devkit's
    "pdms": "score",
    "nc": "no_at_fault_collisions",
    "dac": "drivable_area_compliance",
    "ttc": "time_to_collision_within_bound",
    "ep": "ego_progress",
    "comfort": "comfort",
    "ddc": "driving_direction_compliance",
}


class Chooses(Protocol):
    """A fitted readout of align/driving_fit.py or align/driving_fusion.py."""

    def decide(self, evidence: DrivingEvidence) -> Tensor:
        """(N,) positions."""


@dataclass
class Exported:
    """Scorer outputs recorded in forward passes of the model."""

    seen: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # queries, logits

    def evidence(self, output: Mapping[str, Tensor], logs: Sequence[str]) -> DrivingEvidence:
        """The last pass as evidence; IDs are the positions of the proposals."""
        if not self.seen:
            raise DjepaError("The scorer was not called: run the model inside `exported`.")
        queries, logits = self.seen[-1]
        for name in ("proposals", "pdm_score"):
            if name not in output:
                raise DjepaError(f"The model's output has no '{name}'; it has {', '.join(output)}.")
        proposals, score = output["proposals"], output["pdm_score"]
        B, K = score.shape
        wanted = {
            "queries": (queries, (B, K, queries.shape[-1])),
            "logits": (logits, (B, K, LOGITS)),
            "proposals": (proposals, (B, K, *POSES)),
        }
        for name, (tensor, shape) in wanted.items():
            if tuple(tensor.shape) != shape:
                raise DjepaError(f"{name} are {tuple(tensor.shape)}, not {shape}.")
        return DrivingEvidence(
            queries=queries.float().cpu(),
            logits=logits.float().cpu(),
            poses=proposals.detach().float().cpu(),
            score=score.detach().double().cpu(),
            ids=torch.arange(K).expand(B, K).contiguous(),
            logs=tuple(logs),
        )


@contextmanager
def exported(model: nn.Module) -> Iterator[Exported]:
    """Record outputs of the scorer while the model runs, without changing the model."""
    found = Exported()
    scorer = getattr(getattr(model, "scorer", None), "pred_score", None)
    if not isinstance(scorer, nn.Module):
        raise DjepaError("The model has no module `scorer.pred_score` to watch.")

    def hook(module: nn.Module, given: tuple[Any, ...], logits: Tensor) -> None:
        found.seen.append((given[0].detach(), logits.detach()))

    handle = scorer.register_forward_hook(hook)
    try:
        yield found
    finally:
        handle.remove()


def export(
    model: nn.Module, features: Mapping[str, Tensor], logs: Sequence[str]
) -> DrivingEvidence:
    """One batch of features -> evidence, ready for a readout."""
    with exported(model) as found, torch.no_grad():
        output = model(features)
        return found.evidence(output, logs)


def choose(model: nn.Module, features: Mapping[str, Tensor], readout: Chooses) -> npt.NDArray[Any]:
    """(B, 8, 3) the proposals chosen by the readout."""
    B = len(next(iter(features.values())))
    evidence = export(model, features, [""] * B)
    at = readout.decide(evidence)
    return np.asarray(evidence.poses[torch.arange(B), at].numpy())


def chooser(agent: type[Any], trajectory: Callable[..., Any]) -> type[Any]:
    """A subclass of a Drive-JEPA-like agent that drives the proposal chosen by its readout.

    `agent` is the devkit's (an `AbstractAgent` with `get_feature_builders`, and the network as
    `model` or `_model`), `trajectory` the devkit's `Trajectory`. Set `readout` on the
    instance; without one it drives as before.
    """

    class Chooser(agent):  # type: ignore[misc]
        readout: Chooses | None = None

        def compute_trajectory(self, agent_input: Any) -> Any:
            if self.readout is None:
                return super().compute_trajectory(agent_input)
            features: dict[str, Tensor] = {}
            for builder in self.get_feature_builders():
                features |= builder.compute_features(agent_input)
            batch = {name: value.unsqueeze(0) for name, value in features.items()}
            model = getattr(self, "model", None) or self._model
            model.eval()
            return trajectory(choose(model, batch, self.readout)[0])

    return Chooser


def judged(
    poses: npt.NDArray[Any], score: Callable[[npt.NDArray[Any]], Any]
) -> dict[str, npt.NDArray[np.float64]]:
    """(K, 8, 3) proposals -> (K,) PDMS and each of its parts.

    `score` judges one (8, 3) proposal, such as
    `lambda p: pdm_score(metric_cache, Trajectory(p), sampling, simulator, scorer)`.
    """
    results = [score(one) for one in poses]
    return {
        name: np.array([float(getattr(result, theirs)) for result in results])
        for name, theirs in PARTS.items()
    }
