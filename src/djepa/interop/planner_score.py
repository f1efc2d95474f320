"""A planner that scores chunks of a policy, with the inputs of LeRobot's policy and a memory.

    scorer = PlannerScore(load_planner(Path("runs/planner.safetensors")))
    policy = choosing(policy, Chooser("planner", samples=16, planner=scorer))

The present frame and the goal frame are in the batch, the two earlier frames and the controls in
memory; before the first control the past repeats the present. The environment type `djepa` with
`poses` provides all inputs.

Legend: N rows of a batch, K chunks, T steps of one, A action width.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence
from djepa.interop.decide import record
from djepa.interop.record import DecisionRecord
from djepa.lift.planner import Planner
from djepa.models.fast import Inputs
from djepa.models.protocol import CONTEXT, STRIDE

NOW, GOAL, FELT = "observation.images.now", "observation.images.goal", "observation.robot_state"
PAST = (CONTEXT - 1) * STRIDE  # controls in a planner's history


class PlannerScore:
    """Costs and choices of a planner for the rows of the observed batches."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.reset()

    def reset(self) -> None:
        """Clear the memory before an episode."""
        self._frames, self._felt, self._controls = list[Tensor](), list[Tensor](), list[Tensor]()

    def see(self, batch: Mapping[str, Any]) -> None:
        """Store the observations before a control."""
        self._frames = [*self._frames, _frame(batch, NOW)][-PAST - 1 :]
        self._felt = [*self._felt, self._feel(batch, "now")][-PAST - 1 :]

    def did(self, action: Tensor) -> None:
        """Store the control (N, A) that is executed next."""
        self._controls = [*self._controls, action.detach().cpu().float()][-PAST:]

    def native(self, batch: Any, chunks: Tensor) -> dict[str, Tensor]:
        """(N, K) cost of the lifted geometry alone: a `score` of `Chooser`."""
        name = self.planner.lifted
        with torch.inference_mode():
            return {name: self.planner.predict((name,), self._inputs(batch, chunks))[name].cost}

    def decide(self, batch: Any, chunks: Tensor, names: list[str]) -> list[DecisionRecord]:
        """The gated choice among (N, K, T, A) chunks, by all geometries."""
        planner, costs, ends, goals = self.planner, {}, {}, {}
        given = self._inputs(batch, chunks)
        with torch.inference_mode():
            for name, predicted in planner.predict(tuple(planner.geometries), given).items():
                costs[name], futures, goal = predicted
                if name in planner.ends:
                    ends[name], goals[name] = futures[:, :, -1].half(), goal.half()
        N, K = chunks.shape[:2]
        evidence = Evidence.from_arrays(
            start_ids=names,
            candidate_ids=torch.arange(K).expand(N, -1).contiguous(),
            costs=costs,
            latents=ends,
            goals=goals,
        )
        return record(evidence, planner.decide(evidence), planner.gate)

    def _inputs(self, batch: Mapping[str, Any], chunks: Tensor) -> Inputs:
        if not self._frames:
            raise DjepaError("The planner has seen no frame: wrap the policy with `choosing`.")
        T = chunks.shape[2] // STRIDE * STRIDE
        if T < STRIDE:
            raise DjepaError(f"A planner needs chunks of {STRIDE} controls, not {chunks.shape[2]}.")
        frames = [self._frames[0]] * (PAST + 1 - len(self._frames)) + self._frames
        felt = [self._felt[0]] * (PAST + 1 - len(self._felt)) + self._felt
        still = torch.zeros(len(chunks), chunks.shape[-1])
        controls = [still] * (PAST - len(self._controls)) + self._controls
        proprio = torch.stack([*felt[::STRIDE], self._feel(batch, "goal")], 1)
        return Inputs(
            torch.stack(frames[::STRIDE], 1),
            _frame(batch, GOAL),
            proprio,
            torch.stack(controls, 1),
            chunks[:, :, :T].detach().cpu().float().clamp(-1, 1),
        )

    def _feel(self, batch: Mapping[str, Any], when: str) -> Tensor:
        """(N, 4) proprioception, or zeros if no geometry uses it."""
        felt = batch.get(FELT, {})
        if when in felt:
            return torch.as_tensor(felt[when]).cpu().float()
        if asks := self.planner.feeling():
            raise DjepaError(
                f"{', '.join(asks)} needs what is felt, and the batch has no {FELT}.{when}: "
                "--env.poses=true"
            )
        return torch.zeros(len(batch[NOW]), 4)


def _frame(batch: Mapping[str, Any], name: str) -> Tensor:
    """(N, px, px, 3) uint8 of a camera, which LeRobot gives as (N, 3, px, px) from 0 to 1."""
    if name not in batch:
        raise DjepaError(f"The planner needs the camera {name}; there are {', '.join(batch)}.")
    frame = batch[name].detach().cpu()
    if frame.min() < 0 or frame.max() > 1:
        raise DjepaError(
            f"{name} was normalised before it reached the policy. A planner needs the frame itself,"
            " from 0 to 1: train the policy with normalization_mapping VISUAL = IDENTITY."
        )
    return (255 * frame).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()
