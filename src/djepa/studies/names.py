"""The list of studies."""

from importlib import import_module
from typing import TYPE_CHECKING

from djepa.errors import unknown_name

if TYPE_CHECKING:
    from djepa.studies.design import Design

STUDIES = {  # name -> module; the design is the constant with this name in capitals
    "pusht": "pusht",
    "reacher": "reacher",
    "granular": "granular",
    "shapes": "shifts",
    "appearance": "shifts",
    "controls": "controls",
    "control": "closed_loop",
    "driving": "driving",
    "arm": "arm",
    "bimanual": "bimanual",
}
# Not part of `all`: they need an extra, or repeat another study.
APART = {"cube": "cube", "aloha": "aloha", "appearance-v2": "shifts"}
# Every method of the main table on one task.
MAIN = {f"main-{task}": "main" for task in ("pusht", "reacher", "granular", "fine")}


def get_design(name: str) -> "Design":
    """The design of that name; its module is imported here."""
    known = {**STUDIES, **APART, **MAIN}
    if name not in known:
        raise unknown_name("study", name, known)
    module = import_module(f"djepa.studies.{known[name]}")
    found: Design = getattr(module, name.upper().replace("-", "_"))
    return found
