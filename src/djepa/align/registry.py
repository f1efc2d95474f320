"""The registry of methods: name in stored rows, label in tables and pages, one-line description.

The methods are the rows of registry.csv. `name` is stored in rows and never changes; `label` is
what a reader sees. The order of METHODS is the order of every table.
"""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal, get_args

Origin = Literal["published", "ours", "control", "bound"]
GEOMETRIES = {"lewm": "LeWM", "tdjepa": "TD-JEPA", "jepawm": "JEPA-WM", "dinowm": "DINO-WM"}


@dataclass(frozen=True)
class Method:
    """One way to choose a candidate."""

    name: str  # in stored rows
    label: str  # in tables and pages
    origin: Origin
    preset: str  # configuration that fits it, see align/presets.py; empty if not an alignment
    sentence: str


def slug(name: str) -> str:
    """A folder or file name: lower case letters and digits, everything else one hyphen."""
    return "-".join("".join(c if c.isalnum() else " " for c in name.lower()).split())


def label(name: str) -> str:
    """The label of a method in tables; unregistered methods are shown by their name."""
    return METHODS[name].label if name in METHODS else name


def ordered(names: Iterable[str]) -> list[str]:
    """Names sorted in the order of tables; unregistered methods come last, in the given order."""
    places = {name: place for place, name in enumerate(METHODS)}
    return sorted(dict.fromkeys(names), key=lambda name: places.get(name, len(places)))


def _read() -> dict[str, Method]:
    """A method for each row, with its fields in their order."""
    table = (files("djepa.align") / "registry.csv").read_text(encoding="utf-8")
    origins: dict[str, Origin] = {origin: origin for origin in get_args(Origin)}
    found = {}
    for name, shown, origin, preset, sentence in list(csv.reader(table.splitlines()))[1:]:
        found[name] = Method(name, shown, origins[origin], preset, sentence)
    return found


METHODS = _read()
