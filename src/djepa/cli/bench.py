"""`djepa bench`: speed and memory, as ratios measured in one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from djepa.cli.console import console

if TYPE_CHECKING:
    from djepa.bench.align import AlignBench
    from djepa.bench.geometry import GeometryBench
    from djepa.bench.world import WorldBench

ALL = "all"
USUAL = {"seconds": 2.0, "many": 4096, "updates": 1000}
SHORT = {"seconds": 0.5, "many": 512, "updates": 200}


@dataclass(frozen=True)
class Bench:
    """Measure against the plain way in the same run, so that machines can be compared."""

    what: Annotated[str, Positional, arg(metavar="WHAT")] = "world"
    """What to measure: world, geometry, align, growth, or all of them, shorter, in one table."""
    json: Annotated[Path | None, arg(aliases=("--out",))] = None
    """Also write the numbers here."""
    world: tuple[str, ...] = ()
    """World: names; push, reacher and granular."""
    seconds: float | None = None
    """World: time given to each measurement; 2, in all 0.5."""
    geometry: tuple[str, ...] = ()
    """Geometry: names, or folders of weights; all four, or at paper size lewm and tdjepa. In all
    one of each other world too."""
    size: str = "small"
    """Geometry: small or paper."""
    device: str = "cpu"
    """Geometry, align: cpu or cuda."""
    starts: int | None = None
    """Geometry, align: starts of a batch; 16, in all 4; or 256."""
    candidates: int = 63
    """World, geometry, align: candidates of a start."""
    many: int | None = None
    """Geometry, align: candidates of the one start that has many; 4096, in all 512."""
    compiled: tuple[str, ...] = ("bf16",)
    """Geometry, on cuda: precisions to compile too; each takes minutes. In all none."""
    fit: int = 448
    """Align: starts to fit on; a seventh as many to calibrate on."""
    updates: int | None = None
    """Align: updates of the fit; 1000, in all 200."""

    def run(self) -> int:
        """Measure and print the table."""
        from djepa.errors import unknown_name

        ways = {
            "world": self._world,
            "geometry": self._geometry,
            "align": self._align,
            "growth": self._growth,
            ALL: self._all,
        }
        if self.what not in ways:
            raise unknown_name("bench", self.what, ways)
        self._write(ways[self.what]())
        return 0

    def _write(self, numbers: Any) -> None:
        from djepa.files import naming, to_json, write_atomically

        if self.json:
            with naming(self.json):
                self.json.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.json, to_json(numbers).encode())

    def _given(self, name: str) -> Any:
        """An option, or what it is without."""
        usual = {**USUAL, **(SHORT if self.what == ALL else {})}
        return usual[name] if getattr(self, name) is None else getattr(self, name)

    def _world_bench(self) -> WorldBench:
        from djepa.bench.world import WORLDS, WorldBench, here

        worlds = self.world or here(WORLDS, console.print)
        return WorldBench(worlds, self._given("seconds"), self.candidates)

    def _geometry_bench(self, more: Sequence[str] = ()) -> GeometryBench:
        from djepa.bench.geometry import FOUR, VECTORS, GeometryBench

        which = self.geometry or (*(VECTORS if self.size == "paper" else FOUR), *more)
        return GeometryBench(
            which,
            self.size,
            self.device,
            (4 if self.what == ALL else 16) if self.starts is None else self.starts,
            self.candidates,
            self._given("many"),
            () if self.what == ALL else self.compiled,
        )

    def _align_bench(self) -> AlignBench:
        from djepa.bench.align import AlignBench

        starts = 256 if self.starts is None else self.starts
        sizes = (self._given("many"), self.fit, self._given("updates"))
        return AlignBench(self.device, starts, self.candidates, *sizes)

    def _world(self) -> Any:
        from djepa.bench.world import bench_world

        return self._plain(bench_world(self._world_bench(), _say), "plain loop")

    def _growth(self) -> Any:
        from djepa.bench.growth import bench_growth

        return self._plain(bench_growth(_say), "smallest")

    def _plain(self, rows: Sequence[Any], against: str) -> Any:
        from djepa.bench.table import bench_markdown

        console.print(bench_markdown(rows, against))
        return [row.as_dict() for row in rows]

    def _geometry(self) -> Any:
        from djepa.bench.geometry import bench_geometry, describe

        return self._kept(self._geometry_bench(), bench_geometry, describe)

    def _align(self) -> Any:
        from djepa.bench.align import bench_align, describe

        return self._kept(self._align_bench(), bench_align, describe)

    def _kept(self, config: Any, measure: Any, describe: Any) -> Any:
        """Numbers are written as they come."""
        rows = measure(config, _say, lambda rows: self._write(describe(config, rows)))
        self._plain(rows, "plain")
        return describe(config, rows)

    def _all(self) -> Any:
        from djepa.bench.table import all_markdown
        from djepa.bench.together import AllBench, bench_all, describe, of_other_worlds

        world = self._world_bench()
        geometry = self._geometry_bench(of_other_worlds(world.worlds))
        config = AllBench(world, geometry, self._align_bench())
        measured = bench_all(config, _say, lambda so_far: self._write(describe(config, so_far)))
        console.print(all_markdown(measured.rows))
        return describe(config, measured)


def _say(line: str) -> None:
    console.print(f"measuring {line} ...")
