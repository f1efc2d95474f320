"""Rows of episodes run by another library: one per method and episode, stored immediately.

A trial is one JSON file: its settings and its rows. Running it again adds missing rows. Methods
are named as in align/registry.csv, and only the comparisons of PRIMARY are judged.
"""

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import tyro

from djepa.align.registry import label
from djepa.artefacts.records import LARGEST, decode, read_bytes, typed
from djepa.errors import DjepaError
from djepa.evaluate.markdown import markdown
from djepa.evaluate.paired import Paired, paired
from djepa.evaluate.rows import Row
from djepa.evaluate.verdict import Comparison, Verdict, judge
from djepa.files import to_json, write_atomically

PRIMARY = (  # a trial without a method leaves out its comparisons
    Comparison.of("aligned", "its CEM"),
    Comparison.of("D-JEPA", "first chunk"),
    Comparison.of("D-JEPA", "model's cost"),
)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of the file."""

    about: dict[str, Any]
    rows: list[dict[str, Any]]


class _Head(msgspec.Struct, frozen=True):
    """Fields that every row has."""

    episode: int
    method: str
    success: bool


@dataclass(frozen=True)
class Trial:
    """A file of rows; `about` holds the settings, which must be equal when it is continued."""

    path: Path
    about: dict[str, Any]
    rows: dict[tuple[int, str], dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path, about: dict[str, Any] | None = None) -> "Trial":
        """Read the trial at `path`, or begin an empty one."""
        if not path.exists() and about is not None:
            return cls(path, json.loads(json.dumps(about)))
        known = decode(path, read_bytes(path, LARGEST), _File)
        heads = [typed(path, row, _Head) for row in known.rows]
        rows = {(of.episode, of.method): row for of, row in zip(heads, known.rows, strict=True)}
        if len(rows) < len(heads):
            raise DjepaError(f"{path} is damaged: an episode stands twice for one method.")
        found = cls(path, known.about, rows)
        if about is not None and found.about != json.loads(json.dumps(about)):
            raise DjepaError(f"{path} holds a trial of other settings. Choose another --out.")
        return found

    def missing(self, episodes: int, methods: tuple[str, ...]) -> Iterator[tuple[int, str]]:
        """Missing (episode, method), episode by episode, so that stored rows are paired."""
        for episode in range(episodes):
            yield from ((episode, m) for m in methods if (episode, m) not in self.rows)

    def add(self, episode: int, method: str, success: bool, controls: int, **more: Any) -> None:
        """Add a row and write it to disk."""
        row = {"episode": episode, "method": method, "success": bool(success)}
        self.rows[episode, method] = {**row, "controls": int(controls), **more}
        text = to_json({"about": self.about, "rows": [self.rows[key] for key in sorted(self.rows)]})
        write_atomically(self.path, text.encode())

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods in the order in which they were run."""
        return tuple(self.about["methods"])

    @property
    def episodes(self) -> list[int]:
        """Episodes that every method ran."""
        every = {n for n, _ in self.rows}
        return [n for n in sorted(every) if all((n, m) in self.rows for m in self.methods)]

    def successes(self, method: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """(N,) success on the episodes that every method ran."""
        return np.array([self.rows[n, method]["success"] for n in self.episodes], bool)

    def pair(self, ours: str, theirs: str) -> Paired:
        """Two methods on the same episodes: difference, interval, exact McNemar p."""
        return paired(self.successes(ours), self.successes(theirs))

    def verdicts(self) -> list[Verdict]:
        """The primary comparisons, by the rule of every study (evaluate/verdict.py)."""
        kept = [self.rows[n, method] for n in self.episodes for method in self.methods]
        return judge({"episodes": [_row(of) for of in kept]}, PRIMARY)

    def table(self, against: str) -> str:
        """Markdown: success of every method, and its difference to one of them."""
        columns = ("method", "solved", "success, %", "difference, points", "gained, lost")
        lines = []
        for method in self.methods:
            p = self.pair(method, against)
            low, high = (100 * end for end in p.ours_interval)
            rate = f"{100 * p.ours:.1f} ({low:.1f}-{high:.1f})"
            counts = (p.points, f"{p.gains}, {p.losses}")
            solved = f"{int(self.successes(method).sum())} of {p.starts}"
            shown = counts if method != against else ("", "")
            lines.append((label(method), solved, rate, *shown))
        return markdown(columns, lines)


def _row(of: dict[str, Any]) -> Row:
    """An episode of one method as a row of a study; what a trial does not have is empty."""
    place, method, solved = of["episode"], of["method"], of["success"]
    known = (place, str(place), True, -1, solved, float(not solved), False)
    return Row("trial", "episodes", method, *known, "", "", "")


def run_and_print(kind: Callable[..., Any], against: str) -> None:
    """Run a trial from the command line and print its table and its verdicts."""
    warnings.filterwarnings("ignore")
    trial = tyro.cli(kind)
    try:
        found = trial.run()
        print(found.table(against), *(v.sentence + "." for v in found.verdicts()), sep="\n")
    except DjepaError as error:
        sys.exit(f"error: {error}")
