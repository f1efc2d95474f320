"""One HTTP connection of `djepa serve`: the token, the two paths, and the time it may take.

Whatever a client sends or leaves out, the answer is a status and a line, and the server goes on.
"""

import hmac
import json
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

from djepa import __version__
from djepa.errors import DjepaError
from djepa.interop.requests import RefusedError
from djepa.interop.wire import pack, unpack

if TYPE_CHECKING:
    from djepa.interop.serve import Server


class Handler(BaseHTTPRequestHandler):
    """One connection, one request."""

    server: "Server"
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
