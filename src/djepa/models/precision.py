"""Number formats of the nets: float32, TF32, bfloat16."""

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

PRECISIONS = ("float32", "tf32", "bf16")


@contextmanager
def arithmetic(device: torch.device, precision: str) -> Iterator[None]:
    """Matrix products in this precision; the flags of the process come back afterwards."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # some versions ask for the newer flags
        before = matmul.allow_tf32, cudnn.allow_tf32
        matmul.allow_tf32 = cudnn.allow_tf32 = precision == "tf32"
    try:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def narrowed(module: nn.Module) -> Any:
    """A copy whose matrices are bfloat16: autocast would round them anew in every call."""
    narrow = copy.deepcopy(module)
    for part in narrow.modules():
        if isinstance(part, nn.Linear | nn.Conv2d):
            part.to(torch.bfloat16)
    return narrow
