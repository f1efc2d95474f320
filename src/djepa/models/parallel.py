"""Training in several processes, as torchrun starts them: each takes every W-th window of a batch.

All processes draw the same batch and keep their own rows, so W processes train on the same data as
one. Statistics of the whole batch (SIGReg, BatchNorm, prototypes) are gathered, and gradients are
averaged. Without torchrun there is one process, and no function here has an effect.

Legend: W processes, B rows of the whole batch, n = B / W rows of one process.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from djepa.errors import DjepaError

PATIENCE = timedelta(hours=1)  # others wait so long for the first one, which judges the model
_ALONE = [False]


def begin(device: str) -> torch.device:
    """Join the other processes, if torchrun started several; the device of this one."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or not dist.is_torchelastic_launched():
        return torch.device(device)
    gpu = device.startswith("cuda")
    own = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device(device)
    if gpu:
        torch.cuda.set_device(own)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if gpu else "gloo", timeout=PATIENCE)
    return own


def count() -> int:
    """W."""
    return dist.get_world_size() if dist.is_initialized() and not _ALONE[0] else 1


def number() -> int:
    """Which process this is; 0 writes the files."""
    return dist.get_rank() if dist.is_initialized() else 0


@contextmanager
def alone() -> Iterator[None]:
    """Context for work of a single process: nothing is shared or gathered inside."""
    before, _ALONE[0] = _ALONE[0], True
    try:
        yield
    finally:
        _ALONE[0] = before


def check_batch(size: int, shapes: int = 1) -> None:
    """Refuse a batch that processes cannot share evenly."""
    if size % (shapes * count()):
        raise DjepaError(
            f"A batch of {size} windows of {shapes} shapes is not shared evenly by {count()} "
            "processes. Start another number of them."
        )


def rows() -> slice:
    """The rows of a batch that this process takes."""
    return slice(number(), None, count()) if count() > 1 else slice(None)


def everyones(x: Tensor) -> Tensor:
    """(n, ...) of every process -> (B, ...) in the order of the batch, with gradients."""
    if count() == 1:
        return x
    gathered: Tensor = _Gather.apply(x)  # type: ignore[no-untyped-call]
    return gathered


def mean_of_all(x: Tensor) -> Tensor:
    """The mean of what every process has, with gradients."""
    return everyones(x[None]).mean(0) if count() > 1 else x


def average(parameters: Iterable[nn.Parameter], value: Tensor) -> Tensor:
    """Average gradients in place; the average of a value too, such as the loss."""
    if count() == 1:
        return value
    found = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([value[None], *(grad.flatten() for grad in found)])
    dist.all_reduce(flat)
    flat /= count()
    parts = flat[1:].split([grad.numel() for grad in found])
    for grad, part in zip(found, parts, strict=True):
        grad.copy_(part.view_as(grad))
    return flat[0]


def agree(flag: bool, device: torch.device) -> bool:
    """The first process's value of `flag`, on all processes."""
    if count() == 1:
        return flag
    said = torch.tensor(float(flag), device=device)
    dist.broadcast(said, 0)
    return bool(said.item())


class _Gather(torch.autograd.Function):
    """Rows of all processes; their gradients are summed and go back to where rows came from."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(count())]
        dist.all_gather(parts, x.contiguous())
        return torch.stack(parts, dim=1).flatten(0, 1)  # row i is of process i modulo W

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        whole = gradients[0].contiguous()
        dist.all_reduce(whole)
        return whole[rows()]


class BatchNorm(nn.BatchNorm1d):
    """BatchNorm over the batch of all processes together; torch's own needs GPUs for that."""

    def forward(self, x: Tensor) -> Tensor:
        """(n, width) -> (n, width)."""
        if not self.training or count() == 1:
            return super().forward(x)
        wide, total = x.float(), len(x) * count()
        mean = mean_of_all(wide.mean(0))
        spread = mean_of_all((wide - mean).square().mean(0))
        with torch.no_grad():
            assert self.running_mean is not None
            assert self.running_var is not None
            assert self.num_batches_tracked is not None
            share = 0.1 if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean, share)
            self.running_var.lerp_(spread * total / (total - 1), share)
            self.num_batches_tracked += 1
        scaled = (wide - mean) * (spread + self.eps).rsqrt()
        return (scaled * self.weight + self.bias).to(x.dtype)
