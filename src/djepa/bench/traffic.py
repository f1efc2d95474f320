"""Speed of executing and judging driving scenes, 32 candidates together against one by one; and
memory of a process that judges many scenes, against the fewest.

Legend: N scenes, K candidates.
"""

import time
from collections.abc import Iterator
from functools import partial
from itertools import islice

from djepa.bench.measure import Options, Row, in_child, peak, seconds_of
from djepa.pools.driving import fit_vocabulary, propose
from djepa.seeds import generator
from djepa.worlds.traffic.generate import make_log, scenes_of
from djepa.worlds.traffic.generate import scenes as generated
from djepa.worlds.traffic.judge import Judge
from djepa.worlds.traffic.plane import Array
from djepa.worlds.traffic.scene import Scene

TRAFFIC, FAMILIES = "traffic", 7  # one scene of every kind of road


def bench_traffic(options: Options) -> Iterator[Row]:
    """Speed, and peak memory for each number in `options.scenes`."""
    yield _speed(options.seconds)
    fewest, least = min(options.scenes, default=0), 0.0
    for N in sorted(options.scenes):
        seconds, most = in_child(partial(_judged, N))
        least = least or most
        note = f"{1000 * seconds / N:.0f} ms a scene, with its log; against {fewest:,} scenes"
        yield Row(f"traffic, peak of {N:,} scenes", "MB", most, least, note)


def _judged(N: int) -> tuple[float, float]:
    """CPU seconds and peak in MB of judging N scenes one after the other."""
    logs = [make_log("native", i) for i in range(FAMILIES)]
    vocabulary, began = fit_vocabulary(logs, generator("bench")), time.process_time()
    for scene in islice(generated("native", logs=N), N):
        Judge(scene)(propose(vocabulary, scene))
    return time.process_time() - began, peak("cpu")


def _speed(seconds: float) -> Row:
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
    """Judge every scene, `size` candidates at a time."""
    for scene, pool in zip(scenes, pools, strict=True):
        judge = Judge(scene)
        for first in range(0, len(pool), size):
            judge(pool[first : first + size])
