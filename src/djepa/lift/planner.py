"""A planner: geometries, alignment, composition and lift. Maps frames and candidates to a plan.

`djepa export` writes all of it into one file (lift/file.py); `load_planner` reads it.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from djepa.align.fit import Alignment, Decision
from djepa.align.gates import Gate
from djepa.align.methods import PLASTIC, Composition, decide_composed
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence, same_weights
from djepa.lift.file import check_parts, read_planner
from djepa.lift.ordinal import realize
from djepa.models.fallback import Checked
from djepa.models.fast import RECORDED, Inputs, Predicted, Way, predict_frames
from djepa.models.protocol import Geometry


class Plan(NamedTuple):
    """The chosen candidates of N starts, the decision behind them, and the lifted futures."""

    choice: Tensor  # (N,) candidate IDs
    order: Tensor  # (N, K) candidate IDs, best first
    decision: Decision  # scores and gate
    futures: Tensor  # (N, K, B, D) of the lifted geometry: native distance gives `order`
    goal: Tensor  # (N, D) goals of the lifted geometry


class Planner:
    """Predicts, decides and lifts from evidence alone; no method takes an outcome."""

    def __init__(
        self,
        geometries: Mapping[str, Geometry],
        alignment: Alignment,
        lifted: str,
        composition: Composition | None = None,
    ) -> None:
        check_parts(alignment, dict.fromkeys(geometries), lifted)
        self.geometries, self.alignment, self.lifted = dict(geometries), alignment, lifted
        self.composition, c = composition, alignment.config
        self.read, self.ends = c.geometries, c.latents  # read for costs; for last latents
        if composition is not None:  # one more geometry, whose futures replace TD-JEPA's
            model = self.geometries[composition.patch.geometry]
            self.geometries[PLASTIC] = composition.adapted(model)
            self.read, self.ends = (*self.read, PLASTIC), (*self.ends, PLASTIC)
        self.way: Way | None = None  # of predicting; None: plain on a CPU, recorded on a GPU
        self._checked: dict[tuple[str, ...], Checked] = {}

    @torch.inference_mode()
    def plan(
        self,
        context_frames: Tensor,
        history: Tensor,
        goal_frame: Tensor,
        candidates: Tensor,
        ids: Tensor,
        proprio: Tensor | None = None,
        lift: bool = True,
    ) -> Plan:
        """Choose among candidates and, with `lift`, write the order into the futures (Eq. 4).

        Frames (N, 3, px, px, 3) and (N, px, px, 3) uint8, history (N, 10, A), candidates
        (N, K, H, A), IDs (N, K); proprioception (N, 4, 4) of the three frames and of the goal, for
        geometries that take it. Ranks depend on the pool, so pass the final pool.
        """
        given = self._inputs(context_frames, history, goal_frame, candidates, proprio)
        costs, ends, goals = {}, {}, {}
        kept: tuple[Tensor, Tensor] | None = None
        for name, predicted in self.predict(tuple(self.geometries), given).items():
            costs[name], futures, goal = predicted  # costs of unrounded futures
            if name in self.ends:
                ends[name], goals[name] = futures[:, :, -1].half(), goal.half()
            if name == self.lifted:
                kept = futures.half(), goal.half()
        assert kept is not None
        names = [str(i) for i in range(len(ids))]
        evidence = Evidence.from_arrays(
            start_ids=names, candidate_ids=ids, costs=costs, latents=ends, goals=goals
        )
        decision = self.decide(evidence)
        lifted = realize(*kept, decision.final, ids) if lift else kept[0]
        return Plan(decision.choice, decision.order, decision, lifted, kept[1])

    @property
    def gate(self) -> Gate:
        """The gate of the composition, or else of the alignment."""
        if self.composition is not None:
            return Gate(self.composition.threshold)
        assert self.alignment.gate is not None  # `decide` requires a gate
        return self.alignment.gate

    def decide(self, evidence: Evidence) -> Decision:
        """Decide from evidence of all geometries, with the composition if there is one."""
        if self.composition is None:
            return self.alignment.decide(evidence)
        same_weights({PLASTIC: self.composition.hash}, evidence.weights)
        return decide_composed(self.alignment, self.composition.threshold, evidence)

    @torch.inference_mode()
    def search_cost(
        self,
        context_frames: Tensor,
        history: Tensor,
        goal_frame: Tensor,
        candidates: Tensor,
        proprio: Tensor | None = None,
    ) -> Tensor:
        """(N, K) native cost of the lifted geometry, comparable between populations of a search.

        Search with this cost, then call `plan` on the final population.
        """
        given = self._inputs(
            context_frames, history, goal_frame, candidates, proprio, (self.lifted,)
        )
        return self.predict((self.lifted,), given)[self.lifted].cost

    def predict(self, names: tuple[str, ...], given: Inputs) -> dict[str, Predicted]:
        """Predictions of these geometries: on a GPU in one recorded call, on a CPU one by one."""
        models, device = {name: self.geometries[name] for name in names}, given.candidates.device
        nets = all(isinstance(model, nn.Module) for model in models.values())
        if not nets or (self.way is None and device.type != "cuda"):
            return {name: predict_frames(model, given) for name, model in models.items()}
        if names not in self._checked:
            self._checked[names] = Checked(models, device, self.way or RECORDED)
        return self._checked[names].predict(given)

    def feeling(self, among: Iterable[str] = ()) -> list[str]:
        """Names of the geometries (all, or of `among`) that read proprioception."""
        names = tuple(among) or tuple(self.geometries)
        return [name for name in names if hasattr(self.geometries[name], "proprio_weight")]

    def _inputs(
        self,
        frames: Tensor,
        history: Tensor,
        goal: Tensor,
        candidates: Tensor,
        proprio: Tensor | None,
        among: tuple[str, ...] = (),
    ) -> Inputs:
        """Inputs of the geometries; proprioception may be missing only if no geometry reads it.

        Zeros would otherwise mean a pusher at a wrong position.
        """
        if proprio is None:
            if feels := self.feeling(among):
                raise DjepaError(
                    f"{', '.join(feels)} of this planner read proprioception: give proprio "
                    "(N, 4, 4), of the three context frames and of the goal."
                )
            proprio = torch.zeros(len(candidates), 4, 4, device=candidates.device)
        return Inputs(frames, goal, proprio, history, candidates)


def load_planner(file: Path, device: str | torch.device = "cpu") -> Planner:
    """Load the planner file that `djepa export` wrote; no other file is needed."""
    parts = read_planner(file, device)
    return Planner(parts.geometries, parts.alignment, parts.lifted, parts.composition)


def planned_geometries(
    file: Path, device: str | torch.device, world: str
) -> list[tuple[Geometry, str]]:
    """Each geometry of a planner with the hash of its weights; raises for another world."""
    parts = read_planner(file, device)
    for name, trained in parts.worlds.items():
        if trained not in ("", world):
            raise DjepaError(f"'{name}' of {file} was trained in the world '{trained}', not in "
                             f"'{world}'.")  # fmt: skip
    planner = Planner(parts.geometries, parts.alignment, parts.lifted, parts.composition)
    hashes = dict(parts.hashes)
    if parts.composition is not None:
        hashes[PLASTIC] = parts.composition.hash
    return [(model, hashes[name]) for name, model in planner.geometries.items()]
