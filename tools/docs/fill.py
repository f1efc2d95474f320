"""Fill the marked parts of a page.

    <!--= success("pusht-large", "decoy", "D-JEPA") -->84.8 %<!--/-->

The marker holds a call of a function of values.py, measured.py, scale.py or interop.py, followed by
what it returns. A marker that ends its line makes a block of whole lines. No other one begins a
line: in Markdown such a comment ends the paragraph, and the rest of its line is shown as written.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from tools.docs import interop, measured, scale, values

ROOT = Path(__file__).parents[2]
MARK = re.compile(r"<!--= (.*?) -->(.*?)<!--/-->", re.DOTALL)
AT_START = re.compile(
    r"(?<=[^\n])(?: ([A-Za-z]+))?\n( *)(?=<!--= (?:(?!-->).)*-->[^\n])", re.DOTALL
)


def pages() -> list[Path]:
    """README, changelog and every page of docs."""
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def functions() -> dict[str, Callable[..., str]]:
    """What a marker may call: the public functions of these files."""
    return {
        name: function
        for module in (values, measured, scale, interop)
        for name, function in vars(module).items()
        if getattr(function, "__module__", "") == module.__name__ and not name.startswith("_")
    }


def filled(text: str) -> str:
    """The text with every marked part made anew."""

    def made(match: re.Match[str]) -> str:
        call, old = match.groups()
        try:
            new = str(eval(" ".join(call.split()), functions()))
        except Exception as error:
            raise ValueError(f"<!--= {call} -->: {error}") from error
        new = f"\n{new.strip()}\n" if old.startswith("\n") else new
        return f"<!--= {call} -->{new}<!--/-->"

    def after_a_word(match: re.Match[str]) -> str:
        word, indent = match.groups()
        return f"\n{indent}{word} " if word else " "

    return MARK.sub(made, AT_START.sub(after_a_word, text))


def changed() -> Iterator[tuple[Path, str]]:
    """Pages that are not what they should be, and what they should be."""
    for page in pages():
        text = page.read_text()
        if (new := filled(text)) != text:
            yield page, new
