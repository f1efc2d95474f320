"""Environments below the folder DJEPA_SCRATCH, for tests that need packages of their own."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import djepa

SOURCE = Path(djepa.__file__).parents[1]
ROOT = Path(__file__).parents[1]

# The torchvision of the index is built for CUDA; beside a torch without it, it lacks operators that
# it registers on import. Nothing here calls them.
OPERATORS = """
import sys
from importlib.abc import MetaPathFinder

class Declare(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch
            self.library = torch.library.Library("torchvision", "DEF")
            for op in ("nms", "qnms"):
                self.library.define(f"{op}(Tensor dets, Tensor scores, float iou) -> Tensor")
            sys.modules["torch"]._declared = self.library

sys.meta_path.insert(0, Declare())
"""


def environment(
    name: str, packages: tuple[str, ...], alone: bool = False, new: bool = False
) -> Path:
    """Python of an environment with these packages; made once and used again, unless `new`.

    It shares the packages of this environment; `alone` it has those that pip installs with them.
    """
    folder = os.environ.get("DJEPA_SCRATCH")
    if not folder:
        pytest.skip(f"set DJEPA_SCRATCH to a folder to test with {packages[0]}")
    home = Path(folder) / name
    python = home / "bin" / "python"
    if new or not (home / "made").exists():
        run(sys.executable, "-m", "venv", "--clear", home)
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        if not alone:
            link = home / "lib" / version / "site-packages" / "base.pth"
            link.write_text(sysconfig.get_paths()["purelib"] + "\n")
        more = () if alone else ("--no-deps",)
        run(python, "-m", "pip", "install", "-q", *more, *packages)
        if any(package.startswith("torchvision") for package in packages):
            (home / "lib" / version / "site-packages" / "sitecustomize.py").write_text(OPERATORS)
        (home / "made").touch()
    return python


def run(*words: object) -> str:
    command = [str(word) for word in words]
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout
