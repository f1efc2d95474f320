"""Tables of text as Markdown; columns that hold numbers are set flush right."""

import re
from collections.abc import Iterable, Sequence

_NUMBER = re.compile(r"(< )?[<+\-−]?\d")
_SIGN = re.compile(r"([\\|*`]|(?<!\w)_|_(?!\w)|<(?=[A-Za-z/!?]))")  # else not shown as it is
NOTHING = ("", "-")


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows of text under their columns."""
    rows = list(rows)
    rule = ["--:" if right else "---" for right in flush_right(columns, rows)]
    lines = [escaped(columns), rule, *map(escaped, rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def flush_right(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[bool]:
    """Which columns hold numbers: never the first, nor one without a name."""
    cells = [[row[i] for row in rows if row[i] not in NOTHING] for i in range(len(columns))]
    return [
        i > 0 and bool(name and of) and all(map(_NUMBER.match, of))
        for i, (name, of) in enumerate(zip(columns, cells, strict=True))
    ]


def escaped(cells: Iterable[str]) -> list[str]:
    """Texts that Markdown shows as they are."""
    return [_SIGN.sub(r"\\\1", cell) for cell in cells]
