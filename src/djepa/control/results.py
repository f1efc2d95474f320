"""Results of finished episodes: success by two rules, controls until it, evaluations, comparisons.

Legend: N episodes, T the budget in controls, R decisions, S numbers in a state, A action width,
M geometries.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from djepa.artefacts.folder import Arrays, Folder, load_arrays
from djepa.artefacts.layout import Layout, check_blocks, check_layout
from djepa.artefacts.records import MANIFEST
from djepa.control.episodes import MODERATE, STRICT, list_hash
from djepa.control.loop import CONTROL, SHARD, ControlRecord
from djepa.control.recorded import unpacked
from djepa.errors import DjepaError
from djepa.evaluate.intervals import rate_of
from djepa.evaluate.paired import Paired
from djepa.evaluate.rows import Row
from djepa.evaluate.verdict import Comparison, compare
from djepa.interop.record import DecisionRecord

Array = npt.NDArray[Any]
FLOOR = "random"
DECISIONS: Layout = {"decisions": ("uint8", "*")}  # JSON, if recorded
LAYOUT: Layout = {  # of a block of episodes
    "number": ("int64", "N"),
    "goal": ("float32 float64", "N S"),
    "states": ("float32 float64", "N T+1 S"),
    "controls": ("float32", "N T A"),
    "cost": ("float64", "N T+1"),
    "floor_cost": ("float64", "N T+1"),
    "executed": ("int64", "N"),
    "candidate": ("int64", "N R"),
    "opened": ("bool", "N R"),
    "evaluations": ("int64", "N M"),
}


class Episodes:
    """A finished folder of episodes; every file is checked against its hash."""

    def __init__(self, path: Path | str) -> None:
        self.folder = Folder(path, CONTROL)
        record: ControlRecord = self.folder.about
        self.config, self.planner, self.names = record.config, record.planner, record.names
        self.hash, self.list_hash, self.frozen = self.folder.hash, record.list_hash, record.frozen
        check_blocks(self.folder, [SHARD], self.config.starts().blocks)
        if len(self) != self.config.episodes or self.list_hash != list_hash(self.names):
            raise DjepaError(
                f"{self.folder.path / MANIFEST} does not name the {self.config.episodes} episodes "
                f"of its configuration. {CONTROL.again}"
            )

    @cached_property
    def arrays(self) -> dict[str, Array]:
        """Arrays of all blocks, concatenated; see control/loop.py."""
        T, models = self.config.budget, self.planner.get("weights", {})
        sizes = {"T": T, "T+1": T + 1, "R": self.config.rounds, "M": len(models)}
        parts = list[Arrays]()
        for block in range(self.config.starts().blocks):
            arrays, sizes = self._block(block, sizes)
            parts.append(arrays)
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}

    def _block(self, block: int, sizes: dict[str, int]) -> tuple[Arrays, dict[str, int]]:
        """One block and the lengths of its axes, of which all but N agree in all blocks."""
        name, numbers = SHARD.format(block), self.config.starts().members(block)
        path = self.folder.path / name
        arrays = load_arrays(path, self.folder.read(name))
        layout = {**LAYOUT, **(DECISIONS if self.planner.get("record") else {})}
        known = check_layout(path, arrays, layout, sizes | {"N": len(numbers)}, CONTROL.again)
        executed = arrays["executed"]
        own = np.array_equal(arrays["number"], numbers)
        if not own or executed.min() < 0 or executed.max() > self.config.budget:
            raise DjepaError(
                f"{path} does not hold the episodes of its block, or not within their budget. "
                f"{CONTROL.again}"
            )
        return arrays, known

    def __len__(self) -> int:
        return len(self.names)

    def decisions(self) -> list[DecisionRecord]:
        """The records of all decisions, if the planner recorded them."""
        if "decisions" not in self.arrays:
            raise DjepaError(
                f"{self.folder.path} holds no decisions: it was run without --decisions."
            )
        try:
            found = list(unpacked(self.arrays["decisions"]))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise DjepaError(
                f"{self.folder.path} holds damaged decisions: {error}. {CONTROL.again}"
            ) from None
        turns = -(-self.arrays["executed"] // self.config.replan)
        each = zip(self.names, turns.tolist(), strict=True)
        if [one.start for one in found] != [f"{name}:{i}" for name, n in each for i in range(n)]:
            raise DjepaError(
                f"{self.folder.path} does not hold one record for every decision that was executed."
                f" {CONTROL.again}"
            )
        return found

    def steps(self, rule: str = MODERATE, floor: bool = False) -> npt.NDArray[np.int64]:
        """(N,) controls until the rule first holds; -1 if it never does."""
        cost = self.arrays["floor_cost" if floor else "cost"]
        return first_below(cost, self.config.thresholds[rule])

    def solved(
        self, rule: str = MODERATE, within: int = 0, floor: bool = False
    ) -> npt.NDArray[np.bool_]:
        """(N,) whether the rule holds after some control, or after one of the first `within`."""
        steps = self.steps(rule, floor)
        return np.asarray((steps >= 0) & (steps <= (within or self.config.budget)))

    def rows(self, method: str, case: str, rule: str = MODERATE, floor: bool = False) -> list[Row]:
        """Rows for comparisons; cost is the lowest of the episode, 1 at the threshold."""
        limit, steps = self.config.thresholds[rule], self.steps(rule, floor)
        cost = self.arrays["floor_cost" if floor else "cost"].min(axis=1) / limit
        opened = np.asarray(self.arrays["opened"].any(axis=1) & (not floor))
        return [
            Row(
                study="control",
                pools=case,
                method=method,
                start=i,
                identity=name[:16],
                eligible=True,
                chosen=int(steps[i]),
                success=bool(steps[i] >= 0),
                cost=round(float(cost[i]), 6),
                opened=bool(opened[i]),
                rule=f"{self.config.rule}, {rule}",
                bank=self.list_hash[:12],
                checkpoint="" if floor else str(self.planner.get("alignment", ""))[:12],
            )
            for i, name in enumerate(self.names)
        ]

    def against(self, other: "Episodes | None" = None, rule: str = MODERATE) -> Paired:
        """Paired with other episodes of equal starts, goals and budget, or with random controls."""
        theirs = self.rows("theirs", "episodes", rule, floor=True)
        if other is not None:
            if (self.list_hash, self.config.budget) != (other.list_hash, other.config.budget):
                raise DjepaError(
                    f"{other.folder.path} holds other episodes: list {other.list_hash[:12]}, "
                    f"budget {other.config.budget}; these are {self.list_hash[:12]}, "
                    f"{self.config.budget}."
                )
            theirs = other.rows("theirs", "episodes", rule)
        rows = {"episodes": [*self.rows("ours", "episodes", rule), *theirs]}
        found = compare(rows, Comparison.of("ours", "theirs"))
        assert found is not None
        return found[1]

    def summary(self, marks: Sequence[int] = ()) -> dict[str, Any]:
        """Everything as JSON; `marks` are numbers of controls k for success@k."""
        c, counts = self.config, self.arrays["evaluations"]
        found: dict[str, Any] = {
            "episodes": len(self),
            "list_hash": self.list_hash,
            "frozen": self.frozen,
            "planner": self.planner,
            "evaluations": {
                name: float(n)
                for name, n in zip(self.planner.get("weights", {}), counts.mean(0), strict=True)
            },
        }
        for rule in (MODERATE, STRICT):
            rate, floor = rate_of(self.solved(rule)), rate_of(self.solved(rule, floor=True))
            steps = self.steps(rule)
            found[rule] = {
                "cost_below": c.thresholds[rule],
                "success_rate": rate.share,
                "n_success": rate.hits,
                "pc_success": 100 * rate.share,
                "pc_success_ci95": [100 * end for end in rate.interval],
                "random_success_rate": floor.share,
                "steps_to_success": steps.tolist(),
                "median_steps_to_success": _median(steps[steps >= 0]),
                "success_at": {str(k): float(self.solved(rule, k).mean()) for k in marks},
            }
        return found


def first_below(cost: Array, limit: float) -> npt.NDArray[np.int64]:
    """(N, T + 1) costs -> (N,) the first control after which the cost is below; else -1."""
    below = cost < limit
    return np.where(below.any(axis=1), below.argmax(axis=1), -1).astype(np.int64)


def _median(steps: Array) -> float | None:
    return float(np.median(steps)) if len(steps) else None
