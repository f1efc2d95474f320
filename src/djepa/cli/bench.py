"""`djepa bench`: speed and memory, as ratios measured in one run."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from djepa.bench.measure import Options
from djepa.cli.console import console

if TYPE_CHECKING:
    from djepa.bench.measure import Row

ALL, PATHS = "all", ("json", "planner")
AGAINST = {"world": "plain loop", "growth": "smallest", "onnx": "torch", "plan": "plain float32"}
AGAINST |= {"engine": "local processes", "arm": "without checks"}
ALONE = ("onnx", "plan", "engine", "arm")  # not part of all


@dataclass(frozen=True)
class Bench(Options):
    """Measure speed and memory, beside the plain way in the same run."""

    what: Annotated[str, Positional, arg(metavar="WHAT")] = "world"
    """What to measure: world, geometry, align, growth, or all of them; or onnx, plan, arm,
    engine (Ray against local processes)."""
    json: Annotated[Path | None, arg(aliases=("--out",))] = None
    """Also write the numbers here, as they come."""

    def run(self) -> int:
        """Measure and print a table per bench."""
        from djepa.artefacts.claim import JSON_OF, claim_file
        from djepa.bench.align import bench_align
        from djepa.bench.arm import bench_arm
        from djepa.bench.engine import bench_engine
        from djepa.bench.geometry import bench_geometry
        from djepa.bench.growth import bench_growth
        from djepa.bench.measure import bench_markdown
        from djepa.bench.onnx import bench_onnx
        from djepa.bench.plan import bench_plan
        from djepa.bench.world import bench_world
        from djepa.errors import check_name

        benches = {
            "world": bench_world,
            "geometry": bench_geometry,
            "align": bench_align,
            "growth": bench_growth,
            "onnx": bench_onnx,
            "plan": bench_plan,
            "engine": bench_engine,
            "arm": bench_arm,
        }
        check_name("bench", self.what, (*benches, ALL))
        if self.json:
            claim_file(self.json, JSON_OF["bench"])
        found: dict[str, list[Row]] = {}
        for name in [n for n in benches if n not in ALONE] if self.what == ALL else [self.what]:
            rows = found[name] = []
            for row in benches[name](self, console.print):
                rows.append(row)
                self._write(found)
            console.print(bench_markdown(rows, AGAINST.get(name, "plain")))
        return 0

    def _write(self, found: "dict[str, list[Row]]") -> None:
        from djepa.bench.measure import machine
        from djepa.files import to_json, write_atomically

        if self.json is None:
            return
        rows = [{"bench": name, **row.as_dict()} for name in found for row in found[name]]
        given = {name: value for name, value in asdict(self).items() if name not in PATHS}
        numbers = {**machine(self.device), "options": given, "rows": rows}
        write_atomically(self.json, to_json(numbers).encode())
