"""What a result depends on beside its work item: versions, and how a processor rounds.

A worker that would round differently from the driver refuses any work.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata

from djepa.errors import DjepaError

CPU = "cpu"
# Packages on whose versions results depend. `arithmetic_here` covers torch and the processor.
PACKAGES = ("djepa", "numpy", "scipy", "pymunk", "mujoco", "dm_control", "ogbench")


@dataclass(frozen=True)
class Surroundings:
    """What the driver's numbers depend on beside its items, as far as its libraries report it."""

    versions: tuple[tuple[str, str], ...]  # of the packages installed at the driver
    loops: str  # instruction sets of numpy's loops on that processor; empty on a GPU
    sums: str  # see `arithmetic_here`; empty where torch is not loaded
    device: str

    @contextmanager
    def alike(self) -> Iterator[None]:
        """Raise if this worker differs: before the work, and after it for what the work loaded."""
        _refuse(self, _loaded())
        yield
        _refuse(self, _loaded())


def surroundings(device: str = CPU) -> Surroundings:
    """The surroundings of this process."""
    versions = tuple((name, of) for name in PACKAGES if (of := _version(name)))
    sums = ""
    if "torch" in sys.modules:
        sums = arithmetic_here(device)
    return Surroundings(versions, _loops() if device == CPU else "", sums, device)


def _loaded() -> frozenset[str]:
    """Packages that this process has loaded: its results depend on no other."""
    return frozenset(name for name in (*PACKAGES, "torch") if name in sys.modules)


@lru_cache(maxsize=8)  # once per worker and set of loaded packages; errors are not cached
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
    """Version of the loaded package, else of the installed one; empty if there is none."""
    if found := getattr(sys.modules.get(name), "__version__", ""):
        return str(found)
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


@lru_cache
def _loops() -> str:
    """The instruction sets for which numpy chose its loops: results differ in their last bits."""
    from numpy.lib.introspect import opt_func_info

    found = {of["current"] for kinds in opt_func_info().values() for of in kinds.values()}
    return " ".join(sorted(found))


def arithmetic_here(device: str = CPU) -> str:
    """What the last bit of a sum depends on beside its terms, as far as torch reports it.

    Empty for a GPU that this machine does not have.
    """
    import torch

    if device == CPU:
        return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"
    if not torch.cuda.is_available():
        return ""
    return f"torch {torch.__version__}, {torch.cuda.get_device_name(device)}"


def same_arithmetic(driver: str, device: str = CPU) -> None:
    """Raise where sums round differently from the driver's, if both are known."""
    here = arithmetic_here(device)
    if driver and driver != here:
        raise DjepaError(
            f"This worker computes with {here}, the driver with {driver}: they do "
            "not agree to the last bit. Use machines of one kind."
        )
