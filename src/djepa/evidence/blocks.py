"""Work on many starts in blocks, so that what is only intermediate does not grow with their number.

Legend: N starts, K candidates.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor

CANDIDATES = 2**18  # candidates of a block, over all its starts


def block_size(candidates: int) -> int:
    """Starts of a block."""
    return max(1, CANDIDATES // max(1, candidates))


def slices(starts: int, size: int) -> Iterator[slice]:
    """Consecutive slices of at most `size` starts."""
    return (slice(at, min(at + size, starts)) for at in range(0, starts, size))


def in_blocks(work: Callable[..., Tensor], *arrays: Tensor) -> Tensor:
    """work(*arrays) of (N, K, ...) arrays, where no start has an effect on another."""
    first = arrays[0]
    starts, size = len(first), block_size(first.shape[1]) if first.ndim > 1 else len(first)
    if starts <= size or any(len(array) != starts for array in arrays):
        return work(*arrays)
    parts = (work(*(array[at] for array in arrays)) for at in slices(starts, size))
    return filled(parts, starts)


def filled(parts: Iterable[Tensor], starts: int) -> Tensor:
    """Concatenate parts of `starts` starts; each is let go of before the next is made."""
    whole = Filled(starts)
    for part in parts:
        whole.add(all=part)
    return whole.arrays["all"]


class Filled:
    """Arrays of `starts` starts, filled part by part."""

    def __init__(self, starts: int) -> None:
        self.starts, self.at = starts, 0
        self.arrays: dict[str, Tensor] = {}

    def add(self, **parts: Tensor) -> None:
        """Append the rows of every array; a single part is taken as it is."""
        if not parts:
            return
        size = len(next(iter(parts.values())))
        if size == self.starts and not self.at:
            self.arrays = dict(parts)
        else:
            for name, part in parts.items():
                if name not in self.arrays:
                    self.arrays[name] = part.new_empty((self.starts, *part.shape[1:]))
                self.arrays[name][self.at : self.at + size] = part
        self.at += size


def shared(ids: Tensor) -> Tensor:
    """The same (N, K) IDs; if all pools have the same ones, a view of one row in memory."""
    alike = len(ids) > 1 and bool((ids == ids[:1]).all())
    return ids[:1].clone().expand(len(ids), -1) if alike else ids


def join_ids(parts: Sequence[Tensor]) -> Tensor:
    """Concatenate (n, K) IDs; again one row in memory if all pools have the same ones."""
    first = parts[0][:1]
    if all(bool((part == first).all()) for part in parts):
        return first.clone().expand(sum(map(len, parts)), -1)
    return torch.cat(list(parts))
