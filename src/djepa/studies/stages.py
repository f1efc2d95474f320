"""A study is a list of stages over one folder; each runs only if what it makes is not there, or is
older than what it is made of.

What a stage makes is written whole or not at all, so a study that was stopped goes on where it was.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from djepa.errors import DjepaError
from djepa.files import to_json, write_atomically

Say = Callable[[str], None]


@dataclass(frozen=True)
class Stage:
    """One step of a study."""

    name: str
    makes: Path  # its last file: once it is there, the stage is done
    run: Callable[[Say], None]
    of: tuple[Path, ...] = ()  # what it is made of: once one of these is newer, it is made anew

    def done(self) -> bool:
        """Whether there is nothing to do."""
        if not self.makes.exists():
            return False
        when = self.makes.stat().st_mtime_ns
        return all(path.stat().st_mtime_ns <= when for path in self.of if path.exists())


def run_stages(stages: Sequence[Stage], say: Say, until: str = "") -> None:
    """Run what is missing, in order; `until` names the last stage to run."""
    names = [stage.name for stage in stages]
    if until and until not in names:
        raise DjepaError(f"There is no stage '{until}'. The stages are: {', '.join(names)}.")
    for number, stage in enumerate(stages, start=1):
        head = f"{number}/{len(stages)} {stage.name}"
        if stage.done():
            say(f"{head}: there already ({stage.makes})")
        else:
            say(f"{head} ...")
            began = time.monotonic()
            stage.makes.parent.mkdir(parents=True, exist_ok=True)
            stage.run(say)
            say(f"{head}: {time.monotonic() - began:.0f} s, {stage.makes}")
        if stage.name == until:
            return


def claim(folder: Path, config: Mapping[str, Any]) -> None:
    """Mark a folder as this study's; one that belongs to another is refused."""
    path, text = folder / "study.json", to_json(dict(config))
    if path.exists() and path.read_text() != text:
        try:
            held = dict(json.loads(path.read_text()))
        except (ValueError, TypeError):
            raise DjepaError(f"{path} is damaged. Choose another --out, or remove it.") from None
        odd = [name for name in config if held.get(name) != json.loads(text)[name]]
        raise DjepaError(
            f"{folder} holds a study with another {', '.join(odd) or 'configuration'}. "
            "Choose another --out, or remove it."
        )
    if not path.exists():  # several processes may run different pools of one study
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
