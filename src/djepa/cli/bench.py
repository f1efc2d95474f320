"""`djepa bench`: speed and memory, as ratios measured in one run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from djepa.cli.console import console


@dataclass(frozen=True)
class Bench:
    """Measure against the plain way in the same run, so that machines can be compared."""

    what: Annotated[str, Positional, arg(metavar="WHAT")] = "world"
    """What to measure: world, geometry, align or growth."""
    json: Annotated[Path | None, arg(aliases=("--out",))] = None
    """Also write the numbers here."""
    seconds: float = 2.0
    """World: time given to each measurement."""
    geometry: tuple[str, ...] = ()
    """Geometry: names, or folders of weights; all four, or at paper size lewm and tdjepa."""
    size: str = "small"
    """Geometry: small or paper."""
    device: str = "cpu"
    """Geometry, align: cpu or cuda."""
    starts: int | None = None
    """Geometry, align: starts of a batch; 16, or 256."""
    candidates: int = 63
    """Geometry, align: candidates of a start."""
    many: int = 4096
    """Geometry, align: candidates of the one start that has many."""
    compiled: tuple[str, ...] = ("bf16",)
    """Geometry, on cuda: precisions to compile too; each takes minutes."""
    fit: int = 448
    """Align: starts to fit on; a seventh as many to calibrate on."""
    updates: int = 1000
    """Align: updates of the fit."""

    def run(self) -> int:
        """Measure and print the table."""
        from djepa.errors import unknown_name

        ways = {
            "world": self._world,
            "geometry": self._geometry,
            "align": self._align,
            "growth": self._growth,
        }
        if self.what not in ways:
            raise unknown_name("bench", self.what, ways)
        self._write(ways[self.what]())
        return 0

    def _write(self, numbers: Any) -> None:
        from djepa.files import to_json, write_atomically

        if self.json:
            write_atomically(self.json, to_json(numbers).encode())

    def _world(self) -> Any:
        from djepa.bench.table import bench_markdown
        from djepa.bench.world import bench_world
        from djepa.errors import DjepaError

        if self.seconds <= 0:
            raise DjepaError(f"seconds must be above 0, got {self.seconds}.")
        rows = bench_world(self.seconds, _say)
        console.print(bench_markdown(rows))
        return [row.as_dict() for row in rows]

    def _growth(self) -> Any:
        from djepa.bench.growth import bench_growth
        from djepa.bench.table import bench_markdown

        rows = bench_growth(_say)
        console.print(bench_markdown(rows, against="smallest"))
        return [row.as_dict() for row in rows]

    def _geometry(self) -> Any:
        from djepa.bench.geometry import ALL, VECTORS, GeometryBench, bench_geometry, describe
        from djepa.bench.table import bench_markdown

        names = ("size", "device", "candidates", "many", "compiled")
        starts = 16 if self.starts is None else self.starts
        which = self.geometry or (VECTORS if self.size == "paper" else ALL)
        config = GeometryBench(
            which, starts=starts, **{name: getattr(self, name) for name in names}
        )
        rows = bench_geometry(config, _say, lambda rows: self._write(describe(config, rows)))
        console.print(bench_markdown(rows, against="plain"))
        return describe(config, rows)

    def _align(self) -> Any:
        from djepa.bench.align import AlignBench, bench_align, describe
        from djepa.bench.table import bench_markdown

        names = ("device", "candidates", "many", "fit", "updates")
        starts = 256 if self.starts is None else self.starts
        config = AlignBench(starts=starts, **{name: getattr(self, name) for name in names})
        rows = bench_align(config, _say, lambda rows: self._write(describe(config, rows)))
        console.print(bench_markdown(rows, against="plain"))
        return describe(config, rows)


def _say(line: str) -> None:
    console.print(f"measuring {line} ...")
