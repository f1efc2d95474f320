"""One small folder of every kind there is, and how each is read. Most arrays are made up."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from artefact import Artefact, TypedAlignment, TypedComposition, TypedGeometry, rehashed
from made_up import PAIR, banks, closed_loop, fitted, readouts, recorded
from torch import Tensor

from djepa.align.driving_store import READOUT
from djepa.align.fit import AlignConfig, Alignment
from djepa.align.gates import Gate
from djepa.align.methods import Composition, Population
from djepa.align.operator import OperatorConfig
from djepa.align.outcomes import Outcomes
from djepa.align.plastic import (
    PATCH,
    Patch,
    apply_patch,
    base_hash,
    load_patch,
    plastic_names,
    save_patch,
)
from djepa.align.store import ALIGNMENT, load_alignment, save_alignment
from djepa.align.suite import COMPOSED, SUITE_KIND, Recipe, fit_suite, load_suite, unseen
from djepa.artefacts.folder import seal_shard
from djepa.artefacts.records import Kind, encode_json, sha256
from djepa.bank.bimanual import BIMANUAL
from djepa.bank.driving import TRAFFIC
from djepa.bank.read import Bank
from djepa.bank.schema import BANK
from djepa.control.loop import CONTROL
from djepa.control.visited import VISITED
from djepa.evidence.evidence import Evidence
from djepa.lift.file import PLANNER, write_planner
from djepa.lift.head import HEAD, load_head, save_head
from djepa.lift.planner import load_planner
from djepa.lift.temporal import (
    Checkpoint,
    TemporalAlignment,
    TemporalConfig,
    Trajectories,
    load_temporal,
    save_temporal,
)
from djepa.lift.transport import TemporalTransport
from djepa.models.bimanual import load_policy
from djepa.models.bimanual_jepa import load_jepa
from djepa.models.episodes import SHARD, Shard, length
from djepa.models.lewm import LeWM
from djepa.models.predictions import EVIDENCE, predict_bank, read_predictions
from djepa.models.tdjepa import TDJEPA
from djepa.models.traffic_predict import load_scorer
from djepa.models.weights import (
    CHECKOUT,
    DRIVING,
    GEOMETRY,
    TWO_ARMS,
    TWO_ARMS_JEPA,
    load_geometry,
    read_card,
    save_geometry,
    weights_hash,
)
from djepa.studies.bimanual_fits import GATES_KIND
from djepa.studies.driving_fits import GUARANTEE
from djepa.studies.stages import STUDY, check_sealed, claim, seal
from djepa.tasks.recorded import RECORDED
from tiny import TINY

QUICK = AlignConfig(
    updates=2,
    every=1,
    batch=4,
    operator=OperatorConfig(inputs=1, width=8, layers=1, heads=2, hidden=8),
)
RECIPE = Recipe({"fusion": (PAIR, None)}, {"log costs": QUICK})
KINDS_OF = (
    *(BANK, EVIDENCE, GEOMETRY, ALIGNMENT, PATCH, SUITE_KIND, PLANNER, STUDY, CONTROL, VISITED),
    *(TRAFFIC, BIMANUAL, RECORDED, READOUT, GATES_KIND, GUARANTEE, DRIVING, TWO_ARMS, HEAD),
    *(TWO_ARMS_JEPA,),
)


class Sums:
    """Sums of controls as latents: a geometry that costs nothing."""

    name, image, latent = "sums", 16, 3

    def encode(self, frames: Tensor, proprio: Tensor) -> Tensor:
        return proprio[..., :3] / 512

    def rollout(self, context: Tensor, history: Tensor, candidates: Tensor) -> Tensor:
        sums = candidates.unflatten(2, (-1, 5)).mean(3).cumsum(2)
        return context[:, -1][:, None, None] + torch.nn.functional.pad(sums, (0, 1))

    def native_cost(self, futures: Tensor, goal: Tensor) -> Tensor:
        return (futures[:, :, -1] - goal[:, None]).square().mean(-1)


def population(split: str, weights: dict[str, str]) -> Population:
    rng = np.random.default_rng([ord(c) for c in split])
    N, K, D = 8, 6, 4
    success = rng.random((N, K)) < 0.4
    success[:, :2] = True, False
    found = Evidence.from_arrays(
        start_ids=[sha256(f"{split}-{n}".encode()) for n in range(N)],
        candidate_ids=rng.random((N, K)).argsort(1),
        costs={name: rng.random((N, K)) for name in PAIR},
        latents={name: rng.normal(size=(N, K, D)).astype(np.float32) for name in PAIR},
        goals={name: rng.normal(size=(N, D)).astype(np.float32) for name in PAIR},
    )
    evidence = Evidence(**{**vars(found), "weights": weights})
    y = torch.from_numpy(success)
    return Population(evidence, Outcomes(evidence.identities, y, torch.ones_like(y)))


def make_all(root: Path, small_bank: Path) -> dict[str, Artefact]:
    """All of them below one folder."""
    home = root / "w"
    for seed, kind in enumerate((LeWM, TDJEPA)):
        torch.manual_seed(seed)
        save_geometry(kind(TINY).eval(), home / kind.name, {"recipe": {"world": "push"}})
    weights = {name: weights_hash(home / name) for name in PAIR}
    parts = population("fit", weights), population("cal", weights)
    alignment = Alignment(QUICK).fit(parts[0].evidence, parts[0].outcomes)
    alignment.calibrate(parts[1].evidence, parts[1].outcomes)
    alignment.gate = Gate(0.0625)  # an open one, of an operator that says something
    for parameter in alignment.operator.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    save_alignment(alignment, root / "alignment", {"note": "x"})
    shutil.copytree(small_bank, root / "bank")
    shutil.copytree(small_bank, root / "predicted")
    predict_bank(Bank(root / "predicted"), Sums(), "abc")
    return {
        "bank": Artefact(BANK, root / "bank", lambda: _bank(root / "bank")),
        "evidence": Artefact(
            EVIDENCE,
            root / "predicted/evidence/sums",
            lambda: read_predictions(Bank(root / "predicted"), "sums"),
            within=root / "predicted",
        ),
        "weights": Artefact(
            GEOMETRY,
            home / "tdjepa",
            lambda: _weights(home / "tdjepa"),
            types={"config.json": TypedGeometry},
        ),
        "alignment": Artefact(
            ALIGNMENT,
            root / "alignment",
            lambda: _decided(load_alignment(root / "alignment")),
            types={"config.json": TypedAlignment},
        ),
        "temporal": _temporal(root / "temporal", alignment),
        "head": _head(root / "head"),
        "patch": _patch(root / "patch", home),
        "suite": _suite(root / "suite", parts),
        "planner": _planner(root / "planner", alignment, home),
        "study": _study(root / "study"),
        "episodes": _episodes(root / "episodes"),
        **closed_loop(root, weights),
        **banks(root),
        **readouts(root),
        **fitted(root),
        "recorded": recorded(root / "recorded"),
        "driving model": _native(DRIVING, root / "traffic", load_scorer),
        "policy": _native(TWO_ARMS, root / "bimanual", load_policy),
        "patch JEPA": _native(TWO_ARMS_JEPA, root / "bimanual-jepa", load_jepa),
    }


def _bank(path: Path) -> Any:
    bank = Bank(path)
    return bank.config, bank.manifest, bank.decisions, bank.outcomes, bank.provenance


def _weights(path: Path) -> Any:
    return load_geometry(path), read_card(path)


def _temporal(path: Path, alignment: Alignment) -> Artefact:
    head = TemporalTransport(8, 0.2)
    head.initialise(torch.Generator().manual_seed(0))
    history = (Checkpoint(1, 0.5, 3, 0.25, 0.125),)
    config = TemporalConfig(QUICK, hidden=8, radius=0.2)
    save_temporal(TemporalAlignment(config, alignment, head, history), path, {"note": "x"})
    ours = population("new", alignment.weights).evidence
    futures = [of[:, :, None].repeat(1, 1, 2, 1) for of in ours.latents.values()]
    paths = Trajectories(*futures, ours.goals["tdjepa"])

    def read() -> Any:
        found = load_temporal(path)
        cost = found.transport(
            ours, paths, lambda x, goal: (x[:, :, -1] - goal[:, None]).norm(dim=-1)
        )
        return _decided(found.relational), cost, found.history

    return Artefact(ALIGNMENT, path, read, known=("config.json/",))


def _head(path: Path) -> Artefact:
    save_head(TemporalTransport(8, 0.2), path, {"note": "x"})
    return Artefact(HEAD, path, lambda: load_head(path))


def _decided(alignment: Alignment) -> Any:
    """What an alignment makes of some evidence, and the weights that it may be given."""
    return alignment.decide(population("new", alignment.weights).evidence), alignment.weights


def _patched(home: Path, name: str) -> Patch:
    model = load_geometry(home / name)
    ends = {name: model.get_parameter(name).detach() for name in plastic_names(model)}
    return Patch(name, base_hash(model), ends, {"note": "x"})


def _patch(path: Path, home: Path) -> Artefact:
    save_patch(_patched(home, "lewm"), path)
    model = load_geometry(home / "lewm")
    return Artefact(PATCH, path, lambda: apply_patch(model, load_patch(path)))


def _suite(path: Path, parts: tuple[Population, Population]) -> Artefact:
    fit_suite(path, *parts, {"bank": "abc"}, recipe=RECIPE)
    data = encode_json(path / COMPOSED, {"threshold": 0.125, "bank": "abc"})
    (path / COMPOSED).write_bytes(data)  # as where there is an adapted predictor
    (path / "manifest.json").write_bytes(rehashed(path / "manifest.json", COMPOSED, data))

    def read() -> Any:
        suite, new = load_suite(path, RECIPE), population("new", parts[0].evidence.weights).evidence
        unseen(path, new)
        chosen = {name: choose(new) for name, choose in suite.choosers(PAIR).items()}
        return chosen, suite.threshold, [a.weights for a in suite.alignments.values()]

    return Artefact(SUITE_KIND, path, read, types={COMPOSED: TypedComposition})


def _planner(path: Path, alignment: Alignment, home: Path) -> Artefact:
    file = path / "p.safetensors"
    composition = Composition(_patched(home, "tdjepa"), 0.125, "abc")
    places = [str(home / name) for name in PAIR]
    write_planner(file, alignment, places, "tdjepa", {"note": "x"}, composition)

    def read() -> Any:
        planner = load_planner(file)
        parts = planner.geometries, _decided(planner.alignment), planner.lifted, planner.composition
        return *parts, planner.read, planner.ends, planner.gate

    known = ("record/alignment.align", "record/alignment.report", "record/geometries.lewm.config.c")
    return Artefact(PLANNER, path, read, sealed=file.name, known=known)


def _study(path: Path) -> Artefact:
    (path / "rows").mkdir(parents=True)
    for name, text in (("rows/a.csv", "start,success\n1,1\n"), ("audit.json", "[1]")):
        (path / name).write_text(text)
    (path / "study.json").write_bytes(encode_json(path, {"study": "x", "seed": 0}))
    seal(path)
    claim(path, {"study": "x", "seed": 0})
    return Artefact(STUDY, path, lambda: check_sealed(path))


def _episodes(path: Path) -> Artefact:
    """One file of a training."""
    path.mkdir()
    shard, rng = Shard(path, "push", ("T",), 3, 0), np.random.default_rng(3)
    states = rng.normal(size=(SHARD, length("push") + 1, 10)).astype(np.float32)
    controls = rng.normal(size=(SHARD, length("push"), 2)).astype(np.float32)
    arrays = {"states": states, "controls": controls}
    shard.path.write_bytes(seal_shard(shard.path, arrays, shard.record))
    return Artefact(None, path, shard.read, sealed=shard.path.name)


def _native(kind: Kind, path: Path, load: Callable[[Path], Any]) -> Artefact:
    shutil.copytree(CHECKOUT / "weights" / path.name, path)
    return Artefact(kind, path, lambda: load(path))
