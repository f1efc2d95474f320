"""What an installation downloads: the deflated size of the files that the wheel holds."""

import zlib
from collections import Counter
from pathlib import Path

import djepa

PACKAGE = Path(djepa.__file__).parent
MOST = {"weights": 49.0, "suites": 9.0, "code": 2.0}  # MB; docs/folders.md says why not less


def deflated(data: bytes) -> int:
    packer = zlib.compressobj(1, zlib.DEFLATED, -15)  # higher levels gain nothing on weights
    return len(packer.compress(data)) + len(packer.flush())


def test_the_wheel_stays_as_small_as_the_page_says() -> None:
    found = Counter[str]()
    for file in PACKAGE.rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            part = file.relative_to(PACKAGE).parts[0]
            found[part if part in MOST else "code"] += deflated(file.read_bytes())
    sizes = {part: size / 1e6 for part, size in found.items()}
    assert all(sizes[part] < most for part, most in MOST.items()), sizes
