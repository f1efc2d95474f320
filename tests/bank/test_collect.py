"""A bank survives what happens to long work: crashes, kills, other configurations, bad disks."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from commands import interruptible
from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.bank.write import BankWriter
from djepa.errors import DjepaError
from djepa.rollout.engine import LocalEngine
from djepa.rollout.execute import BlockWork, CollectConfig, run_block, versions

SMALL = CollectConfig(starts=10, block=4)
LONG = ["collect", "push", "--starts", "120", "--block", "4", "--profile", "decoy"]


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def djepa(*arguments: str, **options: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "djepa", *arguments]
    pipe = subprocess.PIPE
    options.setdefault("start_new_session", True)
    options.setdefault("preexec_fn", interruptible)
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, **options)  # type: ignore[call-overload]


def wait_for_blocks(folder: Path, blocks: int, process: "subprocess.Popen[str]") -> None:
    journal = folder / "journal.jsonl"
    for _ in range(1200):
        if journal.exists() and len(journal.read_text().splitlines()) >= blocks:
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    raise AssertionError("the collection did not start")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The long collection, never interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "bank"
    process = djepa(*LONG, "--out", str(folder))
    _, complaint = process.communicate()
    assert process.returncode == 0, complaint
    return files(folder)


def test_two_workers_write_the_same_bytes_as_one(small_bank: Bank, tmp_path: Path) -> None:
    collect(tmp_path / "two", SMALL, LocalEngine(2))
    assert files(tmp_path / "two") == files(small_bank.path)


def test_blocks_in_any_order_give_the_same_bank(small_bank: Bank, tmp_path: Path) -> None:
    class Backwards:
        def map(self, work, items, shared=None, device="cpu"):  # type: ignore[no-untyped-def]
            for key, item in sorted(items, key=lambda pair: -pair[0]):
                yield key, work(item)

    collect(tmp_path / "backwards", SMALL, Backwards())
    assert files(tmp_path / "backwards") == files(small_bank.path)


def kill(process: "subprocess.Popen[str]") -> None:
    process.kill()


def interrupt(process: "subprocess.Popen[str]") -> None:
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too


@pytest.mark.parametrize("stop", [kill, interrupt])
def test_a_stopped_collection_resumes_to_the_same_bank(
    stop: Callable[["subprocess.Popen[str]"], None], whole: dict[str, bytes], tmp_path: Path
) -> None:
    folder = tmp_path / "bank"
    process = djepa(*LONG, "--out", str(folder), "--workers", "2")
    wait_for_blocks(folder, 2, process)
    stop(process)
    _, complaint = process.communicate()
    assert process.returncode == (130 if stop is interrupt else -signal.SIGKILL)
    assert stop is kill or "the same command goes on" in complaint
    assert not (folder / "manifest.json").exists()
    with pytest.raises(DjepaError, match="not finished"):
        Bank(folder)
    kept = {name: data for name, data in files(folder).items() if "/block-" in name}
    again = djepa(*LONG, "--out", str(folder))
    printed, complaint = again.communicate()
    assert again.returncode == 0, complaint
    assert ": 0/120" not in printed  # it went on, it did not begin again
    assert files(folder) == whole
    assert all(whole[name] == data for name, data in kept.items() if not name.endswith(".part"))


def test_a_killed_worker_costs_nothing(whole: dict[str, bytes], tmp_path: Path) -> None:
    folder = tmp_path / "bank"
    process = djepa(*LONG, "--out", str(folder), "--workers", "2")
    wait_for_blocks(folder, 2, process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    commands = {c: Path(f"/proc/{c}/cmdline").read_bytes() for c in children}
    workers = [int(c) for c, line in commands.items() if b"spawn_main" in line]
    os.kill(workers[0], signal.SIGKILL)
    _, complaint = process.communicate()
    assert process.returncode == 0, complaint
    assert files(folder) == whole


def test_workers_do_not_outlive_a_killed_driver(tmp_path: Path) -> None:
    folder = tmp_path / "bank"
    process = djepa(*LONG, "--out", str(folder), "--workers", "2")
    wait_for_blocks(folder, 1, process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    process.communicate()
    for _ in range(200):
        alive = [c for c in children if Path(f"/proc/{c}/cmdline").exists()]
        alive = [c for c in alive if b"spawn_main" in Path(f"/proc/{c}/cmdline").read_bytes()]
        if not alive:
            break
        time.sleep(0.05)
    assert not alive, "workers live on"


def test_a_torn_journal_line_is_only_a_block_in_flight(small_bank: Bank, tmp_path: Path) -> None:
    with BankWriter(tmp_path, SMALL, versions("push")).opened() as writer:
        writer.write(0, run_block(BlockWork(SMALL, 0)))
        writer.write(1, run_block(BlockWork(SMALL, 1)))
    journal = tmp_path / "journal.jsonl"
    journal.write_text(journal.read_text()[:-20])
    (tmp_path / "decision" / "block-000002.safetensors.part").write_bytes(b"left over")
    collect(tmp_path, SMALL, LocalEngine(1))
    assert files(tmp_path) == files(small_bank.path)


@pytest.mark.parametrize("cut", [1, 20])
def test_a_journal_cut_anywhere_in_its_last_line(
    cut: int, small_bank: Bank, tmp_path: Path
) -> None:
    with BankWriter(tmp_path, SMALL, versions("push")).opened() as writer:
        for number in (0, 1):
            writer.write(number, run_block(BlockWork(SMALL, number)))
    journal = tmp_path / "journal.jsonl"
    journal.write_text(journal.read_text()[:-cut])
    with BankWriter(tmp_path, SMALL, versions("push")).opened() as writer:
        assert set(writer.done) == {0}
        writer.write(1, run_block(BlockWork(SMALL, 1)))
    with BankWriter(tmp_path, SMALL, versions("push")).opened() as writer:
        assert set(writer.done) == {0, 1}
    journal.write_text("null\n" + journal.read_text())
    with pytest.raises(DjepaError, match="damaged in line 1"):
        collect(tmp_path, SMALL, LocalEngine(1))


def test_a_crash_after_the_manifest_is_tidied_up(small_bank: Bank, bank_copy: Path) -> None:
    (bank_copy / "begun.json").write_text('{"format": "djepa-bank"}')
    (bank_copy / "journal.jsonl").write_text("left over")
    collect(bank_copy, SMALL, LocalEngine(1))
    assert files(bank_copy) == files(small_bank.path)


def test_a_foreign_folder_is_refused_and_untouched(tmp_path: Path) -> None:
    folder = tmp_path / "papers"
    (folder / "decision").mkdir(parents=True)
    (folder / "decision" / "block-000000.safetensors").write_bytes(b"mine")
    (folder / "thesis.tex.part").write_bytes(b"mine too")
    before = files(folder)
    with pytest.raises(DjepaError, match="not empty and not a bank"):
        collect(folder, SMALL, LocalEngine(1))
    assert files(folder) == before


def test_somebody_elses_config_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    before = files(tmp_path)
    with pytest.raises(DjepaError, match="not empty and not a bank"):
        collect(tmp_path, SMALL, LocalEngine(1))
    assert files(tmp_path) == before


def test_killed_in_the_first_moment(small_bank: Bank, tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / "begun.json.part").write_text("{")
    bank = collect(tmp_path, SMALL, LocalEngine(1))
    assert bank.hash == small_bank.hash


def test_shards_that_never_reached_the_journal_are_swept(small_bank: Bank, tmp_path: Path) -> None:
    with BankWriter(tmp_path, replace(SMALL, starts=40), versions("push")).opened() as writer:
        writer.write(7, run_block(BlockWork(SMALL, 0)))
    (tmp_path / "journal.jsonl").unlink()
    assert collect(tmp_path, SMALL, LocalEngine(1)).hash == small_bank.hash
    assert files(tmp_path).keys() == files(small_bank.path).keys()


def test_nobody_listening_does_not_stop_the_work(tmp_path: Path) -> None:
    arguments = ["collect", "--starts", "4", "--block", "2", "--workers", "1", "--out", "bank"]
    command = [sys.executable, "-m", "djepa", *arguments]
    with Path("/dev/full").open("w") as full:
        subprocess.run(command, stdout=full, stderr=subprocess.PIPE, cwd=tmp_path)
    assert len(Bank(tmp_path / "bank")) == 4


def test_a_folder_claimed_in_vain_can_be_used_again(small_bank: Bank, tmp_path: Path) -> None:
    with BankWriter(tmp_path, replace(SMALL, seed=9), versions("push")).opened():
        pass  # nothing was recorded
    assert collect(tmp_path, SMALL, LocalEngine(1)).hash == small_bank.hash


@pytest.mark.parametrize("kind", ["decision", "provenance", "outcome"])
def test_collecting_again_notices_a_damaged_bank(kind: str, bank_copy: Path) -> None:
    shard = bank_copy / kind / "block-000001.safetensors"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    with pytest.raises(DjepaError, match=rf"{kind}/block-000001.*damaged"):
        collect(bank_copy, SMALL, LocalEngine(1))


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda data: data[:-1], "cut short"),
        (lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:], "damaged"),
    ],
)
def test_a_damaged_block_stops_the_resumption(
    damage: Callable[[bytes], bytes], complaint: str, tmp_path: Path
) -> None:
    with BankWriter(tmp_path, SMALL, versions("push")).opened() as writer:
        writer.write(0, run_block(BlockWork(SMALL, 0)))
    shard = tmp_path / "outcome" / "block-000000.safetensors"
    shard.write_bytes(damage(shard.read_bytes()))
    before = files(tmp_path)
    with pytest.raises(DjepaError, match=rf"outcome/block-000000.*{complaint}"):
        collect(tmp_path, SMALL, LocalEngine(1))
    assert files(tmp_path) == before


def test_another_configuration_is_refused_and_named(bank_copy: Path) -> None:
    before = files(bank_copy)
    with pytest.raises(DjepaError, match=r"seed: 0 there, 1 asked"):
        collect(bank_copy, replace(SMALL, seed=1), LocalEngine(1))
    assert files(bank_copy) == before


def test_a_finished_bank_is_left_as_it_is(bank_copy: Path) -> None:
    before = {name: (bank_copy / name).stat().st_mtime_ns for name in files(bank_copy)}
    collect(bank_copy, SMALL, LocalEngine(1))
    assert {name: (bank_copy / name).stat().st_mtime_ns for name in files(bank_copy)} == before


def test_two_collections_do_not_share_a_folder(tmp_path: Path) -> None:
    with BankWriter(tmp_path, SMALL, versions("push")).opened():
        for _ in range(3):  # to be refused must not undo the lock
            with (
                pytest.raises(DjepaError, match="Another process"),
                BankWriter(tmp_path, SMALL, versions("push")).opened(),
            ):
                pass
            assert (tmp_path / ".lock").exists()
    assert not (tmp_path / ".lock").exists()


def test_an_unwritable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DjepaError, match=r"Cannot write .*file/bank.*Not a directory"):
        collect(tmp_path / "file" / "bank", SMALL, LocalEngine(1))


def test_a_full_disk_is_named_and_costs_nothing_finished(small_bank: Bank, tmp_path: Path) -> None:
    """The limit on file size makes the kernel refuse the write, as a full disk does."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (90_000, 90_000))

    arguments = ("collect", "--starts", "10", "--block", "4", "--out", str(tmp_path / "bank"))
    process = djepa(*arguments, "--workers", "1", preexec_fn=limit)
    _, complaint = process.communicate()
    assert process.returncode == 1
    assert "Cannot write" in complaint
    assert "block-00000" in complaint
    assert not list((tmp_path / "bank").rglob("*.part"))
    collect(tmp_path / "bank", SMALL, LocalEngine(1))
    assert files(tmp_path / "bank") == files(small_bank.path)


def test_the_manifest_says_what_the_numbers_depend_on(small_bank: Bank) -> None:
    manifest = json.loads((small_bank.path / "manifest.json").read_text())["about"]
    assert manifest["config"]["rule"] == "push.v1"
    assert set(manifest["versions"]) == {"djepa", "world", "pymunk", "numpy", "machine"}
    assert [block["starts"] for block in manifest["blocks"]] == [4, 4, 2]
    draws = small_bank.provenance.draws
    assert sum(manifest["drops"].values()) == int(np.sum(draws - 1))
