"""How fast driving scenes are executed and judged: 32 candidates together against one by one.

Legend: K candidates.
"""

from functools import partial

from djepa.bench.measure import Row, seconds_of
from djepa.pools.driving import fit_vocabulary, propose
from djepa.seeds import generator
from djepa.worlds.traffic.generate import make_log, scenes_of
from djepa.worlds.traffic.judge import Judge
from djepa.worlds.traffic.plane import Array
from djepa.worlds.traffic.scene import Scene

TRAFFIC, FAMILIES = "traffic", 7  # one scene of every kind of road


def bench_traffic(seconds: float) -> Row:
    """Scenes a second on one core: execution, reference driver and all parts of PDMS."""
    logs = [make_log("native", i) for i in range(FAMILIES)]
    vocabulary = fit_vocabulary(logs, generator("bench"))
    scenes = [scene for log in logs for scene in scenes_of(log, 1)]
    pools = [propose(vocabulary, scene) for scene in scenes]
    together, alone = (
        len(scenes) / seconds_of(partial(_all, scenes, pools, size), seconds=seconds)
        for size in (len(pools[0]), 1)
    )
    note = f"{len(pools[0])} candidates, {1000 / together:.0f} ms a scene on one core"
    return Row("traffic scenes", "scenes/s", together, alone, note)


def _all(scenes: list[Scene], pools: list[Array], size: int) -> None:
    """Every scene, so many candidates at a time."""
    for scene, pool in zip(scenes, pools, strict=True):
        judge = Judge(scene)
        for first in range(0, len(pool), size):
            judge(pool[first : first + size])
