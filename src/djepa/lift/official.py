"""Read the published release's twelve checkpoint profiles into our objects.

    PROFILE/
      model.pt      tensors alone, read with weights_only=True
      config.json   architecture, sizes, gate, fusion weights

A profile is identified by the name of its folder; unknown names raise an error. Every tensor of a
profile must be used, and every parameter must be set.

    alignment    pusht-relational, pusht-multi-geometry, reacher-relational, granular-relational,
                 granular-multiview, pushobj-unseen-shapes, pusht-visual-shifts
    patch        pusht-predictive-adaptation; its card holds the threshold of the composition
    geometry     pusht-adapted-predictor-full: TD-JEPA
    transport    reacher-temporal-transport
    all parts    pusht-exact-realization-full (two geometries, alignment), reacher-world-model-full
                 (and the transport head)
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from djepa.align.compose import PUBLISHED
from djepa.align.fit import AlignConfig, Alignment, Fit, task_local
from djepa.align.gates import Gate
from djepa.align.operator import OperatorConfig
from djepa.align.plastic import Patch, apply_patch, base_hash
from djepa.align.presets import FOUR
from djepa.errors import DjepaError, check_name
from djepa.evidence.fusion import Fusion
from djepa.evidence.tokens import Tokens
from djepa.lift.transport import TemporalTransport
from djepa.models.lewm import PAPER, LeWM, LeWMConfig
from djepa.models.public import rename_public
from djepa.models.tdjepa import TDJEPA, PlanningCost

PAIR = AlignConfig()  # 386 = two directions of 192 and two ranks
NORMED = OperatorConfig(inputs=1, norm_first=True)
VIEWS = ("plain", "turned-90", "turned-180", "turned-270")
SHIFTED = task_local(("visual", "proprio", "joint"))
ALIGNMENTS = {
    "pusht-relational": PAIR,
    "pusht-multi-geometry": AlignConfig(ranked=FOUR, base=("jepawm",)),
    "reacher-relational": replace(PAIR, policy="conservative"),
    "granular-relational": AlignConfig(("plain",), ("plain",), ("plain",), operator=NORMED),
    "granular-multiview": AlignConfig((), VIEWS, VIEWS, operator=NORMED),
    "pushobj-unseen-shapes": SHIFTED,
    "pusht-visual-shifts": SHIFTED,
}
PATCH, GEOMETRY = "pusht-predictive-adaptation", "pusht-adapted-predictor-full"
TRANSPORT, REALIZATION = "reacher-temporal-transport", "pusht-exact-realization-full"
REACHER_WORLD = "reacher-world-model-full"
PLANNERS = {REALIZATION: PAIR, REACHER_WORLD: replace(PAIR, policy="conservative")}
PROFILES = (*ALIGNMENTS, PATCH, GEOMETRY, TRANSPORT, *PLANNERS)
# Settings that the release's code hard-codes and its configurations omit.
FIXED = {
    "fusion_alpha": 0.42,
    "gate_threshold": -0.03162526342176623,
    "gate_decimals": 4,
    "action_mean": (-0.007812565192580223, 0.006860686466097832),
    "action_std": (0.2084674835205078, 0.20674866437911987),
}
# names of the release's operator -> ours
_OPERATOR = {
    "candidate_encoder.0.": "encoder.1.",
    "candidate_encoder.1.": "encoder.2.",
    "set_encoder.layers.": "relations.",
    "correction_down.": "down.",
    "correction_up.": "up.",
}
_TRANSPORT = ("up.weight", "up.bias", "down.weight", "down.bias")
_HEAD = ("up.weight", "up.bias", "norm.weight", "norm.bias", "down.weight", "down.bias")


@dataclass(frozen=True, eq=False)
class Profile:
    """The contents of one profile folder."""

    name: str
    config: dict[str, Any]
    tensors: dict[str, Tensor]


class Parts(NamedTuple):
    """The parts of a complete world model of the release."""

    geometries: dict[str, LeWM]
    alignment: Alignment
    transport: TemporalTransport | None


def read_profile(folder: Path, name: str = "") -> Profile:
    """Read one profile, named `name` or else as its folder. No pickle code is executed."""
    name = name or folder.resolve().name
    check_name("profile", name, PROFILES)
    files = folder / "model.pt", folder / "config.json"
    for file in files:
        if not file.is_file():
            raise DjepaError(f"{file} is missing; a profile has a model.pt and a config.json.")
    try:
        config = json.loads(files[1].read_text())
    except ValueError as error:
        raise DjepaError(f"{files[1]} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise DjepaError(f"{files[1]} must hold one object with the profile's settings.")
    recorded = config.get("weights_sha256")
    if recorded and recorded != hashlib.sha256(files[0].read_bytes()).hexdigest():
        raise DjepaError(f"{files[0]} is damaged: its SHA-256 is not the one in config.json.")
    try:
        tensors = torch.load(files[0], map_location="cpu", weights_only=True)
    except Exception as error:  # the library raises many kinds for what is no tensor file
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DjepaError(f"{files[0]} is not a file of tensors alone: {first}") from None
    if not isinstance(tensors, dict) or not all(isinstance(t, Tensor) for t in tensors.values()):
        raise DjepaError(f"{files[0]} must hold named tensors and nothing else.")
    return Profile(name, config, dict(tensors))


def to_alignment(profile: Profile, weights: tuple[float, ...] = ()) -> Alignment:
    """The operator with gate and base score; `weights` are the fusion's if the profile has none."""
    known = ALIGNMENTS | PLANNERS
    if profile.name not in known:
        raise DjepaError(f"'{profile.name}' holds no alignment.")
    c, settings = known[profile.name], _settings(profile)
    wanted = "granular" if c.operator.norm_first else "set_aligner"
    if profile.name in ALIGNMENTS and settings.get("architecture") != wanted:
        raise DjepaError(
            f"'{profile.name}' must have the architecture '{wanted}', "
            f"not {settings.get('architecture')!r}."
        )
    tensors = _renamed(profile)
    limit = float(settings.get("max_correction", c.operator.epsilon))
    c = replace(c, operator=replace(c.operator, epsilon=limit))
    alignment = Alignment(c)
    inputs = _inputs(tensors, c, settings)
    alignment.operator = alignment.fresh(inputs)
    _fill(alignment.operator, tensors, profile.name)
    fusion = Fusion(_weights(profile.name, settings, c, weights), 0, (), 0)
    alignment.report, alignment.tokens = Fit(0, 0, fusion, ()), Tokens(c.dense, c.ranked, ())
    alignment.gate = _gate(profile.name, settings, c)
    return alignment


