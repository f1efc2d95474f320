"""Time of success of choices, and pictures of them. Pictures illustrate and are not counted."""

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from djepa.align.registry import label, ordered, slug
from djepa.artefacts.folder import load_arrays
from djepa.artefacts.records import read_bytes
from djepa.bank.bimanual import BimanualBank
from djepa.errors import DjepaError
from djepa.files import write_atomically
from djepa.report.tables import Table
from djepa.studies.design import Case, Measure
from djepa.studies.measures.bimanual_views import (
    executed,
    film,
    grasp,
    overhead,
    png_bytes,
    sequence,
)
from djepa.studies.results import Results
from djepa.studies.stages import Say
from djepa.studies.study import Study

NATIVE = "native policy"


def _bank(study: Study, case: Case) -> BimanualBank:
    return BimanualBank(study.out / "banks" / case.folder)


def _chosen(study: Study, case: Case) -> dict[str, list[int]]:
    """Method -> chosen IDs, start by start."""
    found: dict[str, dict[int, int]] = {}
    for row in study.rows(case.name):
        found.setdefault(row.method, {})[row.start] = row.chosen
    return {method: [of[start] for start in sorted(of)] for method, of in found.items()}


def _lengths(study: Study, case: Case, say: Say) -> dict[str, Any]:
    """Executed length and first success of every method's choices."""
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
        note = "An episode ends with the first success or after its last command; each takes 0.2 s."
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
    """The first start at which only our choice succeeds, as pictures and a film."""
    bank, chosen = _bank(study, case), _chosen(study, case)
    success, ours = bank.outcome["success"], study.design.ours
    pairs = list(zip(chosen[NATIVE], chosen[ours], strict=True))
    rows = [i for i, (a, b) in enumerate(pairs) if not success[i, a] and success[i, b]]
    if not rows:
        return {}
    row, picks = rows[0], dict(zip((NATIVE, ours), pairs[rows[0]], strict=True))
    try:
        choices = executed(bank, row, picks)
        drawn = {name: png_bytes(draw(bank, choices)) for name, draw in PICTURES.items()}
        drawn[FILM] = film(bank, choices)
    except DjepaError as error:  # without OpenGL only pictures are missing
        say(f"  no pictures: {error}")
        return {}
    shown = {name: np.frombuffer(data, np.uint8) for name, data in drawn.items()}
    study.keep_arrays("views", case.name, shown)
    stops = {one.name: one.said for one in choices}
    return {"start": row, "chosen": picks, "ended": stops}


PICTURES = {"grasp": grasp, "sequence": sequence, "overhead": overhead}
FILM = "film"
CAPTIONS = {
    "grasp": "Aligned grasp: both choices when the grasps should hold, obliquely.",
    "sequence": "Oblique sequence: both choices, each up to its own stop.",
    "overhead": "Both ends from above, in the same enlarged crop.",
    FILM: "Both choices as a film.",
}


def _figures(results: Results, folder: Path) -> Iterator[tuple[str, str]]:
    for case, stored in results.measured("views").items():
        source = results.folder / "measures" / "views" / f"{case}.safetensors"
        if not stored or not source.exists():
            continue
        drawn = load_arrays(source, read_bytes(source))
        for name, caption in CAPTIONS.items():
            stem = f"{name}-{slug(case)}"
            data = drawn[name].tobytes()
            if name == FILM:
                write_atomically(folder / f"{stem}.gif", data)
            else:
                embed(folder / stem, data, stored)
            start = f"{case}, start {stored['start']}, the first at which only our choice succeeds."
            yield stem, f"{start} {caption}"


def embed(stem: Path, data: bytes, stored: dict[str, Any]) -> None:
    """Write a PNG, the same inside an SVG for pages, and a CSV that describes it."""
    width, height = Image.open(io.BytesIO(data)).size
    text = base64.b64encode(data).decode()
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">'
        f'<image width="{width}" height="{height}" href="data:image/png;base64,{text}"/></svg>'
    )
    write_atomically(stem.with_suffix(".svg"), svg.encode())
    write_atomically(stem.with_suffix(".png"), data)
    lines = "".join(
        f'{label(name)},{candidate},"{stored["ended"][name]}"\n'
        for name, candidate in stored["chosen"].items()
    )
    write_atomically(stem.with_suffix(".csv"), f"choice,candidate,ended\n{lines}".encode())


VIEWS = Measure(
    name="views",
    title="What the choices look like",
    text=(
        "Both choices are executed again from the same snapshot. A sequence stops with its first "
        "success, or after its last command; nothing is shown of what would follow.",
    ),
    run=_views,
    figures=_figures,
)
