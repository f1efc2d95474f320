"""Conformance tests for your own world or geometry."""

from typing import TYPE_CHECKING, Any

from djepa.testing.world import PROMISES, BrokenPromiseError, check_world

if TYPE_CHECKING:
    from djepa.testing.geometry import check_geometry

__all__ = ["PROMISES", "BrokenPromiseError", "check_geometry", "check_world"]


def __getattr__(name: str) -> Any:
    """Import `check_geometry` on first use, because it needs torch."""
    if name == "check_geometry":
        from djepa.testing.geometry import check_geometry

        return check_geometry
    raise AttributeError(name)
