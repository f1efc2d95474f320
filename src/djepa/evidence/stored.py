"""Last latents that stay in their files: of a large bank they would not fit into memory.

Legend: N starts, K candidates, D latent.
"""

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
    """Name -> (N, K, D), read when asked for; `rows` reads those of some starts alone."""

    stored: "Mapping[str, Stored]"
    blocks: range  # shards
    block: int  # starts of a shard
    positions: Tensor | None = None  # (N, K') of the candidates that are left, in this order

    def __getitem__(self, name: str) -> Tensor:
        """All of them, which may be more than memory holds."""
        sizes = self.stored[name].bank.manifest["blocks"]
        return self._read(name, torch.arange(sum(sizes[b]["starts"] for b in self.blocks)))

    def __contains__(self, name: object) -> bool:
        return name in self.stored  # without reading it

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)

    def rows(self, at: Tensor) -> dict[str, Tensor]:
        """Name -> (n, K, D) of these starts."""
        return {name: self._read(name, at) for name in self.stored}

    def columns(self, positions: Tensor) -> "StoredLatents":
        """Smaller or reordered pools; nothing is read."""
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