def to_patch(profile: Profile, base: LeWM) -> Patch:
    """The replaced tensors as a patch of `base`, the TD-JEPA that they were adapted from."""
    if profile.name != PATCH:
        raise DjepaError(f"'{profile.name}' holds no patch; '{PATCH}' does.")
    tensors, own = rename_public(profile.tensors), base.state_dict()
    for name in [name for name in tensors if ".running_" in name or ".num_batches" in name]:
        if not torch.equal(tensors.pop(name).cpu(), own[name].cpu()):
            raise DjepaError(f"'{name}' differs from the base's: the patch is of other weights.")
    threshold = float(profile.config.get("composition_threshold", PUBLISHED))
    card = {"profile": profile.name, "config": profile.config, "threshold": threshold}
    patch = Patch(base.name, base_hash(base), tensors, card)
    apply_patch(base, patch)  # checks names and shapes
    return patch


def to_geometry(profile: Profile, sizes: LeWMConfig = PAPER) -> TDJEPA:
    """TD-JEPA with the adapted predictor."""
    if profile.name != GEOMETRY:
        raise DjepaError(f"'{profile.name}' holds no geometry; '{GEOMETRY}' does.")
    model = TDJEPA(sizes)
    _fill_geometry(model, profile.tensors, _settings(profile), profile.name)
    return model


def to_transport(profile: Profile) -> TemporalTransport:
    """The coefficient network 5 → 32 → 1."""
    if profile.name not in (TRANSPORT, REACHER_WORLD):
        raise DjepaError(f"'{profile.name}' holds no transport head.")
    named = profile.tensors if profile.name == TRANSPORT else _transport_part(profile.tensors)
    if len(named) != len(_TRANSPORT):
        raise DjepaError(f"A transport head has four tensors, '{profile.name}' {len(named)}.")
    ours = dict(zip(_TRANSPORT, named.values(), strict=True))
    head = TemporalTransport(len(ours["up.bias"]), float(profile.config.get("radius", 0.1)))
    _fill(head, ours, profile.name)
    return head


def to_parts(profile: Profile, sizes: LeWMConfig = PAPER) -> Parts:
    """Both geometries, the alignment and, for Reacher, the transport head of a complete model."""
    if profile.name not in PLANNERS:
        raise DjepaError(f"'{profile.name}' is not a whole model: {', '.join(PLANNERS)} are.")
    settings, reacher = _settings(profile), profile.name == REACHER_WORLD
    planning = PlanningCost(blend=0.0, terminal=0.3, context=3) if reacher else None
    models: dict[str, LeWM] = {"lewm": LeWM(sizes), "tdjepa": TDJEPA(sizes, planning=planning)}
    for name, model in models.items():
        _fill_geometry(model, _under(profile.tensors, f"{name}."), settings, profile.name)
    return Parts(models, to_alignment(profile), to_transport(profile) if reacher else None)


def _settings(profile: Profile) -> dict[str, Any]:
    """The configuration, with the defaults that the release hard-codes for PushT's full model."""
    nested = profile.config.get("model")
    sizes = nested if isinstance(nested, dict) else {}
    fixed = FIXED if profile.name in (REALIZATION, GEOMETRY) else {}
    return {**fixed, **sizes, **profile.config}


