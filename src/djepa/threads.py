"""The number of threads of a computation: it changes how sums are rounded."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with a single thread inside the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def threads_for(device: str) -> AbstractContextManager[None]:
    """One thread on a CPU, where the bits of a sum depend on how many share it."""
    return one_thread() if device == "cpu" else nullcontext()
