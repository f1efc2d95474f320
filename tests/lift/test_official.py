"""Profiles of the release, made of our own tensors under their names: the same decisions after."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from djepa.align.compose import PUBLISHED
from djepa.align.gates import NEVER
from djepa.align.plastic import apply_patch, load_patch, plastic_names
from djepa.align.store import load_alignment
from djepa.cli.main import main
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence
from djepa.lift.head import load_head, save_head
from djepa.lift.official import (
    ALIGNMENTS,
    GEOMETRY,
    PATCH,
    PROFILES,
    REACHER_WORLD,
    REALIZATION,
    TRANSPORT,
    VIEWS,
    read_profile,
    to_alignment,
    to_geometry,
    to_parts,
    to_patch,
    to_transport,
)
from djepa.models.lewm import LeWM
from djepa.models.tdjepa import TDJEPA
from djepa.models.weights import save_geometry
from tiny import TINY_DEEP as TINY

N, K, D = 3, 9, 6
WIDTH = {"pusht-multi-geometry": 2 * D + 4, "granular-relational": D + 1, "granular-multiview": 4}
WIDTH |= {"pushobj-unseen-shapes": 3, "pusht-visual-shifts": 3}


class Released(nn.Module):
    """The release's network, written from its description: names, layers, order."""

    def __init__(self, inputs: int, granular: bool, limit: float) -> None:
        super().__init__()
        norm = nn.LayerNorm(inputs if granular else 64)
        linear = nn.Linear(inputs, 64)
        self.candidate_encoder = nn.Sequential(
            *((norm, linear) if granular else (linear, norm)), nn.GELU()
        )
        layer = nn.TransformerEncoderLayer(
            64, 4, 128, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.set_encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.correction_down = nn.Linear(64, 8, bias=False)
        self.correction_up = nn.Linear(8, 1, bias=False)
        self.limit = limit
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.2)

    def forward(self, features: Tensor, base: Tensor) -> Tensor:
        h = self.set_encoder(self.candidate_encoder(features))
        delta = self.limit * torch.tanh(self.correction_up(torch.tanh(self.correction_down(h))))
        return base.float() + delta[..., 0]


def write(folder: Path, tensors: dict[str, Tensor], config: dict[str, Any]) -> Path:
    folder.mkdir(parents=True)
    torch.save(tensors, folder / "model.pt")
    digest = hashlib.sha256((folder / "model.pt").read_bytes()).hexdigest()
    (folder / "config.json").write_text(json.dumps({**config, "weights_sha256": digest}))
    return folder


