"""A planner behind HTTP: a real server on a free port, its client, and requests that are wrong."""

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from interop_kit import Kit

from commands import djepa
from djepa.errors import DjepaError
from djepa.interop.client import Client
from djepa.interop.requests import Limits, is_local
from djepa.interop.serve import SPARE, Server
from djepa.interop.wire import pack, unpack

N, K = 2, 63


@contextmanager
def serving(kit: Kit, **changes: Any) -> Iterator[tuple[Server, Client]]:
    token = changes.pop("token", "")
    with Server(kit.planner, port=0, token=token, limits=Limits(**changes)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server, Client(f"http://127.0.0.1:{server.server_port}", token)
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def arrays(kit: Kit) -> dict[str, Any]:
    given = {name: tensor[:N].numpy() for name, tensor in kit.given._asdict().items()}
    return {**given, "ids": kit.ids[:N].numpy()}


@pytest.fixture(scope="module")
def client(kit: Kit) -> Iterator[Client]:
    with serving(kit, megabytes=1, candidates=200) as (_, found):
        yield found


def test_a_plan_is_the_planners_own(kit: Kit, client: Client, arrays: dict[str, Any]) -> None:
    plan = kit.planner.plan(
        *(kit.given.frames[:N], kit.given.history[:N], kit.given.goal[:N]),
        *(kit.given.candidates[:N], kit.ids[:N], kit.given.proprio[:N]),
    )
    found = client.plan(**arrays)
    assert np.array_equal(found["choice"], plan.choice.numpy())
    assert np.array_equal(found["order"], plan.order.numpy())
    assert np.array_equal(found["opened"], plan.decision.opened.numpy())
    assert np.array_equal(found["aligned"], plan.decision.refined.numpy())
    assert client.health()["geometries"] == ["lewm", "tdjepa"]
    fewer = {**arrays, "candidates": arrays["candidates"][:, :5], "ids": arrays["ids"][:, :5]}
    assert client.plan(**fewer)["order"].shape == (N, 5)  # any K


def wrong(**changes: Any) -> Any:
    return changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (wrong(frames=np.zeros((N, 3, 8, 8, 3))), r"400: frames must be uint8 \(2, 3, 28, 28, 3\)"),
        (wrong(history=np.zeros((N, 9, 2))), r"400: history must be float32 \(2, 10, 2\)"),
        (wrong(goal=np.zeros((N, 28, 28, 4))), "400: goal must be"),
        (wrong(candidates=np.zeros((N, K, 25))), "400: candidates"),
        (wrong(candidates=np.zeros((N, K, 24, 2))), "whole blocks of 5"),
        (wrong(candidates=np.zeros((N, 1, 25, 2)), ids=np.zeros((N, 1))), "K at least 2"),
        (wrong(candidates=np.zeros((0, K, 25, 2))), "N at least 1"),
        (wrong(candidates=np.zeros((N, 101, 5, 2))), "at most 200"),
        (wrong(candidates=np.full((N, K, 25, 2), np.nan)), "400: candidates holds a NaN"),
        (wrong(ids=np.zeros((N, K))), "400: start 0 has a candidate ID twice"),
        (wrong(ids=np.zeros((N, K - 1))), r"400: ids must be int64 \(2, 63\)"),
        (wrong(proprio=np.zeros((N, 3, 4))), "400: proprio must be"),
        (wrong(path=np.zeros(3)), "400: Unknown array 'path'"),
    ],
)
def test_wrong_arrays_are_named(
    client: Client, arrays: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(DjepaError, match=message):
        client.plan(**{**arrays, **changes})
    assert client.health()["status"] == "ok"


def test_what_is_felt_is_asked_for(kit: Kit, client: Client, arrays: dict[str, Any]) -> None:
    """A geometry that feels would take the pusher to be at 0, 0."""
    without = {name: array for name, array in arrays.items() if name != "proprio"}
    assert client.plan(**without)["order"].shape == (N, K)
    net: Any = kit.planner.geometries["lewm"]
    net.proprio_weight = 0.1
    try:
        with pytest.raises(DjepaError, match="lacks proprio, which lewm read"):
            client.plan(**without)
    finally:
        del net.proprio_weight


def test_wrong_requests_are_refused(client: Client, arrays: dict[str, Any]) -> None:
    with pytest.raises(DjepaError, match="413: At most 1 MiB"):
        client.plan(**{**arrays, "candidates": np.zeros((N, K, 5000, 2))})
    with pytest.raises(DjepaError, match="404"):
        client._ask("/../../etc/passwd")
    with pytest.raises(DjepaError, match="404"):
        client._ask("/health", b"x")
    with pytest.raises(DjepaError, match="400: This is no msgpack"):
        client._ask("/plan", b"\xc1nonsense")
    with pytest.raises(DjepaError, match="400: The request lacks frames, history"):
        client._ask("/plan", pack({}))
    short = {"ids": {"dtype": "<i8", "shape": (2, 3), "data": b"12345678"}}
    with pytest.raises(DjepaError, match=r"400: ids of shape \(2, 3\) does not have 8 bytes"):
        client._ask("/plan", msgspec.msgpack.encode(short))
    odd = {"ids": {"dtype": "O", "shape": (1,), "data": b"12345678"}}
    with pytest.raises(DjepaError, match="400: This is no msgpack of arrays"):
        client._ask("/plan", msgspec.msgpack.encode(odd))
    port = int(client.url.rsplit(":", 1)[1])
    for length in (b"", b"Content-Length: -4\r\n", b"Content-Length: \xb2\r\n"):
        assert b"411" in raw(port, b"POST /plan HTTP/1.0\r\n" + length + b"\r\n")
    assert b"501" in raw(port, b"PUT /plan HTTP/1.0\r\n\r\n")


def raw(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        line.sendall(request)
        found = b""
        while part := line.recv(4096):
            found += part
        return found


def test_a_token_is_asked_for(kit: Kit, arrays: dict[str, Any]) -> None:
    secret = "a secret of many letters"
    with serving(kit, token=secret) as (_, client):
        assert client.plan(**arrays)["choice"].shape == (N,)
        for token in ("", "another", secret + "x"):
            with pytest.raises(DjepaError, match="401: The token is missing or wrong"):
                Client(client.url, token).health()
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        assert not is_local(host)
        with pytest.raises(DjepaError, match="set DJEPA_TOKEN"):
            Server(kit.planner, host, 0)
    with pytest.raises(DjepaError, match="at least 16 characters"):
        Server(kit.planner, "0.0.0.0", 0, "short")
    assert all(map(is_local, ("127.0.0.1", "::1", "localhost", "127.8.8.8")))


def test_more_than_the_queue_holds_is_answered_at_once(kit: Kit, arrays: dict[str, Any]) -> None:
    with serving(kit, queue=1, seconds=20) as (server, client), server.turn:
        first = threading.Thread(target=client.plan, kwargs=arrays)
        first.start()
        wait_for(lambda: not server.waiting._value)  # until it waits for its turn
        with pytest.raises(DjepaError, match="503: Too many requests wait"):
            client.plan(**arrays)
        assert client.health()["status"] == "ok"  # while it is busy
        server.turn.release()
        first.join()
        server.turn.acquire()
    busy = pytest.raises(DjepaError, match="503: The planner is busy")
    with serving(kit, seconds=0.2) as (server, client), server.turn, busy:
        client.plan(**arrays)


def test_slow_and_idle_connections_are_cut_off(kit: Kit, arrays: dict[str, Any]) -> None:
    head = b"POST /plan HTTP/1.0\r\nContent-Length: 1000\r\n\r\nonly this"
    with serving(kit, seconds=0.2) as (server, client):
        assert b"200" not in raw(server.server_port, head)  # it returns: it was cut off
        assert client.plan(**arrays)["choice"].shape == (N,)
    with serving(kit, queue=1, seconds=60) as (server, client):
        place = ("127.0.0.1", server.server_port)
        idle = [socket.create_connection(place) for _ in range(1 + SPARE)]
        wait_for(lambda: not server.open._value)
        with socket.create_connection(place, timeout=10) as line:  # no room: answered at once
            assert line.recv(100).startswith(b"HTTP/1.0 503")
        for line in idle:
            line.close()
        wait_for(lambda: bool(server.open._value))
        assert client.plan(**arrays)["choice"].shape == (N,)  # there is room again


def wait_for(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_command_serves_and_the_client_needs_no_torch(
    kit: Kit, arrays: dict[str, Any], tmp_path: Path
) -> None:
    command = [sys.executable, "-u", "-m", "djepa", "serve", str(kit.folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"http://\S+", server.stdout.readline())
            assert found
            np.savez(tmp_path / "a.npz", **arrays)
            done = subprocess.run(
                [sys.executable, "-c", ASK, found[0], str(tmp_path / "a.npz")],
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stderr
            assert len(json.loads(done.stdout)) == N
        finally:
            server.terminate()


ASK = """
import json, sys
import numpy as np
from djepa.interop.client import Client
arrays = dict(np.load(sys.argv[2]))
print(json.dumps(Client(sys.argv[1]).plan(**arrays)["choice"].tolist()))
assert "torch" not in sys.modules
"""


def test_the_command_explains_mistakes(kit: Kit, tmp_path: Path) -> None:
    assert "There is no planner" in djepa("serve", tmp_path / "none").stderr
    assert "DJEPA_TOKEN" in djepa("serve", kit.folder, "--host", "0.0.0.0").stderr
    assert "at least 1" in djepa("serve", kit.folder, "--queue", 0).stderr
    with serving(kit) as (server, client):
        port = server.server_port
        assert f"127.0.0.1:{port}" in djepa("serve", kit.folder, "--port", port).stderr
    with pytest.raises(DjepaError, match="does not answer"):
        client.health()


def test_arrays_come_back_as_they_were() -> None:
    given = {"a": np.arange(6, dtype=np.float32).reshape(2, 3)[:, ::2], "b": np.zeros((0, 3), bool)}
    again = unpack(pack(given))
    assert all(np.array_equal(again[name], given[name]) for name in given)
    assert again["b"].shape == (0, 3)
