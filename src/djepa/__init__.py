"""D-JEPA: decision-aligned latent world models.

    alignment = djepa.fit(evidence, outcomes).calibrate(other_evidence, other_outcomes)
    decision = alignment.decide(new_evidence)

Importing the package is cheap: torch and the simulators load when something needs them.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
_HOMES = {
    "AlignConfig": "djepa.align.fit",
    "Alignment": "djepa.align.fit",
    "Bank": "djepa.bank.read",
    "Evidence": "djepa.evidence.evidence",
    "Outcomes": "djepa.align.outcomes",
    "Planner": "djepa.lift.planner",
    "audit": "djepa.audit.report",
    "fit": "djepa.align.api",
    "load": "djepa.align.api",
}
__all__ = ["__version__", *sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'djepa' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
