"""`djepa info`: what is installed, for a person and for a bug report."""

import importlib.metadata
import importlib.util
import platform
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from djepa.cli.console import console

BASE = ("djepa", "numpy", "torch", "safetensors", "pymunk", "pillow", "tyro", "rich")
EXTRAS = {  # extra -> purpose; its packages are in the metadata of djepa
    "ray": "the engine ray: several machines",
    "remote": "folders in object stores",
    "report": "figures",
    "mujoco": "the world reacher",
    "cube": "OGBench's cube environment",
    "arms": "one arm and two arms, and the vendor's SDK",
    "aloha": "the two tasks of gym-aloha",
    "driving": "logs of Argoverse 2",
    "gym": "the worlds as Gymnasium environments",
    "swm": "the adapter to stable-worldmodel",
    "lerobot": "the adapters to LeRobot",
    "recorded": "recorded episodes: HDF5 and LeRobot data sets",
    "video": "recorded episodes: videos of LeRobot data sets",
    "lance": "recorded episodes: Lance tables",
    "hub": "folders on the Hugging Face hub",
    "onnx": "export planners, and run them without torch",
}


@dataclass(frozen=True)
class Info:
    """Print versions, devices, extras and shipped weights."""

    def run(self) -> int:
        """Print a table."""
        from djepa.models.weights import shipped

        table = Table(show_header=False, box=None, pad_edge=False)
        table.add_column(style="bold")
        table.add_column()
        table.add_row("python", f"{platform.python_version()} on {platform.platform()}")
        for name in BASE:
            table.add_row(name, version(name) or "missing")
        table.add_row("devices", ", ".join(devices()))
        for extra, purpose in EXTRAS.items():
            found = {name: version(name) for name in packages(extra)}
            state = ", ".join(f"{name} {of}" for name, of in found.items())
            if None in found.values() or not found:
                state = f"not installed: pip install 'djepa[{extra}]'"
            table.add_row(f"extra {extra}", Text(f"{state} ({purpose})"))
        table.add_row("weights", ", ".join(shipped()) or "none here")
        console.print(table)
        return 0


def version(package: str) -> str | None:
    """Installed version, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def packages(extra: str) -> list[str]:
    """What an extra installs, by the metadata of djepa."""
    try:
        needed = importlib.metadata.requires("djepa") or []
    except importlib.metadata.PackageNotFoundError:  # a source tree that was never installed
        needed = []
    of = [line.split(";")[0] for line in needed if f"extra == '{extra}'" in line.replace('"', "'")]
    return ["".join(c if c.isalnum() or c in "-_." else " " for c in one).split()[0] for one in of]


def devices() -> list[str]:
    """Devices that torch can use."""
    import torch

    from djepa.rollout.engine import usable_cores

    cuda = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return [f"cpu ({usable_cores()} cores)", *cuda]
