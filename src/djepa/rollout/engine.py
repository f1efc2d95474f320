"""Engines run keyed work items and hand back results as they finish.

An item's result depends on its argument alone (and on what all items share), so the number of
workers, their order and a restart change no byte. `LocalEngine` uses this machine's cores,
`RayEngine` (cluster.py) a Ray cluster. Workers read and write no files: the driver sends items,
receives results and writes. A worker that would round differently from the driver refuses any
work.
"""

import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol

from djepa.errors import DjepaError, unknown_name
from djepa.rollout.alike import CPU, Surroundings, surroundings

Work = Callable[..., Any]
Items = Iterable[tuple[int, Any]]
Results = Iterator[tuple[int, Any]]
MAX_DEATHS = 3  # workers lost without one finished item in between
AHEAD = 2  # items queued per worker, so that no worker waits for the driver


class Engine(Protocol):
    """Applies `work` to every item; yields (key, result) in order of completion."""

    def map(self, work: Work, items: Items, shared: Any = None, device: str = CPU) -> Results:
        """Run all items, drawn as they are needed. `work` must be a module-level function.

        It is called as work(item), or as work(item, shared) if `shared` is given, which is sent to
        each worker once. `device` is what the work computes on: cpu, or cuda.
        """


@dataclass(frozen=True)
class LocalEngine:
    """Processes on this machine; `workers` 0 means one per core this process may use.

    On a GPU, 0 means this process alone; a larger number of workers shares the GPU. The processes
    stay until the program ends, so that later work need not load the libraries again.
    """

    workers: int = 0

    def map(self, work: Work, items: Items, shared: Any = None, device: str = CPU) -> Results:
        """Run all items; a worker that dies is replaced and its item run again."""
        queue, deaths, more = iter(items), 0, _more(shared)
        alone = self.processes(device) == 1
        first = [] if alone else list(islice(queue, 2))
        if alone or len(first) < 2:
            yield from ((key, work(item, *more)) for key, item in chain(first, queue))
            return
        flight: dict[int, Any] = {}
        queue = chain(first, queue)
        with _sent(more) as where:
            task = Task(work, where, surroundings(device))
            while True:
                try:
                    for result in _run(self.processes(device), task, queue, flight):
                        deaths = 0
                        yield result
                    return
                except BrokenProcessPool:
                    deaths += 1
                    if deaths == MAX_DEATHS:
                        raise DjepaError(
                            f"A worker process died {MAX_DEATHS} times in a row: killed, out of "
                            "memory (try fewer --workers), or called from a script without `if "
                            '__name__ == "__main__":`. What was finished is kept.'
                        ) from None
                    queue = chain(list(flight.items()), queue)
                    flight.clear()

    def processes(self, device: str = CPU) -> int:
        """Number of processes that work at once."""
        return self.workers or (usable_cores() if device == CPU else 1)


_POOLS: dict[int, ProcessPoolExecutor] = {}  # by size; they stay, with what their workers loaded


def _run(workers: int, task: "Task", queue: Results, flight: dict[int, Any]) -> Results:
    """Run items in a pool of `workers` processes; `flight` holds the items under way."""
    if workers not in _POOLS:
        # spawn, not fork: a forked copy of a threaded parent may hang, and spawn works everywhere.
        context = multiprocessing.get_context("spawn")
        _POOLS[workers] = ProcessPoolExecutor(
            workers, mp_context=context, initializer=_enter_worker
        )
    pool, running = _POOLS[workers], dict[Future[Any], int]()
    try:
        while True:
            for key, item in islice(queue, workers * AHEAD - len(running)):
                flight[key] = item
                running[pool.submit(task, item)] = key
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                result = future.result()
                key = running.pop(future)
                del flight[key]
                yield key, result
    except BaseException:
        # The results of these workers are no longer needed: do not wait for them at exit.
        if _POOLS.get(workers) is pool:
            del _POOLS[workers]
        workers_left = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers_left:
            worker.terminate()
        raise


def end_workers() -> None:
    """End the local workers; later work starts new ones, with the environment of that time."""
    while _POOLS:
        _POOLS.popitem()[1].shutdown()


def _more(shared: Any) -> tuple[Any, ...]:
    """Further arguments of the work: the shared value, if any."""
    return () if shared is None else (shared,)


@contextmanager
def _sent(more: tuple[Any, ...]) -> Iterator[str]:
    """Path of a temporary file with the shared arguments; empty if there are none."""
    if not more:
        yield ""
        return
    with tempfile.TemporaryDirectory(prefix="djepa-") as folder:
        where = Path(folder) / "shared"
        with where.open("wb") as file:
            pickle.dump(more, file, protocol=pickle.HIGHEST_PROTOCOL)
        yield str(where)


_KEPT: dict[str, tuple[Any, ...]] = {}  # in a worker: shared arguments, read once


@dataclass(frozen=True)
class Task:
    """The work as it is sent to a local worker."""

    work: Work
    where: str  # the file with the shared arguments
    driver: Surroundings

    def __call__(self, item: Any) -> Any:
        """Run one item; called in a worker."""
        with self.driver.alike():
            if not self.where:
                return self.work(item)
            if self.where not in _KEPT:
                _KEPT.clear()  # the cached value is of other work
                _KEPT[self.where] = pickle.loads(Path(self.where).read_bytes())
            return self.work(item, *_KEPT[self.where])


def _enter_worker() -> None:
    """Leave Ctrl-C to the driver, and do not outlive it if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent,), daemon=True).start()


def _follow(parent: Any) -> None:
    parent.join()
    os._exit(1)


def in_order(results: Results) -> Iterator[Any]:
    """Results of the keys 0, 1, 2, ... in that order; early ones are held back."""
    early, following = dict[int, Any](), 0
    for key, result in results:
        early[key] = result
        while following in early:
            yield early.pop(following)
            following += 1


def usable_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def get_engine(name: str, workers: int = 0, address: str | None = None) -> Engine:
    """The engine of that name, or an error that suggests the nearest one."""
    if workers < 0:
        raise DjepaError(f"workers must be 0 (every core) or more, got {workers}.")
    if name == "local" and address:
        raise DjepaError("An address belongs to a Ray cluster. Add --engine ray, or leave it out.")
    if name == "local":
        return LocalEngine(workers)
    if name == "ray":
        from djepa.rollout.cluster import RayEngine

        return RayEngine(address, workers)
    raise unknown_name("engine", name, ("local", "ray"))
