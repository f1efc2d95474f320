"""`djepa info`: what is installed, for a person and for a bug report."""

import importlib.metadata
import importlib.util
import platform
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from djepa.cli.console import console

BASE = ("djepa", "numpy", "torch", "safetensors", "pymunk", "pillow", "tyro", "rich")
EXTRAS = {
    "ray": ("ray", "collect on a Ray cluster"),
    "gym": ("gymnasium", "the worlds as Gymnasium environments"),
    "mujoco": ("mujoco", "MuJoCo, for worlds that run on it"),
    "arms": ("piper_sdk", "one arm and two arms, and the vendor's SDK"),
    "aloha": ("gym-aloha", "the two tasks of gym-aloha"),
    "report": ("matplotlib", "figures"),
    "onnx": ("onnxruntime", "export planners, and run them without torch"),
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
        for extra, (package, purpose) in EXTRAS.items():
            found = version(package)
            state = (
                f"{package} {found}" if found else f"not installed: pip install 'djepa[{extra}]'"
            )
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


def devices() -> list[str]:
    """Where torch can compute."""
    import torch

    from djepa.rollout.engine import usable_cores

    cuda = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return [f"cpu ({usable_cores()} cores)", *cuda]
