"""The exception for errors that a user can correct; it says what is wrong and what to do."""

import difflib
from collections.abc import Collection, Iterable


class DjepaError(ValueError):
    """Bad input or a damaged file. The command line prints the message without a traceback."""


class MissingExtraError(DjepaError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(
            f"{what} needs the extra '{extra}': pip install 'djepa[{extra}]', or in a clone "
            f"pip install -c constraints.txt -e '.[{extra}]'"
        )


def unknown_name(kind: str, name: str, known: Iterable[str]) -> DjepaError:
    """An error for a misspelt name that suggests the nearest known one."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    return DjepaError(f"Unknown {kind} '{name}'.{hint} Known: {', '.join(known)}.")


def check_name(kind: str, name: str, known: Collection[str]) -> None:
    """Raise `unknown_name` unless the name is a known one."""
    if name not in known:
        raise unknown_name(kind, name, known)
