"""`djepa serve`: a planner behind HTTP. Arrays as msgpack in, arrays out; see `wire`.

    GET  /health   what is served, as JSON
    POST /plan     frames, history, goal, candidates, ids, proprio -> choice, order, scores, gate

Everything is bounded: connections, waiting requests, bytes of a request, candidates, their
controls, seconds to send and to take the answer. A request is arrays alone: no name in it reaches
the file system. One request is computed at a time. `handler` speaks HTTP.
"""

import threading
from contextlib import suppress
from http.server import ThreadingHTTPServer
from typing import Any

import torch

from djepa.errors import DjepaError
from djepa.interop.handler import Handler
from djepa.interop.requests import Limits, RefusedError, check, is_local
from djepa.interop.wire import Named
from djepa.lift.planner import Planner

SPARE = 8  # connections beyond those that plan, so that /health is answered
SHORTEST = 16  # characters of a token


class Server(ThreadingHTTPServer):
    """Serves one planner until it is shut down."""

    daemon_threads = True

    def __init__(
        self,
        planner: Planner,
        host: str = "127.0.0.1",
        port: int = 8765,
        token: str = "",
        limits: Limits | None = None,
        device: str = "cpu",
    ) -> None:
        if not is_local(host) and len(token) < SHORTEST:
            raise DjepaError(
                f"{host} can be reached from other machines: set DJEPA_TOKEN to a secret of at "
                f"least {SHORTEST} characters, or serve on 127.0.0.1."
            )
        self.planner, self.token, self.device = planner, token, device
        self.limits = limits or Limits()
        self.turn = threading.Lock()
        self.waiting = threading.BoundedSemaphore(self.limits.queue)
        self.open = threading.BoundedSemaphore(self.limits.queue + SPARE)
        try:
            super().__init__((host, port), Handler)
        except (OSError, OverflowError) as error:
            raise DjepaError(f"Cannot serve on {host}:{port}: {error}.") from None

    def process_request(self, request: Any, client_address: Any) -> None:
        """One thread per connection, with a limited number of connections."""
        if not self.open.acquire(blocking=False):
            with suppress(OSError):
                request.sendall(b"HTTP/1.0 503 Busy\r\nContent-Length: 0\r\n\r\n")
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection, then release its slot."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.open.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print no traceback for a broken connection."""

    def plan(self, given: Named) -> Named:
        """Checked arrays of a request -> arrays of the plan."""
        check(self.planner, given, self.limits)
        at = {n: torch.from_numpy(array.copy()).to(self.device) for n, array in given.items()}
        if not self.turn.acquire(timeout=self.limits.seconds):
            raise RefusedError(503, "The planner is busy. Ask again later.")
        try:
            plan = self.planner.plan(
                *(at["frames"], at["history"], at["goal"], at["candidates"], at["ids"]),
                *(at.get("proprio"), False),
            )
        finally:
            self.turn.release()
        d = plan.decision
        found = {"choice": d.choice, "order": d.order, "opened": d.opened, "base": d.base}
        found |= {"aligned": d.refined, "final": d.final}
        return {name: tensor.cpu().numpy() for name, tensor in found.items()}
