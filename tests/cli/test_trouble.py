"""Whatever the system does, a command ends in one line that says what to do."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from commands import interruptible
from djepa.cli.main import main

COMMAND = [sys.executable, "-m", "djepa"]


def djepa(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    line = [*COMMAND, *words]
    given = {**os.environ, "COLUMNS": "100", **env}
    return subprocess.run(line, capture_output=True, text=True, env=given, timeout=60)


OneLine = Callable[..., None]


@pytest.fixture
def one_line(capsys: pytest.CaptureFixture[str]) -> OneLine:
    """Run a command here: it fails with one line that holds certain words."""

    def run(words: Sequence[str], *expected: str) -> None:
        with pytest.raises(SystemExit) as end:
            main(words)
        assert end.value.code == 1
        printed = capsys.readouterr().err
        assert printed.startswith("error: ")
        assert printed.count("\n") == 1, printed
        assert all(word in printed for word in expected), printed

    return run


def test_in_a_terminal_of_no_width_errors_are_seen_and_help_ends() -> None:
    assert "Unknown command 'fitt'" in djepa("fitt", COLUMNS="0").stderr
    assert djepa("fit", "--help", COLUMNS="1").returncode == 0


def test_a_terminal_without_utf8_is_no_obstacle() -> None:
    done = djepa("collect", "--help", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0, done.stderr
    assert "--starts" in done.stdout


@pytest.mark.parametrize(
    ("target", "status"), [("| head -1", "0"), (">&-", "0"), ("> /dev/full", "1")]
)
def test_nobody_listens(target: str, status: str) -> None:
    shell = f'{" ".join(COMMAND)} --help {target}; echo "${{PIPESTATUS[0]}}" >&2'
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=60)
    lines = done.stderr.splitlines()
    assert lines[-1] == status
    full = ["error: The output could not be written: No space left on device. The work was done."]
    assert lines[:-1] == (full if status == "1" else [])


@pytest.mark.parametrize("device", ["cuda", "cuda:99", "abacus", "meta"])
def test_a_device_that_is_not_there_is_named_at_once(device: str, one_line: OneLine) -> None:
    import torch

    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is one")
    one_line(["predict", "nowhere", "--device", device], device, "--device cpu")


def test_places_that_cannot_be_written_are_named(tmp_path: Path, one_line: OneLine) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "at" / "all")
    small = ("collect", "--starts", "2", "--workers", "1", "--out")
    one_line([*small, str(tmp_path / "file")], "file", "Choose another place")
    one_line([*small, str(tmp_path / "link")], "link")
    one_line([*small, str(tmp_path / ("x" * 300))], "too long")
    one_line(["simulate", "--out", str(tmp_path / "file" / "x")], "Not a directory")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("simulate", "--episodes", "0"), "one episode or more"),
        (("simulate", "--workers", "-1"), "0 (every core) or more"),
        (("audit", "x.json", "--alignment", "a"), "a decision record takes no --alignment"),
        (("audit", "x.npz", "--decisions", "d.json"), "arrays takes no --decisions"),
        (("audit", "bank", "--decisions", "d", "--alignment", "a"), "--decisions or --alignment"),
        (("weights", "lewn"), "Did you mean 'lewm'"),
    ],
)
def test_wrong_words_are_explained(
    words: tuple[str, ...], complaint: str, one_line: OneLine
) -> None:
    one_line(words, complaint)


def test_an_interrupted_command_says_what_is_kept(tmp_path: Path) -> None:
    line = [*COMMAND, "collect", "--starts", "4000", "--workers", "1", "--out", str(tmp_path / "b")]
    process = subprocess.Popen(
        line,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=interruptible,
    )
    while not (tmp_path / "b" / "begun.json").exists():
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate()
    assert process.returncode == 130
    assert complaint.startswith("interrupted: what was finished is on disk")
