"""V-JEPA 2-AC from its own code and weights, which are neither shipped nor downloaded.

    model = load_vjepa2("clones/vjepa2", "clones/vjepa2/vjepa2-ac-vitg.pt")
    cost = native_costs(model, Scene("arm", "push"), starts)      # djepa.models.planner_pool

The first is a clone of its repository, whose `hubconf.py` builds encoder and predictor without
weights; the second is the file of weights. Where that lies in the clone, its path alone is enough
for a search (source.py). One frame is shown twice, as a tubelet of two.

Legend: B rows, P = 256 tokens of a frame, W width of a token.
"""

import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from djepa.errors import DjepaError
from djepa.models.ac import ACGeometry
from djepa.models.lewm import IMAGENET_MEAN, IMAGENET_STD
from djepa.worlds.arms.table import ACTIONS

ENTRY = "vjepa2_ac_vit_giant"
PREFIXES = ("module.", "backbone.")


class Files(NamedTuple):
    """Where the model comes from."""

    repository: str
    weights: str
    entry: str


class VJEPA2AC(ACGeometry):
    """A given encoder and predictor behind the interface of the small model."""

    name = "vjepa2-ac"

    def __init__(
        self, encoder: nn.Module, predictor: nn.Module, files: Files, image: int = 256
    ) -> None:
        """`files`: what it was loaded from."""
        super().__init__()
        self.encoder, self.predictor, self.files = encoder, predictor, files
        self.image, self.grid, self.chunk = image, image // 16, 8
        self.register_buffer("mean", torch.tensor(IMAGENET_MEAN)[:, None, None])
        self.register_buffer("std", torch.tensor(IMAGENET_STD)[:, None, None])
        self.mean: Tensor
        self.std: Tensor
        # Its file says nothing about its training controls: a search begins with the largest one.
        self.register_buffer("action_std", torch.ones(ACTIONS))
        self.action_std: Tensor
        self.width = int(self.tokens(torch.zeros(1, image, image, 3, dtype=torch.uint8)).shape[-1])

    @torch.inference_mode()
    def tokens(self, frames: Tensor) -> Tensor:
        """uint8 frames (B, I, I, 3) -> (B, P, W), layer-normed."""
        pixels = (frames.to(self.mean.device).permute(0, 3, 1, 2) / 255 - self.mean) / self.std
        tokens = self.encoder(pixels[:, :, None].repeat(1, 1, 2, 1, 1))
        if tokens.shape[1] != self.grid**2:
            raise DjepaError(
                f"The encoder gives {tokens.shape[1]} tokens a frame of {self.image} pixels, "
                f"not {self.grid**2}."
            )
        return F.layer_norm(tokens, tokens.shape[-1:])

    @torch.inference_mode()
    def predict(self, tokens: Tensor, actions: Tensor, poses: Tensor) -> Tensor:
        """(B, P, W), (B, 7), (B, 7) -> (B, P, W)."""
        after = self.predictor(tokens, actions[:, None], poses[:, None])[:, -tokens.shape[1] :]
        return F.layer_norm(after, after.shape[-1:])

    def __reduce__(self) -> tuple[Callable[..., "VJEPA2AC"], tuple[str, ...]]:
        """Other processes load it from the same files: its classes have no module to import."""
        return _again, (*self.files, file_hash(Path(self.files.weights)))


def load_vjepa2(
    repository: str | Path, weights: str | Path, device: str = "cpu", entry: str = ENTRY
) -> VJEPA2AC:
    """Build it by the repository's own code and fill in the weights; strict."""
    for what, path in (("clone of its repository", repository), ("file of weights", weights)):
        if not Path(path).exists():
            raise DjepaError(f"There is no {what} at {path}.")
    made: Any = torch.hub.load(str(repository), entry, source="local", pretrained=False)
    stored = torch.load(weights, map_location="cpu", weights_only=True)
    for name, part in zip(("encoder", "predictor"), made, strict=True):
        if name not in stored:
            raise DjepaError(f"{weights} holds no '{name}', but {', '.join(stored)}.")
        try:
            part.load_state_dict({_plain(key): value for key, value in stored[name].items()})
        except RuntimeError as error:
            raise DjepaError(f"{weights}: its {name} does not fit ({error}).") from None
    files = Files(str(Path(repository).resolve()), str(Path(weights).resolve()), entry)
    encoder, predictor = made
    return VJEPA2AC(encoder, predictor, files).to(device).eval().requires_grad_(False)


def file_hash(file: Path) -> str:
    """SHA-256 of a file; computed again only if its size or time has changed."""
    about = file.stat()
    return _file_hash(file, about.st_size, about.st_mtime_ns)


@lru_cache(maxsize=8)
def _file_hash(file: Path, size: int, changed: int) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def _again(repository: str, weights: str, entry: str, known: str) -> VJEPA2AC:
    """The model in another process, on the CPU; refused if its weights are not the same."""
    model = load_vjepa2(repository, weights, entry=entry)
    if file_hash(Path(weights)) != known:
        raise DjepaError(f"{weights} is not the file that the driver has. Put the same one there.")
    return model


def _plain(key: str) -> str:
    """A tensor's name without what training wrapped around the module."""
    for prefix in PREFIXES:
        key = key.removeprefix(prefix)
    return key
