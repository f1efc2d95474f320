"""Verify the predictions stored beside a bank."""

from collections.abc import Iterator

from djepa.bank.read import Bank
from djepa.models.predictions import Stored


def check_predictions(bank: Bank) -> Iterator[str]:
    """Yield a line per geometry whose shards match their hashes and this bank.

    Raises an error that names the first that does not.
    """
    folder = bank.path / "evidence"
    for name in sorted(at.name for at in folder.iterdir()) if folder.is_dir() else ():
        stored = Stored(bank, name)
        for number in bank.blocks:
            stored.block(number)
        yield f"predictions of {name}: {len(bank.blocks)} shards as written, of this bank and world"
