"""Commands as a user types them, run inside the test's own process: starting one takes seconds."""

import io
import signal
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

import pytest

from djepa.cli.main import main


class Done(NamedTuple):
    """What a command left behind, by the names of `subprocess`."""

    returncode: int
    stdout: str
    stderr: str


def djepa(*arguments: object) -> Done:
    """`djepa ARGUMENTS`: the same parser, the same exits; an exception is a traceback: it fails."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    code = end.value.code
    return Done(code if isinstance(code, int) else 1, out.getvalue(), err.getvalue())


def interruptible() -> None:
    """For `preexec_fn`: SIGINT counts in the child, also where a shell's background ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
