"""Banks of blocks with two shards each: what may be known before execution, and the outcomes."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from djepa.artefacts.folder import Arrays, Folder, encode, load_arrays, stacked
from djepa.artefacts.layout import Layout, check_layout
from djepa.artefacts.records import Kind
from djepa.artefacts.write import Writer
from djepa.bank.schema import shard_name
from djepa.errors import DjepaError
from djepa.rollout.engine import Engine

KINDS = ("decision", "outcome")
Found = dict[str, Arrays]  # kind of shard -> its arrays; empty where a block has no start


def read_kind(
    folder: Folder,
    kind: str,
    layout: Mapping[str, Layout],
    blocks: Mapping[int, int],
    complaint: Callable[[int, Arrays], str],
) -> Arrays:
    """The arrays of one kind of shard over all blocks, whose numbers of starts are `blocks`.

    `complaint` says what is wrong with the decisions of a block, if anything.
    """

    def shard(number: int) -> Arrays:
        name = shard_name(kind, number)
        path = folder.path / name
        arrays = load_arrays(path, folder.read(name))
        check_layout(path, arrays, layout[kind], {"N": blocks[number]}, folder.kind.again)
        if kind == "decision" and (wrong := complaint(number, arrays)):
            raise DjepaError(f"{path} {wrong}. {folder.kind.again}")
        return arrays

    return stacked(folder.path, map(shard, blocks), sum(blocks.values()))


def write_blocks(
    path: Path,
    kind: Kind,
    config: Any,
    engine: Engine,
    run: Callable[..., Found],
    work: Callable[[int], Any],
    nothing: str,
) -> None:
    """Make every block of a configuration that is missing; a finished bank is left as it is.

    `nothing` is the error of a bank without any start.
    """
    writer = Writer(path, kind, {"config": asdict(config)})
    with writer.opened():
        if writer.complete:
            return
        starts = dict[int, int]()
        for of in (piece.note for piece in writer.pieces):  # early banks do not say how many
            starts[of["block"]] = of.get("starts", len(config.members(of["block"])))
        missing = [block for block in range(config.blocks) if block not in starts]
        for block, found in engine.map(run, ((b, work(b)) for b in missing)):
            starts[block] = len(found["decision"].get("ids", ()))
            files = {
                shard_name(of, block): encode(arrays) for of, arrays in found.items() if arrays
            }
            writer.write(files, {"block": block, "starts": starts[block]})
        blocks = [{"starts": starts[block]} for block in sorted(starts) if starts[block]]
        if not blocks:
            raise DjepaError(nothing)
        writer.finish({**writer.about, "blocks": blocks})
