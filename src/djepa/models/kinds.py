"""The geometries there are, by name: class, configuration and sizes."""

from dataclasses import dataclass, replace
from typing import Any

from djepa.errors import unknown_name
from djepa.models import dinowm, jepawm, lewm
from djepa.models.lewm import LeWM, LeWMConfig
from djepa.models.patches import PatchConfig, PatchGeometry
from djepa.models.tdjepa import TDJEPA

Model = LeWM | PatchGeometry


@dataclass(frozen=True)
class Kind:
    """One geometry: how to build it, and in which sizes."""

    build: type[Any]
    config: type[LeWMConfig] | type[PatchConfig]
    sizes: dict[str, Any]


GEOMETRIES = {
    "lewm": Kind(LeWM, LeWMConfig, lewm.SIZES),
    "tdjepa": Kind(TDJEPA, LeWMConfig, lewm.SIZES),
    "jepawm": Kind(jepawm.JEPAWM, PatchConfig, jepawm.SIZES),
    "dinowm": Kind(dinowm.DINOWM, PatchConfig, dinowm.SIZES),
}


def get_kind(name: str) -> Kind:
    """The kind of that name, or an error that suggests the nearest one."""
    if name not in GEOMETRIES:
        raise unknown_name("geometry", name, GEOMETRIES)
    return GEOMETRIES[name]


def build(name: str, size: str = "small", **changes: int) -> Model:
    """A geometry with fresh weights; `changes` of its sizes, as another world may want them."""
    kind = get_kind(name)
    if size not in kind.sizes:
        raise unknown_name("size", size, kind.sizes)
    model: Model = kind.build(replace(kind.sizes[size], **changes))
    return model
