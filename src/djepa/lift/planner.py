"""A planner in one folder: geometries, alignment and lift. Frames and candidates in, a plan out.

FOLDER/
  manifest.json       names, the geometry that is lifted, hashes of the manifests of all parts
  geometries/NAME/    weights, as `djepa train` writes them
  alignment/          as `djepa fit` writes it

Legend: N starts, K candidates, H controls, B blocks of five, A action width, D latent.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor, nn

from djepa.align.fit import Alignment, Decision
from djepa.align.store import load_alignment, save_alignment
from djepa.artefacts.folder import Folder
from djepa.artefacts.records import MANIFEST, Kind
from djepa.artefacts.write import Writer
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence, same_weights
from djepa.lift.ordinal import native_distance, realize
from djepa.models.fast import Fast, Inputs, Predicted, predict_frames
from djepa.models.protocol import Geometry
from djepa.models.weights import copy_weights, geometry_name, load_geometry, weights_hash


class PlannerRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the manifest says of a planner."""

    geometries: list[str]
    lifted: str


PLANNER = Kind("planner", "djepa-planner", 2, PlannerRecord, again="Export the planner again.")


class Plan(NamedTuple):
    """What to execute, and why."""

    choice: Tensor  # (N,) candidate IDs
    order: Tensor  # (N, K) candidate IDs, best first
    decision: Decision  # scores and gate
    futures: Tensor  # (N, K, B, D) of the lifted geometry: native distance gives `order`
    goal: Tensor  # (N, D) its goals


class Planner:
    """Label-free: nothing it holds or takes has a place for an outcome."""

    def __init__(
        self, geometries: Mapping[str, Geometry], alignment: Alignment, lifted: str
    ) -> None:
        _check_parts(alignment, dict.fromkeys(geometries), lifted)
        self.geometries, self.alignment, self.lifted = dict(geometries), alignment, lifted
        self._fast: dict[str, Fast] = {}  # recorded calls, on a GPU

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
        """Choose among candidates, and unless `lift` is off write the order into the futures.

        Frames (N, 3, px, px, 3) and (N, px, px, 3) uint8, history (N, 10, A), candidates
        (N, K, H, A), IDs (N, K); proprioception (N, 4, 4) of the three frames and of the goal, for
        geometries that take it. Ranks are within the pool, so give the pool that is final.
        """
        given = _inputs(context_frames, history, goal_frame, candidates, proprio)
        costs, ends, goals = {}, {}, {}
        kept: tuple[Tensor, Tensor] | None = None
        for name in self.geometries:
            costs[name], futures, goal = self._predict(name, given)  # costs of unrounded futures
            if name in self.alignment.config.latents:
                ends[name], goals[name] = futures[:, :, -1].half(), goal.half()
            if name == self.lifted:
                kept = futures.half(), goal.half()
        assert kept is not None
        names = [str(i) for i in range(len(ids))]
        evidence = Evidence.from_arrays(
            start_ids=names, candidate_ids=ids, costs=costs, latents=ends, goals=goals
        )
        decision = self.alignment.decide(evidence)
        lifted = realize(*kept, decision.final, ids) if lift else kept[0]
        return Plan(decision.choice, decision.order, decision, lifted, kept[1])

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

        Search with this; when the population is final, `plan` decides within it.
        """
        given = _inputs(context_frames, history, goal_frame, candidates, proprio)
        return self._predict(self.lifted, given).cost

    def _predict(self, name: str, given: Inputs) -> Predicted:
        """By one geometry: on a GPU a recorded call, on a CPU the plain one."""
        geometry: object = self.geometries[name]
        if not (given.candidates.is_cuda and isinstance(geometry, nn.Module)):
            return predict_frames(self.geometries[name], given)
        if name not in self._fast:
            self._fast[name] = Fast(self.geometries[name], given.candidates.device)
        return self._fast[name].predict(given)


def _inputs(
    frames: Tensor, history: Tensor, goal: Tensor, candidates: Tensor, proprio: Tensor | None
) -> Inputs:
    if proprio is None:
        proprio = torch.zeros(len(candidates), 4, 4, device=candidates.device)
    return Inputs(frames, goal, proprio, history, candidates)


def reads_back(plan: Plan, ids: Tensor) -> bool:
    """Whether plain native distance on the lifted futures gives the plan's order."""
    from djepa.evidence.ranks import order

    return torch.equal(
        ids.gather(1, order(native_distance(plan.futures, plan.goal), ids)), plan.order
    )


def export_planner(
    alignment: Alignment, weights: Sequence[str], lifted: str, folder: Path, card: dict[str, Any]
) -> None:
    """Write everything into one folder, the manifest last; nothing if a part is missing."""
    where = {geometry_name(place): place for place in weights}
    hashes = {name: weights_hash(place) for name, place in where.items()}
    _check_parts(alignment, hashes, lifted)
    about, parts = {"geometries": [*where], "lifted": lifted}, {}
    writer = Writer(folder, PLANNER, about, {f"weights of {n}": of for n, of in hashes.items()})
    with writer.opened():
        if writer.complete:
            raise DjepaError(f"{folder} holds a finished planner already. Choose another folder.")
        for part in ("geometries", "alignment"):  # what an earlier try left
            shutil.rmtree(folder / part, ignore_errors=True)
        for name, place in where.items():
            copy_weights(place, folder / "geometries" / name)
            parts[f"geometries/{name}/{MANIFEST}"] = folder / "geometries" / name
        save_alignment(alignment, folder / "alignment", card)
        parts[f"alignment/{MANIFEST}"] = folder / "alignment"
        writer.enter({name: (part / MANIFEST).read_bytes() for name, part in parts.items()})
        writer.finish()


def load_planner(folder: Path, device: str | torch.device = "cpu") -> Planner:
    """A planner, ready to plan; every file is checked against its hash."""
    stored = Folder(folder, PLANNER)
    stored.verify()
    record: PlannerRecord = stored.about
    where = {name: folder / "geometries" / name for name in record.geometries}
    for name, place in where.items():
        stored.belongs(f"weights of {name}", weights_hash(place))
    alignment = load_alignment(folder / "alignment")
    _check_parts(alignment, {n: weights_hash(place) for n, place in where.items()}, record.lifted)
    models = {name: load_geometry(place, device) for name, place in where.items()}
    assert alignment.operator is not None
    alignment.operator.to(device)
    return Planner(models, alignment, record.lifted)


def _check_parts(alignment: Alignment, hashes: Mapping[str, str | None], lifted: str) -> None:
    """The alignment has all geometries it reads, and those that it was fitted with."""
    missing = sorted({*alignment.config.geometries, lifted} - hashes.keys())
    if missing:
        raise DjepaError(f"The planner needs the geometries {', '.join(missing)} too.")
    same_weights(alignment.weights, {name: of for name, of in hashes.items() if of is not None})
