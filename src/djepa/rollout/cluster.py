"""The Ray engine: items as tasks of a cluster whose nodes may come and go."""

import logging
import math
import os
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from djepa.errors import DjepaError, MissingExtraError
from djepa.rollout.alike import CPU, Surroundings, surroundings
from djepa.rollout.engine import (
    AHEAD,
    MAX_DEATHS,
    Items,
    Results,
    Work,
    _more,
    usable_cores,
)

FINEST = 10_000  # Ray's resolution for fractions of a GPU
LOOK_EVERY = 1.0  # seconds between two queries of the size of the cluster
_LOCAL = [False]  # whether this process started the cluster


@dataclass(frozen=True)
class RayEngine:
    """A Ray cluster: by address, by RAY_ADDRESS, or a local one that ends with the program.

    An item takes one core; on a GPU also one GPU, or a part of it if there are more `workers` than
    GPUs. Nodes may come and go: items of a lost node run again, a new node gets the next items.
    """

    address: str | None = None
    workers: int = 0

    def map(self, work: Work, items: Items, shared: Any = None, device: str = CPU) -> Results:
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
        local = self.join(ray)
        running, driver = dict[Any, int](), surroundings(device)
        try:
            # max_calls 0: by default Ray ends a worker that used a GPU after one task, and the
            # next one would load everything again.
            gpus, most = self._gpus(ray, device), 0 if local else self.workers
            task = ray.remote(max_retries=MAX_DEATHS, max_calls=0, num_cpus=1, num_gpus=gpus)(
                _apply_there
            )
            more = [ray.put(one) for one in _more(shared)]
            queue = chain(first, queue)
            room = _Room(ray, "GPU" if gpus else "CPU", gpus or 1.0, most)
            while True:
                for key, item in islice(queue, max(0, room() - len(running))):
                    running[task.remote(work, item, more, driver)] = key
                if not running:
                    return
                done, _ = ray.wait(list(running), num_returns=1, timeout=LOOK_EVERY)
                for one in done:
                    yield running.pop(one), ray.get(one)
        except RayTaskError as error:
            raise error.cause from None
        except RayError as error:
            raise DjepaError(f"Ray stopped: {error}. What was finished is kept.") from None
        finally:
            _cancel(ray, running)

    def _gpus(self, ray: Any, device: str) -> float:
        """GPUs that one item takes, a fraction of one if several share it."""
        if device == CPU:
            return 0.0
        there = float(ray.cluster_resources().get("GPU", 0))
        if not there:
            raise DjepaError("The Ray cluster has no GPU. Give --device cpu, or add a node.")
        return share(self.workers, there)

    def join(self, ray: Any) -> bool:
        """Connect to the cluster or start a local one; returns whether this process started it."""
        if ray.is_initialized():
            return _LOCAL[0]
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
        _LOCAL[0] = not address
        return _LOCAL[0]


def share(workers: int, there: float) -> float:
    """The part of a GPU that an item takes so that `workers` items run at once on `there` GPUs.

    An item runs on one GPU, so each GPU runs a whole number: 6 workers on 4 GPUs are 2 each.
    """
    each = max(1, math.ceil(workers / there))
    return max(1, FINEST // each) / FINEST  # rounded down: 7 parts of 0.1429 are more than one


def _cancel(ray: Any, running: Iterable[Any]) -> None:
    """Cancel tasks whose results are no longer wanted; an external cluster would continue them.

    Not by force: a killed worker would have to load everything again.
    """
    with suppress(Exception):  # the cluster may be gone, and the original error must be raised
        if ray.is_initialized():
            for one in running:
                ray.cancel(one, force=False)


class _Room:
    """How many items may be in the cluster at once, updated as nodes come and go."""

    def __init__(self, ray: Any, what: str, each: float, most: int) -> None:
        self._ray, self._what, self._each, self._most = ray, what, each, most
        self._known, self._until = 1, -math.inf

    def __call__(self) -> int:
        if not self._most and time.monotonic() > self._until:
            there = self._ray.cluster_resources().get(self._what, 1)
            self._known = AHEAD * max(1, int(there / self._each))
            self._until = time.monotonic() + LOOK_EVERY
        return self._most or self._known


_KEPT: dict[str, Any] = {}  # in a Ray worker: what items share, by reference


def _apply_there(work: Work, item: Any, more: list[Any], driver: Surroundings) -> Any:
    """In a Ray worker: run one item; the shared value is a reference and fetched once."""
    import ray

    with driver.alike():
        for one in more:
            if one.hex() not in _KEPT:
                _KEPT.clear()  # the cached value is of other work
                _KEPT[one.hex()] = ray.get(one)
        return work(item, *(_KEPT[one.hex()] for one in more))


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
