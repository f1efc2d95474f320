"""When choices succeed, and what they look like. The pictures illustrate; nothing is counted there.

Legend: N starts, K candidates.
"""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from djepa.align.registry import label, ordered, slug
from djepa.artefacts.records import read_bytes
from djepa.bank.bimanual import BimanualBank
from djepa.errors import DjepaError
from djepa.files import write_atomically
from djepa.report.canvas import save_sheet
from djepa.report.tables import Table
from djepa.rollout.bimanual import world_of
from djepa.studies.design import Case, Measure
from djepa.studies.results import Results
from djepa.studies.stages import Say
from djepa.studies.study import Study

NATIVE = "native policy"
MOMENTS = (0, 8, 14, 20, 26, 32, 40)  # commands after which a film strip shows the scene
HEIGHT, WIDTH = 150, 200  # pixels of a picture
CROP = (25, 40, 180, 240)  # of the head view at 240 x 320: upper row, left column, height, width


def _bank(study: Study, case: Case) -> BimanualBank:
    return BimanualBank(study.out / "banks" / case.folder)


def _chosen(study: Study, case: Case) -> dict[str, list[int]]:
    """Method -> chosen IDs, start by start."""
    found: dict[str, dict[int, int]] = {}
    for row in study.rows(case.name):
        found.setdefault(row.method, {})[row.start] = row.chosen
    return {method: [of[start] for start in sorted(of)] for method, of in found.items()}


def _lengths(study: Study, case: Case, say: Say) -> dict[str, Any]:
    """Executed length and first success of what every method chose."""
    outcome, found = _bank(study, case).outcome, {}
    for method, ids in _chosen(study, case).items():
        rows = np.arange(len(ids))
        first, length = (outcome[name][rows, ids] for name in ("first", "length"))
        solved = first[first > 0]
        found[method] = {
            "length": round(float(length.mean()), 3),
            "first": float(np.median(solved)) if len(solved) else None,
            "native": int((np.array(ids) == 0).sum()),
            "starts": len(ids),
        }
    return found


def _length_tables(results: Results) -> Iterator[Table]:
    for case, of in results.measured("lengths").items():
        lines = []
        for method in ordered(of):
            one = of[method]
            first = "never" if one["first"] is None else f"{one['first']:.0f}"
            kept = f"{one['native']} of {one['starts']}"
            lines.append((label(method), f"{one['length']:.1f}", first, kept))
        columns = ("method", "commands executed", "first success", "native chunk kept")
        note = "An episode ends with the first success or after 40 commands of 0.2 s."
        yield Table(
            f"lengths-{slug(case)}", f"Length of episodes, {case}", columns, tuple(lines), note
        )


LENGTHS = Measure(
    name="lengths",
    title="How long it takes",
    text=("Mean number of commands, median command of the first success among solved starts.",),
    run=_lengths,
    tables=_length_tables,
)


def _views(study: Study, case: Case, say: Say) -> dict[str, Any]:
    """The first start at which only our choice succeeds: both films, from above and in front."""
    bank, chosen = _bank(study, case), _chosen(study, case)
    success, ours = bank.outcome["success"], study.design.ours
    pairs = list(zip(chosen[NATIVE], chosen[ours], strict=True))
    rows = [i for i, (a, b) in enumerate(pairs) if not success[i, a] and success[i, b]]
    if not rows:
        return {}
    row = rows[0]
    try:
        sheet = film(bank, row, pairs[row])
    except DjepaError as error:  # no OpenGL here: everything else is there
        say(f"  no pictures: {error}")
        return {}
    file = study.measured("views", case.name).with_suffix(".png")
    file.parent.mkdir(parents=True, exist_ok=True)
    save_sheet(file, Image.fromarray(sheet))
    return {"start": row, "chosen": dict(zip((NATIVE, ours), pairs[row], strict=True))}


def film(bank: BimanualBank, row: int, picks: tuple[int, int]) -> Any:
    """Two rows a candidate: enlarged crop of the head view, and the front view."""
    world, known = world_of(bank.config.task), bank.known
    commands = known.commands[row, list(picks)].astype(np.float64)
    strips = []
    for path in world.execute(known.state[row], commands)[:, list(MOMENTS)]:
        top, left, height, width = CROP
        head = world.view(path, "head")[:, top : top + height, left : left + width]
        front = world.view(path, "front")
        for frames in (head, front):
            images = [np.asarray(Image.fromarray(one).resize((WIDTH, HEIGHT))) for one in frames]
            framed = [np.pad(one, ((0, 4), (0, 4), (0, 0)), constant_values=255) for one in images]
            strips.append(np.concatenate(framed, 1))
    return np.concatenate(strips)


def _figures(results: Results, folder: Path) -> Iterator[tuple[str, str]]:
    for case, stored in results.measured("views").items():
        source = results.folder / "measures" / "views" / f"{case}.png"
        if not stored or not source.exists():
            continue
        stem = f"film-{slug(case)}"
        embed(folder / stem, source)
        picks = " and ".join(f"{label(name)} chose {of}" for name, of in stored["chosen"].items())
        yield (
            stem,
            f"{case}, start {stored['start']}, the first at which only our choice succeeds. Above "
            "the native chunk, below our choice; each from above (the same crop) and in front, "
            f"after {', '.join(map(str, MOMENTS))} commands. {picks}.",
        )


def embed(stem: Path, source: Path) -> None:
    """A picture inside an SVG, as pages show figures; a CSV says which commands it shows."""
    data, (width, height) = base64.b64encode(read_bytes(source)).decode(), Image.open(source).size
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">'
        f'<image width="{width}" height="{height}" href="data:image/png;base64,{data}"/></svg>'
    )
    write_atomically(stem.with_suffix(".svg"), svg.encode())
    lines = "".join(f"{i},{at}\n" for i, at in enumerate(MOMENTS))
    write_atomically(stem.with_suffix(".csv"), f"column,commands\n{lines}".encode())


VIEWS = Measure(
    name="views",
    title="What the choices look like",
    text=("Both choices are executed again from the same snapshot.",),
    run=_views,
    figures=_figures,
)
