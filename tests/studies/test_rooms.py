"""Data enters at the top: a room imports only from rooms above it (docs/design.md)."""

import ast
from pathlib import Path

import djepa

ROOMS = (
    "artefacts worlds pools tasks rollout bank models evidence align lift evaluate audit bench "
    "report studies cli"
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
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("djepa."):
                other = node.module.split(".")[1]
                if other in rooms:
                    assert rooms.index(other) <= rooms.index(room), f"{file}: {node.module}"
    assert seen > 100
