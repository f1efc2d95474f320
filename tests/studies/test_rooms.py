"""Data enters at the top: a room imports only from rooms above it (docs/design.md)."""

import ast
from pathlib import Path

import djepa

ROOMS = (
    "artefacts worlds pools tasks rollout bank models evidence align lift interop evaluate control "
    "audit bench report studies cli"
)


def test_rooms_import_from_rooms_above() -> None:
    rooms, seen = ROOMS.split(), 0
    source = Path(djepa.__file__).parent
    for file in sorted(source.rglob("*.py")):
        room = file.relative_to(source).parts[0]
        if room not in rooms:
            continue
        seen += 1
        for node in ast.walk(ast.parse(file.read_text())):
            for module in imported(node):
                other = [*module.split("."), ""][1]
                if module.startswith("djepa.") and other in rooms:
                    assert rooms.index(other) <= rooms.index(room), f"{file}: {module}"
    assert seen > 100


def imported(node: ast.AST) -> list[str]:
    """Modules that an import names, whichever way it is written."""
    if isinstance(node, ast.Import):
        return [one.name for one in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return [f"{node.module}.{one.name}" for one in node.names]  # also `from djepa import cli`
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "import_module":
        return [one.value for one in node.args if isinstance(one, ast.Constant)]
    return []


def test_every_way_to_import_is_seen() -> None:
    ways = ("import djepa.cli.main", "import djepa.cli as c", "from djepa.cli import main")
    ways += ("from djepa import cli", 'import_module("djepa.cli.main")')
    for way in ways:
        (found,) = [name for node in ast.walk(ast.parse(way)) for name in imported(node)]
        assert found.startswith("djepa.cli"), way
