"""An exported planner, run by ONNX Runtime: numpy in and out, no torch.

graph = Graph("planner.onnx")
graph.plan(frames=..., history=..., goal=..., candidates=..., ids=...)["choice"]
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from djepa.errors import DjepaError, MissingExtraError

INPUTS = ("frames", "history", "goal", "candidates", "ids", "proprio")
OUTPUTS = ("choice", "order", "opened", "advantage", "costs", "base", "aligned", "final")
TYPES = {"frames": np.uint8, "goal": np.uint8, "ids": np.int64}
Named = dict[str, npt.NDArray[Any]]


class Graph:
    """A file that `djepa export --onnx` wrote."""

    def __init__(self, path: str | Path, threads: int = 0) -> None:
        try:
            import onnxruntime as ort
        except ImportError:
            raise MissingExtraError("Running an exported planner", "onnx") from None
        if not Path(path).is_file():
            raise DjepaError(f"There is no file {path}. Write it: djepa export PLANNER --onnx FILE")
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        try:
            self.session = ort.InferenceSession(str(path), options)
        except Exception as error:  # the library has many types of exceptions
            raise DjepaError(f"{path} is no graph that can be run: {error}") from None
        self.about: dict[str, str] = self.session.get_modelmeta().custom_metadata_map
        if "geometries" not in self.about:
            raise DjepaError(f"{path} is a graph, but not one that `djepa export` wrote.")
        self.shapes = {one.name: one.shape for one in self.session.get_inputs()}

    def plan(self, **arrays: Any) -> Named:
        """Arguments of `Planner.plan` -> OUTPUTS by name; costs (N, K, M) of all geometries."""
        given = {n: np.asarray(x, TYPES.get(n, np.float32)) for n, x in arrays.items()}
        if "proprio" not in given and self.about.get("feels"):
            raise DjepaError(f"This graph needs proprio, which {self.about['feels']} read.")
        N = len(given.get("candidates", ()))
        given.setdefault("proprio", np.zeros((N, 4, 4), np.float32))
        self._check(given)
        return dict(zip(OUTPUTS, self.session.run(list(OUTPUTS), given), strict=True))

    def _check(self, given: Named) -> None:
        """Refuse inputs that the graph was not made for; its output would be meaningless."""
        if sorted(given) != sorted(INPUTS):
            raise DjepaError(f"Give {', '.join(INPUTS)}; got {', '.join(given)}.")
        sizes: dict[str, int] = {}
        for name, array in given.items():
            wanted = self.shapes[name]
            fits = len(wanted) == array.ndim and all(
                sizes.setdefault(w, size) == size if isinstance(w, str) else w == size
                for w, size in zip(wanted, array.shape, strict=True)
            )
            if not fits:
                raise DjepaError(f"{name} must be {wanted}, got {array.shape}.")
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise DjepaError(f"{name} holds a NaN or an infinity.")
        least, ids = int(self.about["least"]), np.sort(given["ids"], axis=1)
        if ids.shape[1] < least or not len(ids):
            raise DjepaError(f"This graph needs a start, and at least {least} candidates of each.")
        if (ids < 0).any() or (ids[:, 1:] == ids[:, :-1]).any():
            raise DjepaError("ids must not be negative, and unique in each start.")
