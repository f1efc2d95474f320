"""Stored predictions: what a geometry says, however its tensors lie in memory."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from djepa.bank.read import Bank
from djepa.models.predict import predict
from djepa.models.predictions import predict_bank, read_predictions

LAYOUTS = ["plain", "reversed", "candidates first", "blocks first", "every other", "repeated"]


class Strided:
    """Sums of controls as latents, in tensors of any layout."""

    name, image, latent = "strided", 16, 3

    def __init__(self, layout: str) -> None:
        self.layout = layout

    def encode(self, frames: Tensor, proprio: Tensor) -> Tensor:
        return self._laid(proprio[..., :3] / 512)

    def rollout(self, context: Tensor, history: Tensor, candidates: Tensor) -> Tensor:
        sums = candidates.unflatten(2, (-1, 5)).mean(3).cumsum(2)
        futures = context[:, -1][:, None, None] + torch.nn.functional.pad(sums, (0, 1))
        return self._laid(futures)

    def native_cost(self, futures: Tensor, goal: Tensor) -> Tensor:
        return self._laid((futures[:, :, -1] - goal[:, None]).square().mean(-1))

    def _laid(self, x: Tensor) -> Tensor:
        """The same numbers, in another order in memory."""
        axes = list(range(x.ndim))
        if self.layout == "reversed":
            axes = axes[::-1]
        elif self.layout == "candidates first" and x.ndim > 1:
            axes[:2] = axes[1::-1]
        elif self.layout == "blocks first" and x.ndim == 4:
            axes = [2, 0, 1, 3]
        elif self.layout == "every other":
            return torch.stack([x, -x], dim=-1).flatten(-2)[..., ::2]
        elif self.layout == "repeated" and x.ndim == 4:  # one number for all of a latent
            return x.mean(-1, keepdim=True).expand(x.shape)
        back = [axes.index(i) for i in range(x.ndim)]
        return x.permute(axes).contiguous().permute(back)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_futures_are_stored_right_whatever_their_layout(layout: str, bank_copy: Path) -> None:
    bank, geometry = Bank(bank_copy), Strided(layout)
    direct = predict(geometry, bank.scene(), bank.decisions)
    assert direct.futures.is_contiguous() == (layout == "plain")
    predict_bank(bank, geometry, "abc")
    stored = read_predictions(bank, "strided")
    assert stored.futures is not None
    futures = direct.futures.contiguous().numpy()
    assert stored.futures.shape == (10, 63, 5, 3)
    assert np.array_equal(stored.futures, futures.astype(np.float16))
    assert np.array_equal(stored.goal, direct.goal.contiguous().numpy().astype(np.float16))
    assert np.array_equal(stored.cost, direct.cost.contiguous().numpy())
    if layout == "plain":
        assert len(np.unique(stored.futures)) > 1000  # numbers that would show a wrong order


@pytest.mark.parametrize("layout", [x for x in LAYOUTS if x not in ("plain", "repeated")])
def test_layouts_are_written_to_the_same_bytes(layout: str, bank_copy: Path) -> None:
    shards = []
    for kind in ("plain", layout):
        geometry = Strided(kind)
        geometry.name = kind.replace(" ", "-")
        folder = predict_bank(Bank(bank_copy), geometry, "abc")
        shards.append([path.read_bytes() for path in sorted(folder.glob("*.safetensors"))])
    assert len(shards[0]) == 3
    assert shards[0] == shards[1]
