"""A geometry from the place a user names: weights of ours, or the published file of V-JEPA 2-AC.

    clones/vjepa2/             a clone of its repository, whose hubconf.py builds the model
      vjepa2-ac-vitg.pt        the file of weights, put into it

The path of that file may stand for a folder of weights wherever candidates are searched, checked or
predicted. Loading runs the code of the clone.
"""

from pathlib import Path

from djepa.errors import DjepaError
from djepa.models.kinds import Model
from djepa.models.vjepa2 import VJEPA2AC, file_hash, load_vjepa2
from djepa.models.weights import (
    find_weights,
    geometry_name,
    load_geometry,
    places,
    weights_hash,
)

FILE, CODE = ".pt", "hubconf.py"


def published(where: str | Path) -> bool:
    """Whether this is the path of a published file of weights."""
    return Path(where).suffix == FILE


def open_geometry(
    where: str | Path, device: str = "cpu", world: str | None = None
) -> Model | VJEPA2AC:
    """`load_geometry`, or V-JEPA 2-AC, whose inputs say themselves which worlds suit it."""
    if not published(where):
        return load_geometry(where, device, world)
    return load_vjepa2(_file(where).parent, where, device)


def source_hash(where: str | Path) -> str:
    """Hash of the weights; stored results refer to it."""
    return file_hash(_file(where)) if published(where) else weights_hash(where)


def source_name(where: str | Path) -> str:
    """The geometry that is there."""
    return VJEPA2AC.name if published(where) else geometry_name(where)


def source_place(where: str | Path) -> str:
    """Where another process finds it: weights that go by name by their name, others by a path."""
    if published(where):
        return str(_file(where))
    found = find_weights(where)
    return found.name if found.parent in places() else str(found.resolve())


def _file(where: str | Path) -> Path:
    file = Path(where).resolve()
    if not file.is_file():
        raise DjepaError(f"There is no file of weights at {where}.")
    if not (file.parent / CODE).is_file():
        raise DjepaError(
            f"{file.parent} is no clone of the repository of V-JEPA 2: it has no {CODE}. Clone it, "
            f"and put {file.name} into the clone."
        )
    return file
