"""Write a bank block by block, so that finished blocks survive a crash."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from djepa.artefacts.folder import encode
from djepa.artefacts.write import Writer
from djepa.bank.schema import BANK, KINDS, check_shard, shard_name
from djepa.errors import DjepaError
from djepa.rollout.execute import Block, CollectConfig


class BankWriter:
    """Owns a bank folder while it is being collected."""

    def __init__(
        self,
        path: Path,
        config: CollectConfig,
        versions: dict[str, str],
        source: dict[str, Any] | None = None,
    ) -> None:
        self.path, self.config = path, config
        head = {"config": dataclasses.asdict(config), "source": source, "versions": versions}
        self._writer = Writer(path, BANK, head)
        self.done: dict[int, dict[str, Any]] = {}  # block -> starts, candidates, drops

    @contextmanager
    def opened(self) -> Iterator["BankWriter"]:
        """Lock the folder, read the blocks already written, unlock at the end."""
        with self._writer.opened():
            if not self._writer.complete:
                for piece in self._writer.pieces:
                    note = dict(piece.note)
                    self.done[note.pop("block")] = note
            yield self

    def missing(self) -> list[int]:
        """Numbers of the blocks that are not on disk yet."""
        if self._writer.complete:
            return []
        return [b for b in range(self.config.blocks) if b not in self.done]

    def write(self, number: int, block: Block) -> None:
        """Put one block on disk, then into the journal."""
        self._check(number, block)
        starts, candidates = block.decision["candidate_ids"].shape
        note = {"starts": starts, "candidates": candidates, "drops": block.drops}
        shards = {shard_name(kind, number): encode(getattr(block, kind)) for kind in KINDS}
        self._writer.write(shards, {"block": number, **note})
        self.done[number] = note

    def finish(self) -> None:
        """Write the manifest, with blocks in order of their numbers."""
        if self._writer.complete:
            about = self._writer.pieces[0].note
        else:
            blocks = [self.done[number] for number in range(self.config.blocks)]
            drops = {why: sum(b["drops"][why] for b in blocks) for why in blocks[0]["drops"]}
            about = {**self._writer.about, "blocks": blocks, "drops": drops}
        self._writer.finish(about)

    def _check(self, number: int, block: Block) -> None:
        """Refuse a block that could not be read back with the others."""
        for kind in KINDS:
            check_shard(self.path / shard_name(kind, number), kind, getattr(block, kind))
        _, K, H, _ = block.decision["actions"].shape
        others = {entry["candidates"] for entry in self.done.values()} | {K}
        if self.config.horizon != H or len(others) > 1:
            raise DjepaError(
                f"Block {number} has {K} candidates of {H} controls; a bank has one number of "
                f"candidates ({sorted(others)}) and {self.config.horizon} controls throughout."
            )
