"""Tables of plain text, written as CSV, Markdown and LaTeX."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from djepa.errors import DjepaError
from djepa.evaluate.markdown import escaped, flush_right, markdown
from djepa.files import naming, write_atomically

_LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: "\\" + sign for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "Δ": r"$\Delta$",
    "→": r"$\to$",
    "−": "$-$",
    "–": "--",
}
_POWER = re.compile(r"([+-]?\d+(?:\.\d+)?)e([+-])0*(\d+)")  # such as 7.3e-06
_RANGE = re.compile(r"(?<=\d)-(?=\d)")  # such as 73.9-81.1
_MINUS = re.compile(r"(?<![\w$)}\]-])-(?=\d)")  # such as -8.4


@dataclass(frozen=True)
class Table:
    """Rows of text cells. `name` is used for file names and the LaTeX label.

    A cell of the first column that repeats the one above is omitted, except in the CSV.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", self.name):
            raise DjepaError(
                f"A table's name is lower case letters, digits and -, got '{self.name}'."
            )
        if not self.columns or len(set(self.columns)) < len(self.columns):
            raise DjepaError(f"Table {self.name} needs columns of different names.")
        for row in self.rows:
            if len(row) != len(self.columns):
                raise DjepaError(
                    f"Table {self.name} has {len(self.columns)} columns, but a row of {len(row)}: "
                    f"{row}."
                )
        texts = (self.title, self.note, *self.columns, *(cell for row in self.rows for cell in row))
        if any("\n" in text or "\r" in text for text in texts):
            raise DjepaError(f"Table {self.name} holds a line break.")


def to_csv(table: Table) -> str:
    """Columns and rows, without title and note."""
    return csv_text(table.columns, table.rows)


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Any numbers as CSV; floats with all their digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def to_markdown(table: Table) -> str:
    """Title in bold, the table, the note beneath."""
    title, note = escaped((table.title, table.note))
    body = markdown(table.columns, _printed(table))
    return f"**{title}**\n\n{body}" + (f"\n{note}\n" if note else "")


def to_latex(table: Table) -> str:
    """A float for booktabs, labelled tab:<name>; a rule where the first cell changes."""
    flush = "".join("r" if right else "l" for right in numeric(table))
    lines = [
        r"\begin{table}[t]",
        r"\centering\small",
        rf"\caption{{{latex(table.title)}}}",
        rf"\label{{tab:{table.name}}}",
        rf"\begin{{tabular}}{{{flush}}}",
        r"\toprule",
        _tex(table.columns),
        r"\midrule",
    ]
    printed = _printed(table)
    grouped = printed != table.rows
    for i, row in enumerate(printed):
        if grouped and i and row[0]:
            lines.append(r"\midrule")
        lines.append(_tex(row))
    lines += [r"\bottomrule", r"\end{tabular}"]
    if table.note:
        lines.append(rf"\par\smallskip{{\footnotesize {latex(table.note)}\par}}")
    return "\n".join([*lines, r"\end{table}", ""])


def latex(text: str) -> str:
    """Plain text as LaTeX: escaped, with minus signs, ranges and powers of ten typeset."""
    power = _POWER.fullmatch(text)
    if power:
        base, sign, digits = power.groups()
        return rf"${base}\times 10^{{{'-' if sign == '-' else ''}{digits}}}$"
    escaped = "".join(_LATEX.get(sign, sign) for sign in text)
    return _MINUS.sub("$-$", _RANGE.sub("--", escaped))


def write_table(folder: Path, table: Table) -> list[Path]:
    """Write name.csv, name.md and name.tex into the folder, each atomically."""
    writers = {".csv": to_csv, ".md": to_markdown, ".tex": to_latex}
    paths = []
    for suffix, text in writers.items():
        path = folder / f"{table.name}{suffix}"
        with naming(path):
            folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text(table).encode())
        paths.append(path)
    return paths


def _printed(table: Table) -> tuple[tuple[str, ...], ...]:
    """The rows without first cells that repeat the one above."""
    above = ("", *(row[0] for row in table.rows))
    return tuple(
        ("", *row[1:]) if row[0] == before else row
        for row, before in zip(table.rows, above, strict=False)
    )


def numeric(table: Table) -> list[bool]:
    """Which columns hold numbers and are right-aligned; never the first."""
    return flush_right(table.columns, table.rows)


def _tex(cells: Sequence[str]) -> str:
    return " & ".join(latex(cell) for cell in cells) + r" \\"
