"""Folders in an object store: the bytes of a local folder, and a cut connection is gone on from.

What needs an S3 server runs where there is one: `make remote` installs SeaweedFS from PyPI.
"""

import os
import pickle
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from djepa.artefacts import store
from djepa.artefacts.records import JOURNAL
from djepa.artefacts.store import Remote, locate, remote
from djepa.bank.check import check_bank
from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.cli.main import main
from djepa.errors import DjepaError, MissingExtraError
from djepa.files import write_atomically
from djepa.models.lewm import LeWM
from djepa.models.predictions import predict_bank, read_predictions
from djepa.models.weights import TENSORS, load_geometry, save_geometry, weights_hash
from djepa.rollout.engine import LocalEngine
from djepa.rollout.execute import CollectConfig
from djepa.studies.stages import Stage, check_sealed, claim, run_stages
from tiny import TINY

CONFIG = CollectConfig(
    world="reacher", profile="decoy", starts=10, horizon=5, candidates=8, centres=2, block=2
)
WORDS = ["reacher", "--profile", "decoy", "--starts", "10", "--horizon", "5"]
WORDS += ["--candidates", "8", "--centres", "2", "--block", "2"]  # the same, typed
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
IDENTITY = (
    '{"identities": [{"name": "test", "credentials": [{"accessKey": "key", "secretKey": "secret"}],'
    ' "actions": ["Admin", "Read", "Write", "List"]}]}'
)


