"""`djepa serve`: a planner behind HTTP. Arrays as msgpack in, arrays out; see `wire`.

    GET  /health   what is served, as JSON
    POST /plan     frames, history, goal, candidates, ids, proprio -> choice, order, scores, gate

Everything is bounded: connections, waiting requests, bytes of a request, candidates, their
controls, seconds to send and to take the answer. A request is arrays alone: no name in it reaches
the file system. One request is computed at a time.
"""

import hmac
import json
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

from djepa import __version__
from djepa.errors import DjepaError
from djepa.interop.requests import Limits, RefusedError, check, is_local
from djepa.interop.wire import Named, pack, unpack
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


class Handler(BaseHTTPRequestHandler):
    """One connection, one request."""

    server: Server
    unread = 0  # bytes not yet received

    def setup(self) -> None:
        """Start the timer that closes the connection if the request is not complete in time."""
        super().setup()
        self.timer = threading.Timer(self.server.limits.seconds, self._cut)
        self.timer.daemon = True
        self.timer.start()

    def finish(self) -> None:
        """Stop the timer."""
        self.timer.cancel()
        with suppress(OSError):
            super().finish()

    def do_GET(self) -> None:
        """Answer /health."""
        self._answer(self._health)

    def do_POST(self) -> None:
        """Answer /plan."""
        self._answer(self._plan)

    def _health(self) -> tuple[str, bytes]:
        if self.path != "/health":
            raise RefusedError(404, "There are GET /health and POST /plan.")
        planner = self.server.planner
        about = {"status": "ok", "version": __version__, "geometries": [*planner.geometries]}
        return "application/json", json.dumps(about).encode()

    def _plan(self) -> tuple[str, bytes]:
        if self.path != "/plan":
            raise RefusedError(404, "There are GET /health and POST /plan.")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise RefusedError(411, "Say how long the request is: Content-Length.")
        self.unread = int(length)
        if self.unread > self.server.limits.megabytes * 2**20:
            raise RefusedError(413, f"At most {self.server.limits.megabytes} MiB in a request.")
        if not self.server.waiting.acquire(blocking=False):
            raise RefusedError(503, "Too many requests wait already. Ask again later.")
        try:
            body, self.unread = self.rfile.read(self.unread), 0
            if len(body) < int(length):
                raise RefusedError(408, "The request was cut short.")
            self.timer.cancel()
            return "application/msgpack", pack(self.server.plan(unpack(body)))
        finally:
            self.server.waiting.release()

    def _answer(self, work: Any) -> None:
        try:
            given = self.headers.get("Authorization", "").removeprefix("Bearer ").encode()
            if self.server.token and not hmac.compare_digest(given, self.server.token.encode()):
                raise RefusedError(401, "The token is missing or wrong.")
            status, (kind, body) = 200, work()
        except RefusedError as error:
            status, kind, body = error.status, "text/plain", str(error).encode()
        except DjepaError as error:
            status, kind, body = 400, "text/plain", str(error).encode()
        except Exception as error:  # the server must continue after any error
            status, kind, body = 500, "text/plain", type(error).__name__.encode()
        # Planning stops the timer of its request. The timeout of `sendall` is for the whole answer.
        self.connection.settimeout(self.server.limits.seconds)
        with suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()
            self._drain()

    def _drain(self) -> None:
        """Discard remaining input up to a limit: a client that is still sending reads no answer."""
        left = min(self.unread, 4 * self.server.limits.megabytes * 2**20)
        while left > 0 and (part := self.rfile.read(min(left, 2**16))):
            left -= len(part)

    def _cut(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(2)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing about requests."""
