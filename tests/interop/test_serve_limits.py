"""What one request may cost the server: controls in all, and the time to take the answer."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from interop_kit import Kit

from djepa.errors import DjepaError
from djepa.interop.client import Client
from djepa.interop.requests import Limits, check
from djepa.interop.serve import Server
from djepa.interop.wire import Named, pack


@contextmanager
def serving(kit: Kit, **limits: Any) -> Iterator[Server]:
    with Server(kit.planner, port=0, limits=Limits(**limits)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def request(kit: Kit, horizon: int) -> dict[str, Any]:
    given = {name: tensor[:1].numpy() for name, tensor in kit.given._asdict().items()}
    controls = np.zeros((1, 2, horizon, 2), np.float32)
    return {**given, "ids": kit.ids[:1, :2].numpy(), "candidates": controls}


def test_controls_are_counted_and_not_only_bytes(kit: Kit) -> None:
    """31 MiB of two candidates would hold the planner for hours."""
    with pytest.raises(DjepaError, match=r"N · K · H at most 262144"):
        check(kit.planner, request(kit, 2_000_000), Limits())
    check(kit.planner, request(kit, 25), Limits(controls=50))
    with pytest.raises(DjepaError, match=r"N · K · H at most 50"):
        check(kit.planner, request(kit, 30), Limits(controls=50))
    with pytest.raises(DjepaError, match="candidates and controls 2"):
        Limits(controls=1)
    with serving(kit, controls=50) as server:
        client = Client(f"http://127.0.0.1:{server.server_port}")
        assert client.plan(**request(kit, 25))["order"].shape == (1, 2)
        with pytest.raises(DjepaError, match=r"400: .*N · K · H at most 50"):
            client.plan(**request(kit, 30))


def test_a_client_that_does_not_read_gives_its_place_back(kit: Kit) -> None:
    planned = threading.Event()

    def plan(given: Named) -> Named:
        planned.set()
        return {"order": np.zeros(2**26, np.uint8)}  # more than the sockets hold

    with serving(kit, queue=1, seconds=0.5) as server:
        vars(server)["plan"] = plan
        free, body = server.open._value, pack({})
        with socket.create_connection(("127.0.0.1", server.server_port)) as line:
            line.sendall(b"POST /plan HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            assert planned.wait(10)
            end = time.monotonic() + 10
            while server.open._value != free:
                assert time.monotonic() < end, "the place is still taken"
                time.sleep(0.01)