def _renamed(profile: Profile) -> dict[str, Tensor]:
    """The operator's tensors under our names."""
    given, found = profile.tensors, {}
    if profile.name in PLANNERS:  # the operator's names have a prefix there
        first = next((key for key in given if "candidate_encoder." in key), None)
        if first is None:
            raise DjepaError(f"'{profile.name}' has no tensor of a candidate encoder.")
        given = _under(given, first[: first.index("candidate_encoder.")])
        given = {key: t for key, t in given.items() if key.startswith(tuple(_OPERATOR))}
    for key, tensor in given.items():
        start = next((theirs for theirs in _OPERATOR if key.startswith(theirs)), None)
        if start is None:
            raise DjepaError(f"'{key}' of '{profile.name}' is not a tensor of its operator.")
        found[_OPERATOR[start] + key.removeprefix(start)] = tensor
    return found


def _inputs(tensors: Mapping[str, Tensor], c: AlignConfig, settings: Mapping[str, Any]) -> int:
    """Token width F, checked to agree between tensors and configuration."""
    name = f"encoder.{2 if c.operator.norm_first else 1}.weight"
    if name not in tensors:
        raise DjepaError("The candidate encoder has no linear layer where one belongs.")
    width = tensors[name].shape[1]
    said = settings.get("input_dim", width)
    ranks = len(c.ranked)
    if said != width or (not c.dense and width != ranks) or (c.dense and width <= ranks):
        raise DjepaError(
            f"The operator reads {width} numbers a candidate; its configuration says {said}, "
            f"of which {ranks} are ranks."
        )
    return width


def _weights(
    name: str, settings: Mapping[str, Any], c: AlignConfig, given: tuple[float, ...]
) -> tuple[float, ...]:
    """Weights of the ranks in the base score."""
    found = given
    if not found and "fusion_alpha" in settings and len(c.base) == 2:
        alpha = float(settings["fusion_alpha"])
        found = (alpha, 1 - alpha)  # of LeWM, then of TD-JEPA
    if not found and "fusion_weights" in settings:
        found = tuple(float(w) for w in settings["fusion_weights"])
    if not found and len(c.base) == 1:
        found = (1.0,)
    if not found:
        raise DjepaError(
            f"The configuration of '{name}' has neither fusion_alpha nor fusion_weights: give the "
            f"weights of the ranks of {', '.join(c.base)} with --weights."
        )
    if len(found) != len(c.base) or min(found) < 0 or abs(sum(found) - 1) > 1e-6:
        raise DjepaError(f"{len(c.base)} weights that add up to 1 are needed, got {found}.")
    return found


def _gate(name: str, settings: Mapping[str, Any], c: AlignConfig) -> Gate:
    if "gate_threshold" not in settings:
        raise DjepaError(f"The configuration of '{name}' has no gate_threshold.")
    decimals = settings.get("gate_decimals")
    mode = settings.get("gate_mode", c.mode)
    return Gate(
        float(settings["gate_threshold"]), mode, None if decimals is None else int(decimals)
    )


def _fill_geometry(
    model: LeWM, tensors: Mapping[str, Tensor], settings: Mapping[str, Any], name: str
) -> None:
    """Load tensors with public LeWM names; the rest is TD-JEPA's distance head, layer by layer."""
    body = ("encoder.", "projector.", "action_encoder.", "predictor.", "pred_proj.")
    ours = rename_public({k: t for k, t in tensors.items() if k.startswith(body)})
    rest = {key: t for key, t in tensors.items() if not key.startswith(body)}
    if isinstance(model, TDJEPA) and len(rest) == len(_HEAD):
        ours |= {f"distance.{n}": t for n, t in zip(_HEAD, rest.values(), strict=True)}
    elif rest or isinstance(model, TDJEPA):
        odd = next(iter(rest), "the distance head")
        raise DjepaError(f"'{name}': '{odd}' has no place in {model.name}, or is missing.")
    for part in ("action_mean", "action_std"):
        if part not in settings:
            raise DjepaError(f"The configuration of '{name}' has no {part}.")
        ours[part] = torch.tensor(settings[part], dtype=torch.float32)
    _fill(model, ours, name)


def _fill(module: torch.nn.Module, tensors: Mapping[str, Tensor], name: str) -> None:
    odd = [key for key, t in tensors.items() if t.is_floating_point() and not t.isfinite().all()]
    if odd:
        raise DjepaError(f"'{odd[0]}' of '{name}' holds a NaN or an infinity.")
    try:
        module.load_state_dict(dict(tensors))
    except RuntimeError as error:
        raise DjepaError(f"The tensors of '{name}' do not fit: {error}") from None
    module.eval().requires_grad_(False)


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}


def _transport_part(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The transport head's tensors of a complete model: the adapter that is not the operator."""
    return {
        key: t
        for key, t in tensors.items()
        if key.startswith("adapters.") and not any(part in key for part in _OPERATOR)
    }
