"""An exported planner decides as torch does, for any number of starts and candidates."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from interop_kit import Kit
from scratch import needs
from test_interop_page import arrays, block

from commands import djepa
from djepa.align.fit import AlignConfig, Alignment
from djepa.align.gates import Gate
from djepa.align.methods import Composition
from djepa.align.outcomes import Outcomes
from djepa.align.plastic import Patch, base_hash, plastic_names
from djepa.errors import DjepaError, MissingExtraError
from djepa.evidence.evidence import Evidence
from djepa.evidence.logs import LogMixture
from djepa.interop.decision_graph import DecisionGraph
from djepa.interop.graph import OUTPUTS, Graph
from djepa.interop.onnx import export_onnx
from djepa.lift.planner import Planner
from djepa.models.dinowm import DINOWM
from djepa.models.fast import Inputs
from djepa.models.jepawm import JEPAWM
from djepa.models.tdjepa import TDJEPA
from tiny import TINY_PATCHES

HORIZON = 10  # two blocks: less to export
real = needs("onnx", "onnxruntime", "onnxscript")


def test_a_planner_is_read_before_the_export_is_announced(tmp_path: Path) -> None:
    (tmp_path / "junk").write_text("no planner")
    done = djepa("export", tmp_path / "junk", "--onnx", tmp_path / "g.onnx")
    assert (done.returncode, done.stdout) == (1, "")
    assert "junk is not a complete safetensors file" in done.stderr


def rich(kit: Kit) -> Planner:
    """With every further input that an alignment may have."""
    config = replace(kit.alignment.config, extras=("log", "agreement"), updates=3)
    outcomes = Outcomes.from_bank(kit.bank)
    found = Alignment(config).fit(kit.evidence, outcomes)
    assert found.report is not None
    weights = (1.0, 0.5, 0.3, 0.2, 0.4, 0.1, 0.3, 0.2)
    mixture = LogMixture(("lewm", "tdjepa"), ("lewm", "tdjepa"), weights, 0, 0, ranked=True)
    found.report = found.report._replace(fusion=mixture)
    found.gate = Gate(0.001, "refined_gap", decimals=6)
    return Planner(kit.planner.geometries, found, "tdjepa")


def shuffled(kit: Kit, N: int, K: int) -> tuple[Inputs, torch.Tensor]:
    """Some starts and candidates, whose IDs are in no order."""
    random = torch.Generator().manual_seed(N + K)
    at = torch.randperm(63, generator=random)[:K]
    g = kit.given
    parts = (x[:N] for x in (g.frames, g.goal, g.proprio, g.history))
    return Inputs(*parts, g.candidates[:N, at, :HORIZON].contiguous()), kit.ids[:N, at].contiguous()


def as_torch(planner: Planner, given: Inputs, ids: torch.Tensor) -> dict[str, np.ndarray]:
    known = (given.frames, given.history, given.goal, given.candidates, ids, given.proprio)
    d = planner.plan(*known, lift=False).decision
    gate = planner.alignment.gate
    assert gate is not None
    return {
        "choice": d.choice.numpy(),
        "order": d.order.numpy(),
        "opened": d.opened.numpy(),
        "advantage": gate.advantage(d.base, d.refined, ids).numpy(),
        "base": d.base.numpy(),
        "aligned": d.refined.numpy(),
        "final": d.final.numpy(),
    }


@pytest.mark.parametrize("which", ["published", "rich"])
def test_the_graph_is_the_planner_before_it_is_exported(kit: Kit, which: str) -> None:
    planner = kit.planner if which == "published" else rich(kit)
    graph = DecisionGraph(planner)
    for N, K in ((1, 10), (4, 63)):
        given, ids = shuffled(kit, N, K)
        known = (given.frames, given.history, given.goal, given.candidates, ids, given.proprio)
        with torch.no_grad():
            found = dict(zip(OUTPUTS, graph(*known), strict=True))
        for name, wanted in as_torch(planner, given, ids).items():
            if wanted.dtype.kind == "f":
                assert np.allclose(found[name].numpy(), wanted, atol=1e-6), name
            else:
                assert np.array_equal(found[name].numpy(), wanted), name


@pytest.fixture(scope="module")
def files(kit: Kit, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Planner, Path]]:
    found = {"published": kit.planner, "rich": rich(kit)}
    folder = tmp_path_factory.mktemp("graphs")
    for name, planner in found.items():
        export_onnx(planner, folder / f"{name}.onnx", HORIZON, "some hash")
    return {name: (planner, folder / f"{name}.onnx") for name, planner in found.items()}


@real
@pytest.mark.parametrize("which", ["published", "rich"])
def test_choices_are_equal_for_any_number_of_starts_and_candidates(
    kit: Kit, files: dict[str, tuple[Planner, Path]], which: str
) -> None:
    planner, path = files[which]
    graph = Graph(path)
    assert graph.about["planner"] == "some hash"
    for N, K in ((1, 10), (3, 17), (10, 63)):
        given, ids = shuffled(kit, N, K)
        named = {name: x.numpy() for name, x in given._asdict().items()}
        found = graph.plan(**named, ids=ids.numpy())
        wanted = as_torch(planner, given, ids)
        assert np.array_equal(found["choice"], wanted["choice"])
        gate = planner.alignment.gate
        assert gate is not None  # calibrated to the last bit of one of these starts: others agree
        clear = np.abs(wanted["advantage"] - gate.threshold) > 1e-6
        assert clear.sum() >= N - 1
        assert np.array_equal(found["opened"][clear], wanted["opened"][clear])
        assert np.allclose(found["aligned"], wanted["aligned"], atol=1e-5)
        assert np.allclose(found["final"][clear], wanted["final"][clear], atol=1e-5)
        assert found["costs"].shape == (N, K, 2)


@real
def test_wrong_inputs_are_named(
    kit: Kit, files: dict[str, tuple[Planner, Path]], tmp_path: Path
) -> None:
    graph, given = Graph(files["rich"][1]), arrays(kit)
    given["candidates"] = given["candidates"][:, :, :HORIZON]
    wrong = {
        r"frames must be \['N', 3, 28, 28, 3\]": {"frames": given["frames"][:, :2]},
        "history must be": {"history": given["history"][:1]},
        "candidates holds a NaN": {"candidates": np.full_like(given["candidates"], np.nan)},
        "unique in each start": {"ids": np.zeros_like(given["ids"])},
        "Give frames": {"path": np.zeros(1)},
    }
    for message, change in wrong.items():
        with pytest.raises(DjepaError, match=message):
            graph.plan(**{**given, **change})
    few = {"candidates": given["candidates"][:, :3], "ids": given["ids"][:, :3]}
    with pytest.raises(DjepaError, match="at least 10 candidates"):
        graph.plan(**{**given, **few})
    with pytest.raises(DjepaError, match="There is no file"):
        Graph(tmp_path / "none.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"nonsense")
    with pytest.raises(DjepaError, match="no graph that can be run"):
        Graph(tmp_path / "bad.onnx")
    with pytest.raises(DjepaError, match="whole blocks of 5"):
        export_onnx(kit.planner, tmp_path / "x.onnx", horizon=7)


@real
def test_the_page_and_the_command_without_torch(kit: Kit, tmp_path: Path) -> None:
    file = tmp_path / "planner.onnx"
    done = djepa("export", kit.folder, "--onnx", file, "--horizon", HORIZON)
    assert done.returncode == 0, done.stderr
    given, ids = Inputs(*(x[:2] for x in kit.given)), kit.ids[:2]
    given = given._replace(candidates=given.candidates[:, :, :HORIZON])
    named = {name: x.numpy() for name, x in given._asdict().items()}
    np.savez(tmp_path / "a.npz", **named, ids=ids.numpy())
    code = "import sys; sys.modules['torch'] = None\nimport numpy as np\n"
    code += "globals().update(np.load('a.npz'))\n" + block("ONNX")
    again = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert again.returncode == 0, again.stderr
    assert str(as_torch(kit.planner, given, ids)["choice"]) in again.stdout


@real
def test_the_bench_counts_equal_choices(kit: Kit, tmp_path: Path) -> None:
    given = ("--planner", kit.folder, "--starts", 2, "--candidates", 5, "--parity", 3)
    done = djepa("bench", "onnx", *given, "--json", tmp_path / "b.json")
    assert done.returncode == 0, done.stderr
    rows = {row["what"]: row for row in json.loads((tmp_path / "b.json").read_text())["rows"]}
    assert rows["equal choices, real starts"]["ours"] == 3
    assert rows["equal choices, random inputs"]["ours"] == 3
    assert rows["1 x 5"]["ratio"] > 0


@real
@pytest.mark.parametrize("kind", [DINOWM, JEPAWM])
def test_patch_geometries_are_exported_too(kind: type, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = kind(TINY_PATCHES).eval()
    N, K, px = 2, 4, TINY_PATCHES.image
    random = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (N, 4, px, px, 3), dtype=torch.uint8, generator=random)
    proprio, history = torch.rand(N, 4, 4), torch.rand(N, 10, 2)
    candidates = torch.rand(N, K, 10, 2, generator=random)
    given = Inputs(pixels[:, :3], pixels[:, 3], proprio, history, candidates)
    planner = alone(net, N, K)
    export_onnx(planner, tmp_path / "p.onnx", horizon=10)
    ids = torch.arange(K).expand(N, -1).contiguous()
    named = {name: x.numpy() for name, x in given._asdict().items()}
    found = Graph(tmp_path / "p.onnx").plan(**named, ids=ids.numpy())
    assert np.array_equal(found["order"], as_torch(planner, given, ids)["order"])
    del named["proprio"]
    with pytest.raises(DjepaError, match=f"needs proprio, which {net.name} read"):
        Graph(tmp_path / "p.onnx").plan(**named, ids=ids.numpy())


def alone(net: torch.nn.Module, N: int, K: int) -> Planner:
    """A planner of one geometry, aligned on costs drawn at random."""
    name = str(net.name)
    one = {"dense": (), "ranked": (name,), "base": (name,)}
    config = AlignConfig(**one, updates=4, every=2, batch=4)  # type: ignore[arg-type]
    random = np.random.default_rng(0)
    cost = random.random((20, K))
    success = cost + random.normal(0, 0.2, cost.shape) < 0.5
    ids = [range(K)] * 20
    evidence = Evidence.from_arrays(start_ids=range(20), candidate_ids=ids, costs={name: cost})
    found = Alignment(config).fit(evidence.rows(range(12)), success[:12])
    found.calibrate(evidence.rows(range(12, 20)), success[12:])
    return Planner({name: net}, found, name)  # type: ignore[dict-item]


def test_a_composed_planner_is_refused(kit: Kit, tmp_path: Path) -> None:
    """Without its composition it would decide otherwise."""
    net = kit.planner.geometries["tdjepa"]
    assert isinstance(net, TDJEPA)
    ends = {name: 1.05 * net.get_parameter(name).detach() for name in plastic_names(net)}
    patch = Patch("tdjepa", base_hash(net), ends, {})
    nets = {name: kit.planner.geometries[name] for name in ("lewm", "tdjepa")}
    planner = Planner(nets, kit.alignment, "tdjepa", Composition(patch, 0.0, "hash"))
    with pytest.raises(DjepaError, match="holds no composition"):
        export_onnx(planner, tmp_path / "p.onnx")


def test_a_missing_extra_is_named(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'djepa\[onnx\]'"):
        export_onnx(kit.planner, tmp_path / "p.onnx")
    with pytest.raises(MissingExtraError, match=r"djepa\[onnx\]"):
        Graph(tmp_path / "p.onnx")
    done = djepa("export", kit.folder, "--onnx", tmp_path / "p.onnx")
    assert done.returncode == 1
    assert "djepa[onnx]" in done.stderr
