"""Weights from a repository of Hugging Face (extra `hub`)."""

import re
from collections.abc import Iterable
from pathlib import Path

from djepa.errors import DjepaError

FETCHED = ["*.json", "*.safetensors", "*.npz"]  # native models have arrays too; no pickle


def is_repository(where: str | Path) -> bool:
    """Whether this can be a repository: user/name, which is no path of a checkpoint (.pt)."""
    return re.fullmatch(r"[\w.-]+/[\w.-]+(?<!\.pt)", str(where)) is not None


def from_hub(name: str, looked: Iterable[Path], again: str = "") -> Path:
    """The folder of a repository, fetched unless it is in the local cache.

    `looked`: where no folder of that name was found; `again`: what else can be done.
    """
    nowhere = f"There is no folder '{name}', neither here nor in {', '.join(map(str, looked))}"
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise DjepaError(
            f"{nowhere}. If it is a repository of Hugging Face, install the extra 'hub': "
            f"pip install 'djepa[hub]'. {again}".strip()
        ) from None
    try:
        return Path(snapshot_download(name, allow_patterns=FETCHED))
    except Exception as error:  # whatever the network and the library raise
        raise DjepaError(
            f"{nowhere}, and Hugging Face gave none: {error} {again}".strip()
        ) from None