def released(name: str, **changes: Any) -> tuple[Released, dict[str, Any]]:
    """A network of the profile's size, and a configuration."""
    granular = name.startswith("granular")
    inputs = WIDTH.get(name, 2 * D + 2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(len(name))
        net = Released(inputs, granular, 0.3)
    config: dict[str, Any] = {
        "architecture": "granular" if granular else "set_aligner",
        "max_correction": 0.3,
        "gate_threshold": 0.01,
        "gate_mode": "refined_gap" if inputs == 3 else "base_minus_refined",
    }
    if granular:
        config["model"] = {"input_dim": inputs}
        config["fusion_weights"] = [0.4, 0.3, 0.2, 0.1] if inputs == 4 else [1.0]
    else:
        config["input_dim"] = inputs
        config["fusion_alpha"] = 0.42
    return net, {**config, **changes}


def evidence_for(name: str) -> Evidence:
    c = ALIGNMENTS[name]
    rng = np.random.default_rng(3)
    ids = np.stack([rng.permutation(K) + 5 for _ in range(N)])
    costs = {g: rng.random((N, K)) for g in c.geometries}
    ends = {g: rng.normal(size=(N, K, D)).astype(np.float32) for g in c.dense}
    goals = {g: rng.normal(size=(N, D)).astype(np.float32) for g in c.dense}
    names = [f"s{n}" for n in range(N)]
    return Evidence.from_arrays(
        start_ids=names, candidate_ids=ids, costs=costs, latents=ends, goals=goals
    )


def theirs(net: Released, name: str, config: dict[str, Any], e: Evidence) -> tuple[Tensor, Tensor]:
    """Features, base score, network and gate as the release describes them, start by start."""
    c, chosen, scores = ALIGNMENTS[name], [], []
    for n in range(N):
        rank = {}
        for m, g in enumerate(e.names):
            order = sorted(range(K), key=lambda k: (float(e.costs[n, k, m]), int(e.ids[n, k])))
            rank[g] = torch.tensor([order.index(k) / (K - 1) for k in range(K)]).double()
        parts = [F.layer_norm(e.latents[g][n] - e.goals[g][n], (D,)) for g in c.dense]
        ranks = torch.stack([rank[g] for g in c.ranked], dim=-1)
        features = torch.cat([*parts, ranks.float()], dim=-1)
        if name == "pusht-multi-geometry":
            base = rank["jepawm"]
        elif "fusion_alpha" in config:
            base = 0.42 * rank[c.base[0]] + (1 - 0.42) * rank[c.base[1]]
        else:
            weights = torch.tensor(config["fusion_weights"]).double()
            base = torch.stack([rank[g] for g in c.base], dim=-1) @ weights
        refined = net(features[None], base[None])[0].detach().double()
        first = [
            min(range(K), key=lambda k: (round(float(x[k]), 12), int(e.ids[n, k])))
            for x in (base, refined)
        ]
        kept = (refined if config["gate_mode"] == "refined_gap" else base)[first[0]]
        gain = float(kept - refined[first[1]])
        chosen.append(int(e.ids[n, first[1] if gain > config["gate_threshold"] else first[0]]))
        scores.append(refined)
    return torch.tensor(chosen), torch.stack(scores)


@pytest.mark.parametrize("name", ALIGNMENTS)
def test_alignments_decide_as_the_release(name: str, tmp_path: Path) -> None:
    net, config = released(name)
    folder = write(tmp_path / name, net.state_dict(), config)
    e = evidence_for(name)
    chosen, scores = theirs(net.eval(), name, config, e)
    decision = to_alignment(read_profile(folder)).decide(e)
    torch.testing.assert_close(decision.refined.double(), scores, atol=1e-5, rtol=0)
    assert torch.equal(decision.choice, chosen)
    assert len(set(decision.opened.tolist()) | {True}) >= 1
    with pytest.raises(SystemExit) as done:
        main(["convert", str(folder), "--out", str(tmp_path / "out")])
    assert done.value.code == 0
    again = load_alignment(tmp_path / "out").decide(e)
    assert torch.equal(again.choice, chosen)
    assert torch.equal(again.final, decision.final)


def test_gates_are_read_whole(tmp_path: Path) -> None:
    name = "reacher-relational"
    net, config = released(name, gate_decimals=8, gate_threshold=NEVER)
    gate = to_alignment(read_profile(write(tmp_path / name, net.state_dict(), config))).gate
    assert gate is not None
    assert (gate.threshold, gate.decimals, gate.mode) == (NEVER, 8, "base_minus_refined")


# ------------------------------------------------------------------------------- predictors


def model_of(kind: type[LeWM], seed: int = 0) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = kind(TINY).eval()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.2)
    return model.requires_grad_(False)


OURS_TO_PUBLIC = (
    ("encoder.token", "encoder.embeddings.cls_token"),
    ("encoder.position", "encoder.embeddings.position_embeddings"),
    ("encoder.embed.", "encoder.embeddings.patch_embeddings.projection."),
    ("encoder.norm.", "encoder.layernorm."),
    ("encoder.blocks.", "encoder.encoder.layer."),
    ("predictor.position", "predictor.pos_embedding"),
    ("predictor.norm.", "predictor.transformer.norm."),
    ("predictor.blocks.", "predictor.transformer.layers."),
    ("action_encoder.mix.", "action_encoder.patch_embed."),
    ("action_encoder.up.", "action_encoder.embed.0."),
    ("action_encoder.down.", "action_encoder.embed.2."),
    ("distance.up.", "distance_head.net.0."),
    ("distance.norm.", "distance_head.net.1."),
    ("distance.down.", "distance_head.net.3."),
)
INSIDE = {
    "encoder": {
        "attention.out.": "attention.output.dense.",
        "mlp.up.": "intermediate.dense.",
        "mlp.down.": "output.dense.",
        "norm1.": "layernorm_before.",
        "norm2.": "layernorm_after.",
    },
    "predictor": {
        "norm1.": "attn.norm.",
        "attention.qkv.": "attn.to_qkv.",
        "attention.out.": "attn.to_out.0.",
        "norm2.": "mlp.net.0.",
        "mlp.up.": "mlp.net.1.",
        "mlp.down.": "mlp.net.4.",
        "modulation.": "adaLN_modulation.1.",
    },
}


