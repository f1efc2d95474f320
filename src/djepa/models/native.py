"""What the trainings of models that are no geometries share: a first layer, reports, processes."""

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from djepa.rollout.engine import usable_cores

PATCHES = 20_000  # that components are fitted to
SCALE = 0.5  # of the components, so that tokens of objects are about 1 and empty ones less
Say = Callable[[str], None]


@torch.no_grad()
def fit_components(layer: nn.Conv2d, pixels: Tensor, rng: np.random.Generator) -> None:
    """Principal components of windowed patches of images (n, C, h, w), each of variance σ.

    A component of standard deviation σ is divided by √σ: partial whitening, between the raw
    variances and full whitening.
    """
    side, channels, width = layer.kernel_size[0], layer.in_channels, layer.out_channels
    assert not isinstance(layer.padding, str)
    patches = F.unfold(pixels, side, stride=layer.stride, padding=layer.padding)
    patches = patches.mT.reshape(-1, channels * side**2)
    patches = patches[torch.from_numpy(rng.permutation(len(patches))[:PATCHES])].double()
    smooth = torch.hann_window(side + 2, periodic=False, dtype=torch.float64)[1:-1]
    window = (smooth[:, None] * smooth).flatten().repeat(channels).to(patches.device)
    mean = patches.mean(0)
    spread, axes = torch.linalg.eigh(((patches - mean) * window).T.cov())
    spread, axes = spread[-width:], axes[:, -width:]
    axes = axes * axes.sum(0).sign()  # a component's sign is arbitrary
    weight = (axes / spread.clamp_min(1e-9) ** 0.25).T * window / SCALE
    layer.weight.copy_(weight.view_as(layer.weight))
    layer.bias.copy_(-weight @ mean)  # type: ignore[union-attr]


def saying() -> Say:
    """Prints a line with the seconds since this call."""
    begun = time.perf_counter()

    def say(text: str) -> None:
        print(f"{time.perf_counter() - begun:5.0f} s  {text}", flush=True)

    return say


def device_of(name: str) -> str:
    """A name that PyTorch knows; auto is the GPU if there is one."""
    return ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name


def processes(workers: int) -> ProcessPoolExecutor:
    """So many fresh processes; 0 is all cores."""
    return ProcessPoolExecutor(workers or usable_cores(), get_context("spawn"))