def files(folder: Path | str) -> dict[str, bytes]:
    """Name -> bytes of all files below."""
    at = locate(folder)
    if far := remote(at):
        return {name: (far / name).read_bytes() for name in far.sizes()}
    return {p.relative_to(at).as_posix(): p.read_bytes() for p in at.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the bank, written on this machine."""
    folder = tmp_path_factory.mktemp("store") / "bank"
    collect(folder, CONFIG, LocalEngine(1))
    return files(folder)


@pytest.fixture
def memory() -> Iterator[str]:
    """A store within this process."""
    pytest.importorskip("fsspec")
    yield "memory://runs"
    for file in Remote("memory://runs").rglob("*"):
        file.unlink()


def make_weights(folder: Path) -> None:
    """Tiny weights of a LeWM, the same each time."""
    torch.manual_seed(0)
    save_geometry(LeWM(TINY).eval(), folder, {"recipe": {"world": "reacher"}})


def told(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command says; it must succeed."""
    with pytest.raises(SystemExit) as end:
        main(words)
    said = capsys.readouterr()
    assert end.value.code == 0, said.err
    return said.out


def decided(home: str, capsys: pytest.CaptureFixture[str]) -> dict[str, bytes]:
    """Weights, banks, predictions, a fit, decisions and an audit, all below `home`: the files."""
    make_weights(locate(f"{home}/weights"))
    weights, alone = ["--geometry", f"{home}/weights"], ["--workers", "1"]
    for split in ("fit", "cal"):
        bank = f"{home}/{split}"
        told(["collect", *WORDS, "--split", split, "--out", bank, *alone], capsys)
        told(["predict", bank, *weights, *alone], capsys)
    fit = ["fit", f"{home}/fit", "--calibration", f"{home}/cal", "--preset", "lewm"]
    told([*fit, "--updates", "2", "--out", f"{home}/alignment", *alone], capsys)
    alignment, record = f"{home}/alignment", f"{home}/decided.json"
    told(["decide", alignment, f"{home}/cal", "--out", record, *alone], capsys)
    audit = ["audit", f"{home}/cal", *weights, "--alignment", alignment]
    told([*audit, "--json", f"{home}/audit.json"], capsys)
    return files(home)


class StoppedError(Exception):
    """Stands for a kill."""


def stop_after(blocks: int) -> Callable[[int, int], None]:
    def report(done: int, total: int) -> None:
        if done >= 2 * blocks:
            raise StoppedError

    return report


def test_a_url_survives_being_a_path() -> None:
    for given in ("s3://bucket/runs/bank/", Path("s3://bucket/runs/bank")):
        at = locate(given)
        assert str(at) == "s3://bucket/runs/bank"
        assert str(at / "manifest.json") == "s3://bucket/runs/bank/manifest.json"
        assert (at.name, str(at.parent)) == ("bank", "s3://bucket/runs")
        assert pickle.loads(pickle.dumps(at)) == at == locate(at)
    for plain in ("runs/bank", "./s3", "C:/bank", "/a:/b"):
        assert locate(plain) == Path(plain)


def test_the_same_bytes_as_on_this_machine(memory: str, whole: dict[str, bytes]) -> None:
    with pytest.raises(StoppedError):
        collect(f"{memory}/bank", CONFIG, LocalEngine(1), report=stop_after(3))
    begun = files(f"{memory}/bank")
    assert "manifest.json" not in begun
    assert sum(name.startswith(f"{JOURNAL}.") for name in begun) == 3
    with pytest.raises(DjepaError, match="not finished"):
        Bank(f"{memory}/bank")
    bank = collect(f"{memory}/bank", CONFIG, LocalEngine(1))
    assert files(f"{memory}/bank") == whole
    assert list(check_bank(bank.path, sample=3))


def test_weights_a_fit_and_decisions_in_a_store(
    memory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    near, far = decided(str(tmp_path / "near"), capsys), decided(memory, capsys)
    assert set(far) >= {"alignment/model.safetensors", "decided.json", "audit.json"}
    assert far == near
    assert [name for name in near if near[name] != far[name]] == []


def test_weights_in_a_store_are_verified(memory: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DjepaError, match="Unknown weights 'memory://runs/weights'"):
        load_geometry(f"{memory}/weights")
    make_weights(locate(f"{memory}/weights"))
    assert weights_hash(f"{memory}/weights")[:12] in told(["weights", f"{memory}/weights"], capsys)
    tensors = Remote(f"{memory}/weights") / TENSORS
    whole = tensors.read_bytes()
    for data, what in ((whole[:-1], "cut short"), (whole[:-1] + b"\1", "damaged")):
        tensors.write(data)
        with pytest.raises(DjepaError, match=what):
            load_geometry(f"{memory}/weights")
    tensors.unlink()
    with pytest.raises(DjepaError, match=f"{TENSORS} is missing"):
        load_geometry(f"{memory}/weights")


def test_another_configuration_and_strangers_are_refused(memory: str) -> None:
    with pytest.raises(StoppedError):
        collect(f"{memory}/bank", CONFIG, LocalEngine(1), report=stop_after(1))
    with pytest.raises(DjepaError, match="seed: 0 there, 1 asked"):
        collect(f"{memory}/bank", replace(CONFIG, seed=1), LocalEngine(1))
    (locate(memory) / "mine" / "notes.txt").write(b"mine")  # type: ignore[attr-defined]
    with pytest.raises(DjepaError, match=r"not empty and not a bank \(it holds notes.txt\)"):
        collect(f"{memory}/mine", CONFIG, LocalEngine(1))
    assert files(f"{memory}/mine") == {"notes.txt": b"mine"}


def test_damage_is_found_when_it_is_read(memory: str, whole: dict[str, bytes]) -> None:
    shard = "decision/block-000001.safetensors"
    at = Remote(f"{memory}/bank")
    for name, data in whole.items():
        (at / name).write(data)
    for data, what in ((whole[shard][:-1], "cut short"), (b"\1" * len(whole[shard]), "damaged")):
        (at / shard).write(data)
        with pytest.raises(DjepaError, match=what):
            _ = Bank(f"{memory}/bank").decisions
    (at / shard).unlink()
    with pytest.raises(DjepaError, match=f"{shard} is missing"):
        Bank(f"{memory}/bank")


def test_a_study_lies_in_a_store(memory: str) -> None:
    home, ran = locate(f"{memory}/study"), list[str]()

    def make(file: Path) -> Callable[[Any], None]:
        def run(say: Any) -> None:
            ran.append(file.name)
            write_atomically(file, b"{}")

        return run

    claim(home, {"study": "pusht"})
    claim(home, {"study": "pusht"})
    with pytest.raises(DjepaError, match="another study"):
        claim(home, {"study": "reacher"})
    made = [home / "measures" / name for name in ("a.json", "b.json")]
    stages = [Stage(one.name, one, make(one), tuple(made[:i])) for i, one in enumerate(made)]
    for _ in range(2):
        run_stages(stages, lambda line: None)
    assert ran == ["a.json", "b.json"]
    assert set(files(home)) == {"study.json", "manifest.json", "measures/a.json", "measures/b.json"}
    write_atomically(made[0], b"[]")
    with pytest.raises(DjepaError, match=r"a\.json is damaged"):
        check_sealed(home)


def test_shards_that_are_mapped_are_copied_once(memory: str) -> None:
    (Remote(memory) / "shard").write(b"123")
    copy = (Remote(memory) / "shard").local()
    assert copy.read_bytes() == b"123"
    assert (Remote(memory) / "shard").local() == copy
    (Remote(memory) / "parts").write(iter([b"1", b"23"]))
    assert (Remote(memory) / "parts").read_bytes() == b"123"


def test_nothing_is_appended_in_a_store() -> None:
    with pytest.raises(DjepaError, match="Choose a folder on this machine"):
        Remote("s3://bucket/log.jsonl").open("a")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.fsspec", None)
    store._system.cache_clear()
    with pytest.raises(MissingExtraError, match=r"s3:// needs the extra 'remote'"):
        Bank("s3://bucket/bank")


class Proxy(socketserver.ThreadingTCPServer):
    """Passes bytes on to a server, and cuts every connection after so many of them."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), Pass)
        self.target, self.left = port, float("inf")
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Pass(socketserver.BaseRequestHandler):
    """One connection."""

    def handle(self) -> None:
        server: Any = self.server
        if server.left <= 0:
            return
        with socket.create_connection(("127.0.0.1", server.target)) as far:
            back = threading.Thread(target=self.copy, args=(far, self.request), daemon=True)
            back.start()
            self.copy(self.request, far)
            back.join()

    def copy(self, of: socket.socket, to: socket.socket) -> None:
        server: Any = self.server
        try:
            while data := of.recv(4096):
                server.left -= len(data)
                if server.left <= 0:  # in the middle of whatever is under way
                    break
                to.sendall(data)
        except OSError:
            pass
        for end in (of, to):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def free(count: int) -> list[int]:
    """Ports that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """SeaweedFS on this machine; the port of its S3 interface."""
    weed = shutil.which("weed", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if weed is None:
        pytest.skip("needs an S3 server: `make remote` installs SeaweedFS")
    pytest.importorskip("obstore")
    home = tmp_path_factory.mktemp("weed")
    (home / "s3.json").write_text(IDENTITY)
    names = ("master.port", "volume.port", "filer.port", "s3.port")
    ports = dict(zip(names, (p for p in free(8) if p < 55_000), strict=False))
    words = [weed, "server", "-s3", f"-dir={home}", f"-s3.config={home / 's3.json'}"]
    words += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false", "-volume.max=4"]
    words += ["-s3.port.iceberg=0", "-s3.port.lance=0"]
    words += [f"-{name}={port}" for name, port in ports.items()]
    with (home / "log").open("w") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        _until_ready(ports["s3.port"], process)
        yield ports["s3.port"]
    finally:
        process.kill()
        process.wait()


def _until_ready(port: int, process: "subprocess.Popen[bytes]") -> None:
    """The first file also makes the bucket."""
    os.environ.update(KEYS, AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}")
    for _ in range(120):
        assert process.poll() is None, "the server ended"
        store._system.cache_clear()
        try:
            Remote("s3://test/ready").write(b"ready")
            return
        except DjepaError:
            time.sleep(0.5)
    raise AssertionError("the server does not answer")


@pytest.fixture
def through(server: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """The server behind a proxy that can cut connections; few retries, so that tests are quick."""
    proxy = Proxy(server)
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": proxy.url}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(store, "RETRIES", {"max_retries": 1})
    store._system.cache_clear()
    yield proxy
    proxy.shutdown()
    proxy.server_close()
    store._system.cache_clear()


@pytest.mark.parametrize("share", [0.05, 0.4, 0.75, 0.95])
def test_a_connection_that_is_cut(through: Proxy, whole: dict[str, bytes], share: float) -> None:
    url = f"s3://test/cut-{share}"
    through.left = share * 1.1 * sum(map(len, whole.values()))
    with pytest.raises(DjepaError, match=r"Cannot reach s3://test/cut.*run the same command again"):
        collect(url, CONFIG, LocalEngine(1))
    through.left = float("inf")
    store._system.cache_clear()
    there = files(url)
    assert "manifest.json" not in there or share > 0.9
    assert all(whole[n] == data for n, data in there.items() if n in whole)  # whole, or not there
    collect(url, CONFIG, LocalEngine(1))
    assert files(url) == whole


def test_a_bank_and_its_evidence_in_a_real_store(
    through: Proxy, whole: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from test_attacks import Sums

    told(["collect", *WORDS, "--workers", "1", "--out", "s3://test/bank"], capsys)
    assert files("s3://test/bank") == whole
    near = collect(tmp_path / "bank", CONFIG, LocalEngine(1))
    for bank in (near, Bank("s3://test/bank")):
        predict_bank(bank, Sums(), "0" * 64)
    assert files("s3://test/bank") == files(near.path)
    ours, theirs = (read_predictions(b, "sums") for b in (near, Bank("s3://test/bank")))
    assert (ours.cost == theirs.cost).all()


def test_weights_a_fit_and_decisions_in_a_real_store(
    through: Proxy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    near = decided(str(tmp_path / "near"), capsys)
    through.left = 0.6 * sum(map(len, near.values()))
    with pytest.raises(AssertionError, match="Cannot reach s3://test/aligned"):
        decided("s3://test/aligned", capsys)
    through.left = float("inf")
    store._system.cache_clear()
    assert "weights/manifest.json" in files("s3://test/aligned")
    assert decided("s3://test/aligned", capsys) == near
    assert weights_hash("s3://test/aligned/weights") == weights_hash(tmp_path / "near" / "weights")


def test_a_bucket_that_is_not_there(through: Proxy) -> None:
    with pytest.raises(DjepaError, match=r"Cannot reach s3://nobodys/bank.*NoSuchBucket"):
        Bank("s3://nobodys/bank")
