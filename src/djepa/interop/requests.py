"""Checks of requests: limits, and arrays that fit the planner."""

import ipaddress
import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from djepa.errors import DjepaError
from djepa.interop.wire import Named
from djepa.lift.planner import Planner
from djepa.models.protocol import CONTEXT, STRIDE

NEEDED = {
    "frames": "uint8",
    "history": "float32",
    "goal": "uint8",
    "candidates": "float32",
    "ids": "int64",
}


@dataclass(frozen=True)
class Limits:
    """Limits of one server."""

    queue: int = 4  # requests in computation or waiting; others get 503
    megabytes: int = 64  # of a request
    candidates: int = 4096  # N · K of a request
    seconds: float = 30.0  # to send a request, to wait for its turn, and to take the answer
    controls: int = 2**18  # N · K · H of a request, which determines the time of a plan

    def __post_init__(self) -> None:
        least = min(self.queue, self.megabytes, self.candidates - 1, self.controls - 1)
        if least < 1 or not self.seconds > 0:
            raise DjepaError(
                "queue and megabytes are at least 1, candidates and controls 2, seconds above 0."
            )


class RefusedError(Exception):
    """A request that gets an answer other than 200."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def is_local(host: str) -> bool:
    """Whether only this machine can reach the address."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def check(planner: Planner, given: Named, limits: Limits) -> None:
    """Refuse arrays that are not a valid request to this planner, naming the array."""
    for name in given.keys() - NEEDED.keys() - {"proprio"}:
        raise DjepaError(f"Unknown array '{name}'. Give {', '.join(NEEDED)} and proprio.")
    missing = [name for name in NEEDED if name not in given]
    if (feels := planner.feeling()) and "proprio" not in given:
        missing.append(f"proprio, which {' and '.join(feels)} read")
    if missing:
        raise DjepaError(f"The request lacks {', '.join(missing)}.")
    one: Any = next(iter(planner.geometries.values()))
    px, A, stride = one.image, one.config.actions, getattr(one, "stride", STRIDE)
    (N, K, H), between = (*given["candidates"].shape, 0, 0, 0)[:3], (CONTEXT - 1) * stride
    shapes = {
        "frames": (N, CONTEXT, px, px, 3),
        "history": (N, between, A),
        "goal": (N, px, px, 3),
        "candidates": (N, K, H, A),
        "ids": (N, K),
        "proprio": (N, CONTEXT + 1, 4),
    }
    many = limits.candidates < N * K or limits.controls < N * K * H
    if min(N, K - 1, H) < 1 or H % stride or many:
        raise DjepaError(
            f"candidates {given['candidates'].shape} must be (N, K, H, {A}): N at least 1, K at "
            f"least 2, N · K at most {limits.candidates}, H whole blocks of {stride}, N · K · H at "
            f"most {limits.controls}."
        )
    for name, array in given.items():
        if array.shape != shapes[name] or array.dtype != NEEDED.get(name, "float32"):
            kind = NEEDED.get(name, "float32")
            raise DjepaError(
                f"{name} must be {kind} {shapes[name]}, got {array.dtype} {array.shape}."
            )
        if array.dtype.kind == "f" and not math.isfinite(float(abs(array).max(initial=0.0))):
            raise DjepaError(f"{name} holds a NaN or an infinity.")
