"""Small folders whose arrays are made up, in the shapes that the programs give them."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from artefact import Artefact, TypedVisits

from djepa.align.driving import AnchorRelative, Normal, ScoreCorrection
from djepa.align.driving_fit import Anchored, Corrected, Setting
from djepa.align.driving_fusion import Fused
from djepa.align.driving_store import READOUT, load_readout, save_readout
from djepa.align.gates import Gate
from djepa.align.preserve import Fixed, Threshold
from djepa.align.risk import Guarantee
from djepa.artefacts.folder import Folder, encode
from djepa.artefacts.records import encode_json, sha256
from djepa.artefacts.write import save
from djepa.bank.bimanual import BIMANUAL, BimanualBank
from djepa.bank.driving import TRAFFIC, TrafficBank
from djepa.control.episodes import EpisodeConfig, list_hash
from djepa.control.loop import CONTROL
from djepa.control.planners import COST, ENDS, GOAL
from djepa.control.recorded import packed
from djepa.control.results import Episodes
from djepa.control.visited import VISITED, read_visited
from djepa.interop.record import DecisionRecord, Outcome, Scorer
from djepa.pools.bimanual import P
from djepa.rollout.bimanual import BimanualConfig
from djepa.rollout.driving import PARTS, TrafficConfig
from djepa.studies.bimanual_fits import FILE, GATES_KIND, SCALARS, GatesRecord, TaskGates
from djepa.studies.driving_fits import FILE as LIMIT
from djepa.studies.driving_fits import GUARANTEE
from djepa.tasks.recorded import RECORDED, RecordedAbout, Recording

PAIR = ("lewm", "tdjepa")
HARMED = Guarantee(Gate(0.25, "refined_gap", 8), True, 9, 1, 4, 0.02, 0.9)
Arrays = dict[str, Any]


def closed_loop(root: Path, weights: dict[str, str]) -> dict[str, Artefact]:
    """Episodes as `djepa control --decisions` leaves them, and pools at what they visited."""
    ran, seen, rng = root / "ran", root / "visited", np.random.default_rng(0)
    config = EpisodeConfig(split="attack", seed=3, episodes=3, goal=10, budget=10, block=2)
    names = [sha256(f"{n}".encode()) for n in range(config.episodes)]
    planner = {"planner": "aligned", "limit": 1.0, "weights": weights, "record": True}
    about = {"config": asdict(config), "planner": planner, "versions": {"djepa": "1"}}
    said = DecisionRecord(
        "e:0", (4, 7), 7, (7, 4), (Scorer("lewm", (1.0, 0.5)),), outcome=Outcome(True, 0.5, "x")
    )
    T, R, rows = config.budget, config.rounds, {"ran": {}, "visited": {}}
    for block in range(config.starts().blocks):
        numbers = config.starts().members(block)
        N, V = len(numbers), R * len(numbers)  # episodes, decisions
        arrays = {
            "number": np.array(numbers),
            "goal": rng.normal(size=(N, 10)),
            "states": rng.normal(size=(N, T + 1, 10)),
            "controls": rng.normal(size=(N, T, 2)).astype(np.float32),
            "cost": rng.random((N, T + 1)),
            "floor_cost": rng.random((N, T + 1)),
            "executed": np.full(N, T),
            "candidate": rng.integers(0, 8, (N, R)),
            "opened": rng.random((N, R)) < 0.5,
            "evaluations": rng.integers(0, 99, (N, len(weights))),
            "decisions": packed(
                [
                    msgspec.structs.replace(said, start=f"{names[n]}:{turn}")
                    for n in numbers
                    for turn in range(R)
                ]
            ),
        }
        pools = {
            "episode": np.tile(arrays["number"], R),
            "turn": np.repeat(np.arange(R), N),
            "ids": rng.random((V, 5)).argsort(1),
            **{COST + n: rng.random((V, 5)) for n in PAIR},
            **{ENDS + n: rng.random((V, 5, 3)).astype(np.float16) for n in PAIR},
            **{GOAL + n: rng.random((V, 3)).astype(np.float16) for n in PAIR},
            "success": np.arange(5) < rng.integers(1, 4, (V, 1)),
            "cost": rng.random((V, 5)),
        }
        rows["ran"][f"episodes/{block:06d}.safetensors"] = encode(arrays)
        rows["visited"][f"pools/{block:06d}.safetensors"] = encode(pools)
    more = {"names": names, "list_hash": list_hash(names), "frozen": False}
    save(ran, CONTROL, rows["ran"], {**about, **more})
    episodes = Episodes(ran)
    save(seen, VISITED, rows["visited"], {"planner": planner}, {"episodes": episodes.hash})

    def read() -> Any:
        found = Episodes(ran)
        said = found.summary((5,)), found.decisions(), found.rows("ours", "case")
        own = {name: of for name, of in found.arrays.items() if name != "decisions"}
        return found.folder.about, own, *said

    return {
        "control": Artefact(CONTROL, ran, read),
        "visited": Artefact(
            VISITED,
            seen,
            lambda: read_visited(seen, episodes, range(3), PAIR),
            types={"about": TypedVisits},
        ),
    }


def banks(root: Path) -> dict[str, Artefact]:
    """Two blocks each."""
    drives, arms, rng = root / "drives", root / "arms", np.random.default_rng(1)
    traffic = TrafficConfig("fit", 3, 1, seed=2, block=2, vocabulary="abc")
    bimanual = BimanualConfig("fit", "grab roller", 3, seed=2, block=2, policy="abc")
    files: dict[str, dict[str, bytes]] = {"drives": {}, "arms": {}}
    for block, N in enumerate((2, 1)):
        for kind, arrays in _scenes(rng, N, 2 * block).items():
            files["drives"][f"{kind}/block-{block:06d}.safetensors"] = encode(arrays)
        for kind, arrays in _starts(rng, N, 2 * block).items():
            files["arms"][f"{kind}/block-{block:06d}.safetensors"] = encode(arrays)
    blocks = [{"starts": 2}, {"starts": 1}]
    save(drives, TRAFFIC, files["drives"], {"config": asdict(traffic), "blocks": blocks})
    save(arms, BIMANUAL, files["arms"], {"config": asdict(bimanual), "blocks": blocks})

    def read(bank: Any, shown: str) -> Any:
        known = bank.known
        return bank.config, bank.manifest, len(bank), known, known.names, getattr(bank, shown)

    return {
        "driving bank": Artefact(TRAFFIC, drives, lambda: read(TrafficBank(drives), "parts")),
        "bimanual bank": Artefact(BIMANUAL, arms, lambda: read(BimanualBank(arms), "outcome")),
    }


def _scenes(rng: np.random.Generator, N: int, first: int) -> dict[str, Arrays]:
    K = 4
    forecasts = {name: rng.random((N, K, len(PARTS))) for name in ("straight", "lanes", "rules")}
    decision = {
        "place": np.stack([np.arange(N) + first, np.zeros(N, int)], 1),
        "identity": rng.integers(0, 256, (N, 32), np.uint8),
        "log": rng.integers(0, 256, (N, 32), np.uint8),
        "ids": np.tile(np.arange(K), (N, 1)),
        "poses": rng.normal(size=(N, K, 8, 3)),
        "ego": rng.normal(size=(N, 6)),
        "frame": rng.integers(0, 256, (N, 9, 64, 64), np.uint8),
        **forecasts,
    }
    return {"decision": decision, "outcome": {"parts": rng.random((N, K, len(PARTS)))}}


def _starts(rng: np.random.Generator, N: int, first: int) -> dict[str, Arrays]:
    K, H = 17, 40
    decision = {
        "number": np.arange(N) + first,
        "identity": rng.integers(0, 256, (N, 32), np.uint8),
        "state": rng.normal(size=(N, 60)),
        "image": rng.integers(0, 256, (N, 60, 80, 3), np.uint8),
        "ids": np.tile(np.arange(K), (N, 1)),
        "commands": rng.normal(size=(N, K, H, 14)).astype(np.float32),
        "targets": rng.normal(size=(N, K, P)),
        **{name: rng.normal(size=(N, P)) for name in ("seen", "expected")},
        **{
            n: rng.random((N, K))
            for n in ("apart", "visual", "scene", "effort", "timing", "missed")
        },
        **{name: rng.random(N) for name in ("relation", "distance", "doubt")},
    }
    outcome = {
        "success": rng.random((N, K)) < 0.5,
        "cost": rng.random((N, K)),
        "first": rng.integers(0, H, (N, K)),
        "length": rng.integers(1, H, (N, K)),
        "error": rng.random((N, K)) < 0.1,
    }
    return {"decision": decision, "outcome": outcome}


def readouts(root: Path) -> dict[str, Artefact]:
    random = torch.Generator().manual_seed(0)
    few, many = (Normal(torch.randn(n), 1 + torch.rand(n)) for n in (8, 20))
    found = {
        "fused readout": Fused(few, torch.randn(9).double()),
        "corrected readout": Corrected(ScoreCorrection(20, random, False), many, 0.5, 3),
        "anchored readout": Anchored(AnchorRelative(20, random), many, Setting(16, 0.5, 0.1, 0.02)),
    }
    for name, readout in found.items():
        save_readout(readout, root / name, {"note": "x"})
    return {
        name: Artefact(READOUT, root / name, lambda path=root / name: load_readout(path))
        for name in found
    }


def fitted(root: Path) -> dict[str, Artefact]:
    gates, limit = root / "gates", root / "limit"
    task = TaskGates(Fixed(3), {name: Threshold(1, 0.25) for name in SCALARS}, Threshold(-1, 0.5))
    record = msgspec.to_builtins(GatesRecord({"grab roller": task}, HARMED))
    save(gates, GATES_KIND, {FILE: encode_json(gates / FILE, record)})
    save(limit, GUARANTEE, {LIMIT: encode_json(limit / LIMIT, asdict(HARMED))})
    return {
        "gates": Artefact(GATES_KIND, gates, lambda: Folder(gates, GATES_KIND).record(FILE)),
        "certified gate": Artefact(
            GUARANTEE, limit, lambda: Folder(limit, GUARANTEE).record(LIMIT)
        ),
    }


def recorded(path: Path) -> Artefact:
    rng = np.random.default_rng(2)
    about = RecordedAbout("somewhere", 8, 1, 5, 2, 4, 80)
    files = {}
    for block in range(2):
        arrays = {
            "frames": rng.integers(0, 256, (40, 8, 8, 3), np.uint8),
            "controls": rng.normal(size=(40, 2)).astype(np.float32),
            "lengths": np.array([18, 22]),
        }
        files[f"frames/{block:06d}.safetensors"] = encode(arrays)
    save(path, RECORDED, files, msgspec.to_builtins(about))

    def read() -> Any:
        found = Recording(path)
        parts = found.frames, found.controls, found.lengths, found.first
        return *parts, found.about, found.starts(False), found.starts(True)

    return Artefact(RECORDED, path, read)
