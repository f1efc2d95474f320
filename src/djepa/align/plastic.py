"""Predictive plasticity: the last layers of a predictor learn from outcomes, the rest is frozen.

    L_P = L_success + λ_B L_boundary + λ_K L_rank + λ_Z L_latent                      (Eq. 8)

    L_success  = -log Σ_{y_i = 1} softmax(-c / T)_i
    L_boundary = mean over successes i and failures j of the tail of softplus((μ + c_i - c_j) / T)
    L_rank     = mean of: per start, KL(softmax(-c' / T) ‖ softmax(-c / T)) outside the tail;
                 per start and class, smooth-L1 of ((c_i - c_j) - (c'_i - c'_j)) / T inside it
    L_latent   = mean of (LN(ẑ) - LN(ẑ'))² over last latents, LN without affine

c are native costs and ẑ last latents of the adapted predictor, c' and ẑ' those of the frozen one.
The tail is the first k candidates of a fixed reference order, extended until it has both classes.
A start of one class is left out of every term. Unobserved candidates are neither successes nor
failures. The terms that need no outcome (KL outside the tail, L_latent) include them.

The result is stored as a patch: the replaced tensors and the hash of the weights they belong to.

    PATCH/
      patch.safetensors  the replaced tensors, float32
      card.json          geometry, hash of the base weights, how the patch was made
      manifest.json      format version and SHA-256 of both files
"""

import copy
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
import torch.nn.functional as F
from safetensors.torch import save
from torch import Tensor, nn

from djepa.align.objectives import success_mass
from djepa.artefacts.folder import Folder
from djepa.artefacts.records import Kind, encode_json
from djepa.artefacts.write import save as save_folder
from djepa.errors import DjepaError
from djepa.evidence.ranks import strict_ranks
from djepa.models.lewm import LeWM


class PatchRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of `card.json`."""

    geometry: str
    base: str
    card: dict[str, Any]


PATCH = Kind("patch", "djepa-patch", 2, reads=(1,), records={"card.json": PatchRecord})


class Ends(NamedTuple):
    """Final predictions for the candidates of N pools."""

    last: Tensor  # (N, K, D) last predicted latents
    cost: Tensor  # (N, K) native costs

    def rows(self, chosen: Tensor) -> "Ends":
        """The ends of the chosen starts."""
        return Ends(self.last[chosen], self.cost[chosen])


class Terms(NamedTuple):
    """L_P of Eq. 8 and its terms, before weighting."""

    total: Tensor
    success: Tensor
    boundary: Tensor
    rank: Tensor
    latent: Tensor
    skipped: int  # starts of one class, which enter no term


@dataclass(frozen=True)
class PlasticLoss:
    """L_P of Eq. 8 with its weights; the defaults are the published ones."""

    temperature: float = 0.05  # T
    margin: float = 0.02  # μ
    boundary: float = 0.5  # λ_B
    rank: float = 0.25  # λ_K
    latent: float = 1.0  # λ_Z

    def __call__(
        self, adapted: Ends, frozen: Ends, success: Tensor, observed: Tensor, tail: Tensor
    ) -> Terms:
        """Ends of N pools, (N, K) bool outcomes and tails -> terms, means over usable starts."""
        T, (z, c), (z0, c0) = self.temperature, adapted, frozen
        good, bad = success & observed, ~success & observed
        usable = good.any(1) & bad.any(1)
        mass = _mean(success_mass(c, good, observed, T), usable)
        pairs = _mean(boundary(c, good & tail, bad & tail, self.margin, T), usable)
        sets = (~tail, bad & tail, good & tail)
        kept = torch.stack([rule(c, c0, s, T) for rule, s in zip(_RANK, sets, strict=True)])
        several = torch.stack([s.sum(1) > 1 for s in sets])  # a single candidate has no order
        order = _mean(kept, several & usable)
        moved = _mean(latent_change(z, z0).mean(1), usable)
        total = mass + self.boundary * pairs + self.rank * order + self.latent * moved
        return Terms(total, mass, pairs, order, moved, int((~usable).sum()))


def grown_tail(reference: Tensor, ids: Tensor, success: Tensor, observed: Tensor, k: int) -> Tensor:
    """(N, K) bool: the first k observed candidates by (reference score, ID).

    The tail grows beyond k until it has a success and a failure, if the start has both.
    """
    K = ids.shape[1]
    place = strict_ranks(reference.masked_fill(~observed, torch.inf), ids)
    first = [place.masked_fill(~y, K).amin(1) for y in (success & observed, ~success & observed)]
    size = torch.maximum(*first).add(1).clamp(min=k)
    return (place < size[:, None]) & observed


def boundary(cost: Tensor, good: Tensor, bad: Tensor, margin: float, temperature: float) -> Tensor:
    """(N,) L_boundary of Eq. 8: mean of softplus((μ + c_i - c_j) / T) over pairs; 0 without any."""
    gap = (margin + cost[:, :, None] - cost[:, None]) / temperature
    return _mean(F.softplus(gap), good[:, :, None] & bad[:, None], (1, 2))


def outside(cost: Tensor, before: Tensor, rest: Tensor, temperature: float) -> Tensor:
    """(N,): KL(p' ‖ p) of softmax(-c' / T) and softmax(-c / T), both over `rest` alone."""
    rest = rest | ~rest.any(1, keepdim=True)  # empty: any finite value, masked later
    new, old = (
        (-c / temperature).masked_fill(~rest, -torch.inf).log_softmax(1).masked_fill(~rest, 0.0)
        for c in (cost, before)
    )
    return (old.exp() * (old - new)).sum(1)


def inside(cost: Tensor, before: Tensor, members: Tensor, temperature: float) -> Tensor:
    """(N,): mean smooth-L1 of ((c_i - c_j) - (c'_i - c'_j)) / T over all pairs of `members`."""
    shift = (cost - before) / temperature  # (c_i - c'_i) - (c_j - c'_j) is the same difference
    one, other = torch.broadcast_tensors(shift[:, :, None], shift[:, None])
    change = F.smooth_l1_loss(one, other, reduction="none")
    return _mean(change, members[:, :, None] & members[:, None], (1, 2))


def latent_change(last: Tensor, before: Tensor) -> Tensor:
    """(N, K), L_latent of Eq. 8 before its mean: mean over D of (LN(ẑ) - LN(ẑ'))²."""
    new, old = (F.layer_norm(z.float(), z.shape[-1:]) for z in (last, before))
    return (new - old).square().mean(-1)


_RANK = (outside, inside, inside)  # non-tail; failures and successes of the tail


def _mean(values: Tensor, counted: Tensor, dim: tuple[int, ...] | None = None) -> Tensor:
    """Mean over the entries where `counted` is True; 0 if there are none."""
    kept = values.masked_fill(~counted, 0.0)
    dim = tuple(range(values.ndim)) if dim is None else dim
    return kept.sum(dim) / counted.sum(dim).clamp(min=1)


def plastic_names(model: nn.Module) -> tuple[str, ...]:
    """Names of the parameters that adapt: last predictor block and prediction projection."""
    if not isinstance(model, LeWM):
        name = getattr(model, "name", type(model).__name__)
        raise DjepaError(f"Plasticity adapts LeWM and TD-JEPA; '{name}' is neither.")
    ends = (f"predictor.blocks.{len(model.predictor.blocks) - 1}.", "pred_proj.")
    return tuple(name for name, _ in model.named_parameters() if name.startswith(ends))


def open_end(model: LeWM) -> dict[str, nn.Parameter]:
    """Enable gradients for the parameters of `plastic_names` alone, and return them by name.

    The model is put into eval mode, so that its normalisation statistics stay fixed.
    """
    end = {name: model.get_parameter(name) for name in plastic_names(model)}
    model.eval().requires_grad_(False)
    for parameter in end.values():
        parameter.requires_grad_()
    return end


@dataclass(frozen=True, eq=False)
class Patch:
    """Tensors that replace the last layers of one predictor."""

    geometry: str
    base: str  # `base_hash` of the weights it belongs to
    tensors: dict[str, Tensor]
    card: dict[str, Any]  # how it was made
    path: Path | None = None  # folder it was read from, for error messages

    def __str__(self) -> str:
        return f"The patch at {self.path}" if self.path else "The patch"


def base_hash(model: nn.Module) -> str:
    """SHA-256 of the names, dtypes, shapes and values of all parameters and buffers."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def apply_patch(model: LeWM, patch: Patch) -> LeWM:
    """A copy of the model with the patch applied, in eval mode and without gradients."""
    names, own = plastic_names(model), base_hash(model)
    if (model.name, own) != (patch.geometry, patch.base):
        raise DjepaError(
            f"{patch} belongs to {patch.geometry} weights {patch.base[:12]}, "
            f"not to {model.name} weights {own[:12]}."
        )
    odd = sorted(set(names) ^ set(patch.tensors))
    if odd:
        raise DjepaError(f"{patch} must replace the last block and the projection: '{odd[0]}'.")
    for name, tensor in patch.tensors.items():
        wanted = model.get_parameter(name)
        same = tensor.shape == wanted.shape and tensor.dtype == wanted.dtype  # or torch rounds
        if not same or not tensor.isfinite().all():
            raise DjepaError(
                f"{patch} is damaged: '{name}' must be {tuple(wanted.shape)} finite numbers of "
                f"{wanted.dtype}, got {tuple(tensor.shape)} of {tensor.dtype}."
            )
    adapted = copy.deepcopy(model).eval().requires_grad_(False)
    adapted.load_state_dict(patch.tensors, strict=False)
    return adapted


def save_patch(patch: Patch, folder: Path) -> None:
    """Write the patch folder, the manifest last; a finished patch is not overwritten."""
    tensors = {name: t.detach().cpu().contiguous() for name, t in patch.tensors.items()}
    card = {"geometry": patch.geometry, "base": patch.base, "card": patch.card}
    files = {
        "patch.safetensors": bytes(save(tensors)),
        "card.json": encode_json(folder / "card.json", card),
    }
    save_folder(folder, PATCH, files, made_from={"weights": patch.base})


def load_patch(folder: Path) -> Patch:
    """Read a patch; any missing or altered file raises an error."""
    stored = Folder(folder, PATCH)
    record: PatchRecord = stored.record("card.json")
    tensors = stored.tensors("patch.safetensors")
    return Patch(record.geometry, record.base, tensors, record.card, stored.path)
