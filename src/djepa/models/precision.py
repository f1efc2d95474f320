"""Number formats of the nets.

float32       as PyTorch computes it with TF32 off
fp16x3        float32 accuracy on tensor cores, see split.py
tf32, bf16    faster and less exact: choices change
"""

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from djepa.models.split import split_layers

PRECISIONS = ("float32", "fp16x3", "tf32", "bf16")


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


def in_format(module: nn.Module, precision: str, copied: bool = False) -> Any:
    """The module with its matrices in this format: a copy, or with float32 and TF32 itself.

    bfloat16 matrices are rounded here: autocast would round them anew in every call.
    """
    if precision == "fp16x3":
        return split_layers(copy.deepcopy(module))
    if precision != "bf16":
        return copy.deepcopy(module) if copied else module
    narrow = copy.deepcopy(module)
    for part in narrow.modules():
        if isinstance(part, nn.Linear | nn.Conv2d):
            part.to(torch.bfloat16)
    return narrow
