"""Engines run keyed work items and hand back results as they finish.

An item's result depends on its argument alone, so the number of workers, their order and a restart
change no byte. `LocalEngine` uses this machine's cores, `RayEngine` a Ray cluster.
"""

import logging
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Protocol

from djepa.errors import DjepaError, MissingExtraError, unknown_name

Work = Callable[[Any], Any]
MAX_DEATHS = 3  # workers lost without one finished item in between
AHEAD = 2  # items queued per worker, so that no worker waits for the driver


class Engine(Protocol):
    """Applies `work` to every item; yields (key, result) in order of completion."""

    def map(self, work: Work, items: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
        """Run all items, drawn as they are needed. `work` must be a module-level function."""


@dataclass(frozen=True)
class LocalEngine:
    """Processes on this machine; `workers` 0 means one per core this process may use."""

    workers: int = 0

    def map(self, work: Work, items: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
        """Run all items; a worker that dies is replaced and its item run again."""
        queue, deaths = iter(items), 0
        first = list(islice(queue, 2))
        if len(first) < 2 or (self.workers or usable_cores()) == 1:
            yield from ((key, work(item)) for key, item in chain(first, queue))
            return
        flight: dict[int, Any] = {}
        queue = chain(first, queue)
        while True:
            try:
                for result in self._run_pool(work, queue, flight):
                    deaths = 0
                    yield result
                return
            except BrokenProcessPool:
                deaths += 1
                if deaths == MAX_DEATHS:
                    raise DjepaError(
                        f"A worker process died {MAX_DEATHS} times in a row: killed, out of memory "
                        "(try fewer --workers), or called from a script without `if __name__ == "
                        '"__main__":`. What was finished is kept.'
                    ) from None
                queue = chain(list(flight.items()), queue)
                flight.clear()

    def _run_pool(
        self, work: Work, queue: Iterator[tuple[int, Any]], flight: dict[int, Any]
    ) -> Iterator[tuple[int, Any]]:
        # spawn, not fork: a forked copy of a threaded parent may hang, and spawn works everywhere.
        context = multiprocessing.get_context("spawn")
        workers = self.workers or usable_cores()
        pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_enter_worker)
        running: dict[Future[Any], int] = {}
        try:
            while True:
                for key, item in islice(queue, workers * AHEAD - len(running)):
                    flight[key] = item
                    running[pool.submit(work, item)] = key
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    result = future.result()
                    key = running.pop(future)
                    del flight[key]
                    yield key, result
        except BaseException:
            # No one reads the results of these workers any more: do not wait for them at exit.
            workers_left = list((pool._processes or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in workers_left:
                worker.terminate()
            raise
        pool.shutdown()


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
    """A Ray cluster: by address, by RAY_ADDRESS, or a local one that ends with the work."""

    address: str | None = None
    workers: int = 0

    def map(self, work: Work, items: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
        """Run all items as Ray tasks; Ray itself retries a task whose worker dies."""
        try:
            import ray
            from ray.exceptions import RayError, RayTaskError
        except ImportError:
            raise MissingExtraError("The Ray engine", "ray") from None
        queue = iter(items)
        first = list(islice(queue, 1))
        if not first:
            return
        started = self._join(ray)
        try:
            cores = int(ray.cluster_resources().get("CPU", 1))
            ahead = max(1, self.workers or cores) * AHEAD
            task = ray.remote(max_retries=MAX_DEATHS)(work)
            queue, running = chain(first, queue), dict[Any, int]()
            while True:
                for key, item in islice(queue, ahead - len(running)):
                    running[task.remote(item)] = key
                if not running:
                    return
                done, _ = ray.wait(list(running), num_returns=1)
                yield running.pop(done[0]), ray.get(done[0])
        except RayTaskError as error:
            raise error.cause from None
        except RayError as error:
            raise DjepaError(f"Ray stopped: {error}. What was finished is kept.") from None
        finally:
            if started:
                ray.shutdown()

    def _join(self, ray: Any) -> bool:
        """Connect to the cluster, or start a local one; False if a connection is there already."""
        if ray.is_initialized():
            return False
        address = self.address or os.environ.get("RAY_ADDRESS")
        if address:
            _check_address(address)
        options = {} if address else {"num_cpus": self.workers or usable_cores()}
        try:
            ray.init(
                address=address,
                include_dashboard=None if address else False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                **options,
            )
        except (ConnectionError, ValueError, RuntimeError, ImportError) as error:
            where = f"the Ray cluster at {address}" if address else "a local Ray"
            raise DjepaError(
                f"Cannot join {where}: {error}. If it authenticates by token, set "
                "RAY_AUTH_MODE=token here too; RAY_AUTH_MODE=disabled if it does not."
            ) from None
        return True


def _check_address(address: str) -> None:
    """Ray retries a dead address for minutes: try a plain connection first."""
    if address in ("auto", "local"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, ValueError):
        raise DjepaError(
            f"No Ray cluster answers at '{address}'. Give --address HOST:PORT of a running one "
            "(`ray start --head` prints it), or leave it out to start a local one."
        ) from None


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
        return RayEngine(address, workers)
    raise unknown_name("engine", name, ("local", "ray"))
