"""What a result depends on beside its work: versions, and how a processor rounds.

A worker that would round otherwise than the driver refuses to work, whatever the work is.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata

from djepa.errors import DjepaError

CPU = "cpu"
# Whose versions results depend on. That of torch counts with the processor, by `arithmetic_here`.
PACKAGES = ("djepa", "numpy", "scipy", "pymunk", "mujoco", "dm_control", "ogbench")


@dataclass(frozen=True)
class Surroundings:
    """What the driver's numbers depend on beside its items, as far as its libraries tell."""

    versions: tuple[tuple[str, str], ...]  # of the packages that are installed there
    loops: str  # which of its loops numpy runs on that processor; empty where a GPU computes
    sums: str  # of torch, see `arithmetic_here`; empty where it is not loaded
    device: str

    @contextmanager
    def alike(self) -> Iterator[None]:
        """Refuse to work in a worker that differs, before the work and in what it loads."""
        _refuse(self, _loaded())
        yield
        _refuse(self, _loaded())


def surroundings(device: str = CPU) -> Surroundings:
    """Those of this process."""
    versions = tuple((name, of) for name in PACKAGES if (of := _version(name)))
    sums = ""
    if "torch" in sys.modules:
        sums = arithmetic_here(device)
    return Surroundings(versions, _loops() if device == CPU else "", sums, device)


def _loaded() -> frozenset[str]:
    """What this process has loaded: what it has not, its results do not depend on."""
    return frozenset(name for name in (*PACKAGES, "torch") if name in sys.modules)


@lru_cache(maxsize=8)  # once per worker and what it has loaded; a refusal is not kept
def _refuse(driver: Surroundings, loaded: frozenset[str]) -> None:
    there = {name: of for name, of in driver.versions if name in loaded}
    here = {name: _version(name) for name in there}
    if driver.loops:
        there["loops of numpy"], here["loops of numpy"] = driver.loops, _loops()
    if odd := [name for name in there if there[name] != here[name]]:
        mine, theirs = (", ".join(f"{n} {of[n]}" for n in odd) for of in (here, there))
        raise DjepaError(
            f"This worker has {mine}, the driver {theirs}: results would not be the same to the "
            "last bit. Use machines of one kind, with the same versions."
        )
    if "torch" in loaded:
        same_arithmetic(driver.sums, driver.device)


def _version(name: str) -> str:
    """Of what runs, else of what is installed; empty where there is none."""
    if found := getattr(sys.modules.get(name), "__version__", ""):
        return str(found)
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


@lru_cache
def _loops() -> str:
    """The instruction sets for which numpy has chosen its loops: their last bits differ."""
    from numpy.lib.introspect import opt_func_info

    found = {of["current"] for kinds in opt_func_info().values() for of in kinds.values()}
    return " ".join(sorted(found))


def arithmetic_here(device: str = CPU) -> str:
    """What the last bit of a sum depends on beside its terms, as far as torch reports it.

    Of a GPU that this machine does not have nothing is known, and nothing is said.
    """
    import torch

    if device == CPU:
        return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"
    if not torch.cuda.is_available():
        return ""
    return f"torch {torch.__version__}, {torch.cuda.get_device_name(device)}"


def same_arithmetic(driver: str, device: str = CPU) -> None:
    """Refuse to work where sums round otherwise than with the driver, as far as it knows."""
    here = arithmetic_here(device)
    if driver and driver != here:
        raise DjepaError(
            f"This worker computes with {here}, the driver with {driver}: they do "
            "not agree to the last bit. Use machines of one kind."
        )
