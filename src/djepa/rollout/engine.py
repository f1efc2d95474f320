"""Engines run keyed work items and hand back results as they finish.

An item's result depends on its argument alone, so the number of workers, their order and a restart
change no byte. `LocalEngine` uses this machine's cores, `RayEngine` a Ray cluster.
"""

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Protocol

from djepa.errors import DjepaError, MissingExtraError, unknown_name

Work = Callable[[Any], Any]
MAX_DEATHS = 3  # workers lost without one finished item in between
AHEAD = 2  # items queued per worker, so that none waits for the driver


class Engine(Protocol):
    """Applies `work` to every item; yields (key, result) in order of completion."""

    def map(self, work: Work, items: Mapping[int, Any]) -> Iterator[tuple[int, Any]]:
        """Run all items. `work` must be importable: a module-level function."""


@dataclass(frozen=True)
class LocalEngine:
    """Processes on this machine; `workers` 0 means one per core this process may use."""

    workers: int = 0

    def map(self, work: Work, items: Mapping[int, Any]) -> Iterator[tuple[int, Any]]:
        """Run all items; a worker that dies is replaced and its item run again."""
        workers = min(self.workers or usable_cores(), len(items))
        if workers <= 1:
            yield from ((key, work(item)) for key, item in items.items())
            return
        left, deaths = dict(items), 0
        while left:
            try:
                for key, result in _run_pool(work, left, workers):
                    del left[key]
                    deaths = 0
                    yield key, result
            except BrokenProcessPool:
                deaths += 1
                if deaths == MAX_DEATHS:
                    raise DjepaError(
                        f"A worker process died {MAX_DEATHS} times in a row (killed, or out of "
                        "memory?). What was finished is kept; run the same command to go on, "
                        "with fewer --workers if memory is short."
                    ) from None


def _run_pool(work: Work, items: Mapping[int, Any], workers: int) -> Iterator[tuple[int, Any]]:
    # spawn, not fork: a forked copy of a threaded parent may hang, and spawn works everywhere.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_enter_worker)
    queue = iter(list(items.items()))
    running: dict[Future[Any], int] = {}
    try:
        while True:
            while len(running) < workers * AHEAD and (entry := next(queue, None)) is not None:
                running[pool.submit(work, entry[1])] = entry[0]
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _enter_worker() -> None:
    """Leave Ctrl-C to the driver, and do not outlive it if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent,), daemon=True).start()


def _follow(parent: Any) -> None:
    parent.join()
    os._exit(1)


@dataclass(frozen=True)
class RayEngine:
    """A Ray cluster: by address, by RAY_ADDRESS, or a local one started for the occasion."""

    address: str | None = None
    workers: int = 0

    def map(self, work: Work, items: Mapping[int, Any]) -> Iterator[tuple[int, Any]]:
        """Run all items as Ray tasks; Ray itself retries a task whose worker dies."""
        try:
            import ray
        except ImportError:
            raise MissingExtraError("The Ray engine", "ray") from None
        started = not ray.is_initialized()
        if started:
            local = self.address is None and "RAY_ADDRESS" not in os.environ
            cores = {"num_cpus": self.workers or usable_cores()} if local else {}
            ray.init(
                address=self.address,
                include_dashboard=False if local else None,
                log_to_driver=False,
                logging_level=logging.WARNING,
                **cores,
            )
        try:
            ahead = max(1, int(ray.cluster_resources().get("CPU", 1))) * AHEAD
            task = ray.remote(max_retries=MAX_DEATHS)(work)
            queue, running = iter(items.items()), dict[Any, int]()
            while True:
                while len(running) < ahead and (entry := next(queue, None)) is not None:
                    running[task.remote(entry[1])] = entry[0]
                if not running:
                    return
                done, _ = ray.wait(list(running), num_returns=1)
                yield running.pop(done[0]), ray.get(done[0])
        finally:
            if started:
                ray.shutdown()


def usable_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def get_engine(name: str, workers: int = 0, address: str | None = None) -> Engine:
    """The engine of that name, or an error that suggests the nearest one."""
    if name == "local":
        return LocalEngine(workers)
    if name == "ray":
        return RayEngine(address, workers)
    raise unknown_name("engine", name, ("local", "ray"))
