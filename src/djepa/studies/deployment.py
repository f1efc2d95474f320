"""What deploying a decision costs: milliseconds from frames to choice, files to carry.

Legend: K candidates.
"""

from typing import Any

from djepa.align.suite import Suite
from djepa.bank.read import Bank
from djepa.models.weights import load_geometry
from djepa.studies.measures import latency
from djepa.studies.populations import Place

FILES = {"geometry": 4, "alignment": 5}  # of a folder each: weights, configuration, card, hashes


def deployment(place: Place, suite: Suite, bank: Bank, repeats: int) -> dict[str, dict[str, Any]]:
    """Configuration -> milliseconds per start in batches of 16, every repeat; files."""
    found = {}
    for name in ("relational", "D-JEPA"):
        if name not in suite.alignments:
            continue
        alignment = suite.alignments[name]
        needed = tuple(dict.fromkeys((*alignment.config.geometries, "tdjepa")))
        models = {n: load_geometry(n, place.device) for n in needed}
        lifts = ((name, False), (f"{name}, lifted", True))
        for label, lift in lifts if name == "relational" else lifts[1:]:
            found[label] = {
                "method": name,
                "milliseconds": latency(alignment, models, bank, place.device, lift, repeats),
                "files": FILES["geometry"] * len(models) + FILES["alignment"] + 1,
                "device": place.device,
            }
    return found
