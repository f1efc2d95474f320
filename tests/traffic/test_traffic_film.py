"""Films of driving: every step is drawn, a touch is marked, and scenes are those of the rows."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tools import driving_film
from tools.docs.fill import ROOT
from tools.driving_film import DrivingFilm
from traffic_scenes import WIDE, moving, road, straight

from djepa.errors import DjepaError
from djepa.evaluate.rows import read_rows, write_rows
from djepa.report import driving
from djepa.report.driving import FILM_DPI, film
from djepa.report.page import Page, Section, write_page
from djepa.report.sheet import save_animation
from djepa.report.style import PAGE
from djepa.rollout.driving import PARTS
from djepa.studies.measures.driving_views import from_above
from djepa.studies.pages import _figures
from djepa.worlds.traffic.judge import Judge
from djepa.worlds.traffic.scene import STEPS, Kind

LARGE = ROOT / "docs/results/driving-large"
AVOIDED = 25  # the first scene in which only the native choice collides
pytest.importorskip("matplotlib")


def test_a_film_shows_every_step_and_who_touches(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = road((moving(30.0, WIDE / 2), Kind.VEHICLE))
    poses = np.concatenate([straight(10.0), straight(1.0)])
    judged = Judge(scene)(poses)
    drawn = from_above(scene, poses, {name: getattr(judged, name) for name in PARTS})
    marked, touches = list[bool](), driving._touches

    def kept(*given: Any) -> bool:
        marked.append(touches(*given))
        return marked[-1]

    monkeypatch.setattr(driving, "_touches", kept)
    frames = film(drawn, {"native score": 0, "D-JEPA": 1})
    assert len(frames) == STEPS + 1
    assert {frame.width for frame in frames} == {round(PAGE * FILM_DPI)}
    fast, slow = np.array(marked).reshape(-1, 2).T
    # Its front, 4.05 m before the rear axle, reaches the one ahead, 2 m before 30 m, after 2.4 s.
    assert np.flatnonzero(fast)[0] == 24
    assert not slow.any()
    assert frames[0].tobytes() != frames[-1].tobytes()


def test_scenes_are_made_again_as_the_rows_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = list[tuple[dict[str, Any], dict[str, int]]]()

    def one(scene: dict[str, Any], chosen: dict[str, int]) -> list[Image.Image]:
        shown.append((scene, chosen))
        return [Image.new("RGB", (8, 8))] * 2

    monkeypatch.setattr(driving_film, "film", one)
    assert DrivingFilm(LARGE, (AVOIDED,), tmp_path).run() == [tmp_path / "driving-avoided.gif"]
    ((scene, chosen),) = shown
    native, ours = chosen.values()
    assert "collision" in scene["why"][native]
    assert "collision" not in scene["why"][ours]


def test_other_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DjepaError, match="no driving study"):
        DrivingFilm(tmp_path, (0,), tmp_path).run()
    with pytest.raises(DjepaError, match="no rows of scene 9999"):
        DrivingFilm(LARGE, (9999,), tmp_path).run()
    other = Path(shutil.copytree(LARGE, tmp_path / "other"))
    file = other / "rows/generated.csv.gz"
    write_rows(file, [replace(row, cost=0.25) for row in read_rows(file)])
    with pytest.raises(DjepaError, match="another PDMS"):
        DrivingFilm(other, (1,), tmp_path).run()
    about = json.loads((other / "study.json").read_text())
    (other / "study.json").write_text(json.dumps({**about, "seed": 1, "preset": "quick"}))
    with pytest.raises(DjepaError, match="No log"):
        DrivingFilm(other, (1,), tmp_path).run()


def test_a_page_shows_a_film_in_place_of_a_figure(tmp_path: Path) -> None:
    save_animation(tmp_path / "film-a.gif", [Image.new("RGB", (8, 8))] * 2)
    for kind in ("svg", "csv"):
        (tmp_path / f"still-a.{kind}").write_text("x")
    found = tuple(_figures(tmp_path, [("film-a", "In motion."), ("still-a", "At rest.")]))
    assert [figure.file.name for figure in found] == ["film-a.gif", "still-a.svg"]
    page = write_page(tmp_path / "page.html", Page("", "", sections=(Section("", figures=found),)))
    assert 'src="data:image/gif;base64,' in page.read_text()
