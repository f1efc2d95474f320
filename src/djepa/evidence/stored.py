"""Last latents read from file on demand, for banks whose latents do not fit into memory."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from djepa.models.predictions import Stored


@dataclass(frozen=True, eq=False)
class StoredLatents(Mapping[str, Tensor]):
    """Mapping name -> (N, K, D), read on access; `rows` reads single starts."""

    stored: "Mapping[str, Stored]"
    blocks: range  # numbers of the shards
    block: int  # starts per shard
    positions: Tensor | None = None  # (N, K') positions of the remaining candidates, in order

    def __getitem__(self, name: str) -> Tensor:
        """All latents of one geometry, which may exceed the memory."""
        sizes = self.stored[name].bank.manifest["blocks"]
        return self._read(name, torch.arange(sum(sizes[b]["starts"] for b in self.blocks)))

    def __contains__(self, name: object) -> bool:
        return name in self.stored  # the Mapping default would read the file

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)

    def rows(self, at: Tensor) -> dict[str, Tensor]:
        """Name -> (n, K, D) latents of the starts at (n,) rows."""
        return {name: self._read(name, at) for name in self.stored}

    def columns(self, positions: Tensor) -> "StoredLatents":
        """Keep or reorder candidates by (N, K') positions; reads no file."""
        if self.positions is not None:
            positions = self.positions.gather(1, positions)
        return replace(self, positions=positions)

    def _read(self, name: str, at: Tensor) -> Tensor:
        wanted = at.cpu().numpy()
        blocks, parts, places = wanted // self.block, [], []
        for number in np.unique(blocks).tolist():
            here = np.flatnonzero(blocks == number)
            rows = (wanted[here] - number * self.block).tolist()
            shard = self.blocks[number]
            parts.append(torch.from_numpy(self.stored[name].ends(shard, rows)))
            places.append(torch.from_numpy(here))
        found = torch.cat(parts)[torch.cat(places).argsort()]
        if self.positions is None:
            return found
        kept = self.positions[at.to(self.positions.device)].cpu()
        return found.gather(1, kept[..., None].expand(-1, -1, found.shape[-1]))
