"""The geometries there are, by name: class, configuration and sizes."""

from dataclasses import dataclass, replace
from typing import Any

import torch

from djepa.errors import check_name
from djepa.models import ac, dinowm, jepawm, lewm
from djepa.models.ac import ACConfig, ActionConditioned
from djepa.models.lewm import LeWM, LeWMConfig
from djepa.models.nets import initialise
from djepa.models.patches import PatchConfig, PatchGeometry
from djepa.models.tdjepa import TDJEPA

Trainable = LeWM | PatchGeometry  # by `djepa train`
Model = Trainable | ActionConditioned


@dataclass(frozen=True)
class Kind:
    """One geometry: how to build it, and in which sizes."""

    build: type[Any]
    config: type[LeWMConfig] | type[PatchConfig] | type[ACConfig]
    sizes: dict[str, Any]


GEOMETRIES = {
    "lewm": Kind(LeWM, LeWMConfig, lewm.SIZES),
    "tdjepa": Kind(TDJEPA, LeWMConfig, lewm.SIZES),
    "jepawm": Kind(jepawm.JEPAWM, PatchConfig, jepawm.SIZES),
    "dinowm": Kind(dinowm.DINOWM, PatchConfig, dinowm.SIZES),
    "ac": Kind(ActionConditioned, ACConfig, ac.SIZES),
}


def get_kind(name: str) -> Kind:
    """The kind of that name, or an error that suggests the nearest one."""
    check_name("geometry", name, GEOMETRIES)
    return GEOMETRIES[name]


def build(name: str, random: torch.Generator, size: str = "small", **changes: int) -> Model:
    """A geometry with weights drawn from `random`, a generator on the CPU: the same everywhere.

    `changes` override sizes, for example for another world.
    """
    kind = get_kind(name)
    check_name("size", size, kind.sizes)
    with torch.random.fork_rng(devices=[]):  # layers draw from the global stream when they are made
        model: Model = kind.build(replace(kind.sizes[size], **changes))
    initialise(model, random)
    return model
