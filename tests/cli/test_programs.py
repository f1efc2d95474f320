"""Programs that are modules of their own stand on the page of commands."""

import re
from pathlib import Path

import djepa

PACKAGE = Path(djepa.__file__).parent
PAGE = PACKAGE.parents[1] / "docs" / "cli.md"


def test_every_program_is_on_the_page_and_no_other() -> None:
    files = [f for part in ("models", "studies") for f in (PACKAGE / part).rglob("*.py")]
    programs = {f for f in files if '__name__ == "__main__"' in f.read_text()}
    names = {"djepa." + ".".join(f.relative_to(PACKAGE).with_suffix("").parts) for f in programs}
    listed = re.findall(r"^\| `(djepa\.[\w.]+)[ `]", PAGE.read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(names)
