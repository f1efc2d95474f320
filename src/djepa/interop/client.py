"""The client of `djepa serve`: numpy arrays in and out. It needs neither torch nor a world.

    client = Client("http://127.0.0.1:8765")
    plan = client.plan(frames=..., history=..., goal=..., candidates=..., ids=...)
    plan["choice"]                                                          # (N,) candidate IDs

`plan` takes what `Planner.plan` takes: frames (N, 3, px, px, 3) and goal (N, px, px, 3) uint8,
history (N, 10, A), candidates (N, K, H, A), ids (N, K) and, for geometries that read it, proprio
(N, 4, 4).
"""

import json
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import numpy as np

from djepa.errors import DjepaError
from djepa.interop.wire import Named, pack, unpack

TYPES = {"frames": np.uint8, "goal": np.uint8, "ids": np.int64}


@dataclass(frozen=True)
class Client:
    """A planner behind `djepa serve`."""

    url: str
    token: str = ""
    timeout: float = 60.0  # seconds

    def plan(self, **arrays: Any) -> Named:
        """Choice (N,), order (N, K), opened (N,), and the scores base, aligned and final (N, K)."""
        typed = {n: np.asarray(x, TYPES.get(n, np.float32)) for n, x in arrays.items()}
        return unpack(self._ask("/plan", pack(typed)))

    def health(self) -> dict[str, Any]:
        """Information about the served planner."""
        return dict(json.loads(self._ask("/health")))

    def _ask(self, path: str, body: bytes | None = None) -> bytes:
        head = {"Content-Type": "application/msgpack", "Authorization": f"Bearer {self.token}"}
        try:
            with urlopen(Request(self.url + path, body, head), timeout=self.timeout) as answer:
                return bytes(answer.read())
        except HTTPError as error:
            raise DjepaError(f"{error.code}: {error.read().decode(errors='replace')}") from None
        except (URLError, OSError) as error:
            raise DjepaError(f"{self.url} does not answer: {error}.") from None