def public(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Our names -> those of the release's models."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name in ("action_mean", "action_std"):
            continue
        key = name
        for ours, other in OURS_TO_PUBLIC:
            if key.startswith(ours):
                key = other + key.removeprefix(ours)
                break
        for ours, other in INSIDE.get(name.split(".")[0], {}).items():
            key = key.replace(ours, other) if ".blocks." in name else key
        for i, part in enumerate(("up.", "norm.", "", "down.")):
            for whole in ("projector.", "pred_proj."):
                if part and key.startswith(whole + part):
                    key = f"{whole}net.{i}.{key.removeprefix(whole + part)}"
        if "encoder.layer" in key and "attention.qkv." in key:
            kind = key.rsplit(".", 1)[1]
            layer = key.split("attention.qkv.")[0]
            roles = ("query", "key", "value")
            for role, piece in zip(roles, tensor.chunk(3), strict=True):
                found[f"{layer}attention.attention.{role}.{kind}"] = piece
            continue
        found[key] = tensor
    return found


def costs(model: LeWM) -> Tensor:
    g = torch.Generator().manual_seed(0)
    frames = torch.randint(0, 256, (2, 3, 28, 28, 3), generator=g, dtype=torch.uint8)
    z = model.encode(frames, torch.zeros(2, 3, 4))
    history, actions = torch.randn(2, 10, 2, generator=g), torch.randn(2, 5, 25, 2, generator=g)
    return model.native_cost(model.rollout(z, history, actions), z[:, 0])


STATISTICS = {"action_mean": [0.1, -0.2], "action_std": [0.5, 0.6]}


def with_statistics(model: Any) -> Any:
    model.action_mean.copy_(torch.tensor(STATISTICS["action_mean"]))
    model.action_std.copy_(torch.tensor(STATISTICS["action_std"]))
    return model


def test_an_adapted_predictor_costs_the_same(tmp_path: Path) -> None:
    model = with_statistics(model_of(TDJEPA))
    folder = write(tmp_path / GEOMETRY, public(model.state_dict()), STATISTICS)
    read = to_geometry(read_profile(folder), TINY)
    assert torch.equal(costs(read), costs(model))
    assert all(torch.equal(t, read.state_dict()[n]) for n, t in model.state_dict().items())


def test_a_patch_adapts_as_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, other = model_of(TDJEPA), model_of(TDJEPA, seed=1)
    save_geometry(base, tmp_path / "base", {})
    from djepa.models.weights import load_geometry

    base = load_geometry(tmp_path / "base")
    changed = {n: other.get_parameter(n).detach() for n in plastic_names(base)}
    statistics = {n: t for n, t in base.state_dict().items() if n.startswith("pred_proj.norm.run")}
    folder = write(tmp_path / PATCH, public({**changed, **statistics}), {})
    patch = to_patch(read_profile(folder), base)
    expected = model_of(TDJEPA)
    expected.load_state_dict({**base.state_dict(), **changed})
    assert torch.equal(costs(apply_patch(base, patch)), costs(expected))
    assert patch.card["threshold"] == PUBLISHED  # of the composition
    call = ["convert", str(folder), "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as done:
        main(call)
    assert done.value.code == 1
    assert "give the TD-JEPA it adapts with --base" in " ".join(capsys.readouterr().err.split())
    with pytest.raises(SystemExit) as done:
        main([*call, "--base", str(tmp_path / "base")])
    assert done.value.code == 0
    stored = load_patch(tmp_path / "out")
    assert torch.equal(costs(apply_patch(base, stored)), costs(expected))
    moved = public({**changed, **{n: t + 1 for n, t in statistics.items()}})
    with pytest.raises(DjepaError, match="patch is of other weights"):
        to_patch(read_profile(write(tmp_path / "b" / PATCH, moved, {})), base)


def test_a_transport_head_moves_as_before(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(5, 32), nn.GELU(), nn.Linear(32, 1))
    folder = write(tmp_path / TRANSPORT, net.state_dict(), {"radius": 0.1})
    head = to_transport(read_profile(folder))
    ranks = torch.rand(2, 4, 3)
    gate = torch.tensor([True, False])
    beta = head.coefficients(ranks, gate, 5)
    for n, k, t in ((0, 0, 0), (1, 3, 4), (0, 2, 1)):
        row = torch.tensor([*ranks[n, k].tolist(), float(gate[n]), t / 4])
        assert beta[n, k, t].item() == pytest.approx(0.1 * torch.tanh(net(row)).item(), abs=1e-6)
    with pytest.raises(SystemExit) as done:
        main(["convert", str(folder), "--out", str(tmp_path / "out")])
    assert done.value.code == 0
    stored = load_head(tmp_path / "out")
    assert torch.equal(stored.coefficients(ranks, gate, 5), beta)
    with pytest.raises(DjepaError, match="holds a finished transport head already"):
        save_head(head, tmp_path / "out", {})


@pytest.mark.parametrize("name", [REALIZATION, REACHER_WORLD])
def test_whole_models_come_apart(name: str, tmp_path: Path) -> None:
    reacher = name == REACHER_WORLD
    models = {"lewm": with_statistics(model_of(LeWM)), "tdjepa": with_statistics(model_of(TDJEPA))}
    tensors = {}
    for prefix, model in models.items():
        tensors |= {f"{prefix}.{k}": t for k, t in public(model.state_dict()).items()}
    net, config = released("pusht-relational")
    operator = "adapters.relational." if reacher else "relational."
    tensors |= {operator + k: t for k, t in net.state_dict().items()}
    config = {**config, **STATISTICS}
    if reacher:
        head = nn.Sequential(nn.Linear(5, 32), nn.GELU(), nn.Linear(32, 1))
        tensors |= {f"adapters.transport.{k}": t for k, t in head.state_dict().items()}
    else:
        del config["gate_threshold"]  # the release's code fixes it
    parts = to_parts(read_profile(write(tmp_path / name, tensors, config)), TINY)
    assert torch.equal(costs(parts.geometries["lewm"]), costs(models["lewm"]))
    for ours, other in zip(
        parts.geometries["tdjepa"].parameters(), models["tdjepa"].parameters(), strict=True
    ):
        assert torch.equal(ours, other)
    gate = parts.alignment.gate
    assert gate is not None
    e = evidence_for("pusht-relational")
    settings = {**config, "gate_threshold": gate.threshold}
    _, scores = theirs(net.eval(), "pusht-relational", settings, e)
    torch.testing.assert_close(parts.alignment.scores(e)[1].double(), scores, atol=1e-5, rtol=0)
    assert (parts.transport is not None) == reacher
    if not reacher:
        assert (gate.threshold, gate.decimals) == (-0.03162526342176623, 4)


# ---------------------------------------------------------------------------------- refusals


def test_anything_else_is_refused_by_name(tmp_path: Path) -> None:
    assert len(PROFILES) == 12
    net, config = released("pusht-relational")
    tensors = net.state_dict()

    def refused(match: str, folder: Path, **more: Any) -> None:
        with pytest.raises(DjepaError, match=match):
            to_alignment(read_profile(folder), **more)

    def made(place: str, name: str = "pusht-relational", **changes: Any) -> Path:
        given = changes.pop("tensors", tensors)
        return write(tmp_path / place / name, given, {**config, **changes})

    refused("Did you mean 'pusht-relational'", made("a", "pusht-relation"))
    refused("model.pt is missing", tmp_path / "nowhere" / "pusht-relational")
    refused("architecture 'set_aligner', not 'mlp'", made("b", architecture="mlp"))
    refused("configuration says 99", made("c", input_dim=99))
    extra = {**tensors, "bonus.weight": torch.zeros(1)}
    refused("'bonus.weight'", made("d", tensors=extra))
    short = {k: t for k, t in tensors.items() if k != "correction_up.weight"}
    refused("do not fit", made("e", tensors=short))
    odd = {**tensors, "correction_up.weight": torch.full((1, 8), torch.nan)}
    refused("holds a NaN", made("f", tensors=odd))
    refused("holds no alignment", made("g", TRANSPORT))
    damaged = made("h")
    (damaged / "model.pt").write_bytes(b"not tensors")
    refused("damaged", damaged)
    (damaged / "config.json").write_text("{}")
    refused("not a file of tensors alone", damaged)
    (damaged / "config.json").write_text("[")
    refused("not JSON", damaged)
    bare = {k: v for k, v in config.items() if k != "fusion_alpha"}
    missing = write(tmp_path / "i" / "pusht-relational", tensors, bare)
    refused("with --weights", missing)
    refused("add up to 1", missing, weights=(0.5, 0.6))
    assert to_alignment(read_profile(missing), (0.3, 0.7)).report is not None


def test_code_in_a_file_is_not_run(tmp_path: Path) -> None:
    folder = tmp_path / "pusht-relational"
    folder.mkdir()
    torch.save({"net": nn.Linear(2, 2)}, folder / "model.pt")  # a pickled object
    (folder / "config.json").write_text("{}")
    with pytest.raises(DjepaError, match="not a file of tensors alone"):
        read_profile(folder)
    torch.save({"net": [1, 2]}, folder / "model.pt")
    with pytest.raises(DjepaError, match="named tensors and nothing else"):
        read_profile(folder)


def test_views_are_those_of_the_granular_task() -> None:
    from djepa.tasks.task import get_task

    assert get_task("granular").looks == VIEWS
