"""A film of episodes: every control is drawn, and it says when each planner solved what."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from test_loop import SHORT, planner
from tools.control_film import ControlFilm

from djepa.control.loop import control
from djepa.control.planners import Planner, PlannerConfig
from djepa.errors import DjepaError
from djepa.report.canvas import FAILURE, SUCCESS
from djepa.report.episodes import Ran, film
from djepa.rollout.engine import LocalEngine


@pytest.fixture
def folders(models: Path, tmp_path: Path) -> tuple[Path, Path]:
    """The same episodes under a search and at random."""
    made = (planner("native-cem", models), Planner(PlannerConfig("random"), "push"))
    found = [control(tmp_path / f"{i}", SHORT, of, LocalEngine(1)) for i, of in enumerate(made)]
    return found[0], found[1]


def test_a_film_of_two_planners(folders: tuple[Path, Path], tmp_path: Path) -> None:
    one, two = (ControlFilm(folders, tmp_path / f"{i}.gif", (0, 2)).run() for i in (1, 2))
    assert one.read_bytes() == two.read_bytes()
    with Image.open(one) as seen:
        assert seen.n_frames == SHORT.budget + 1


def test_marks_come_when_an_episode_is_solved() -> None:
    start = SHORT.starts()
    world, states = start.make_world(), np.zeros((6, 10))
    states[:, :2], states[:, 2:4] = 100.0, 300.0
    frames = film(world, [(states[0], {"a": Ran(states, 5, 3), "b": Ran(states, 5, -1)})], 112)
    assert len(frames) == 6
    edges = [(frame.getpixel((14, 14)), frame.getpixel((146, 14))) for frame in frames]
    assert [a == SUCCESS.colour for a, _ in edges] == [False] * 3 + [True] * 3
    assert [b == FAILURE.colour for _, b in edges] == [False] * 5 + [True]


def test_odd_films_are_refused(folders: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "film.gif"
    for changes, words in (
        ({"episodes": (3,)}, "There are 3 episodes"),
        ({"episodes": ()}, "There are 3 episodes"),
        ({"rule": "strikt"}, "strict"),
        ({"folders": ()}, "of the same episodes"),
        ({"folders": (folders[0], folders[0])}, "of the same planner"),
    ):
        with pytest.raises(DjepaError, match=words):
            replace(ControlFilm(folders, out), **changes).run()
    drawn = Planner(PlannerConfig("random"), "push")
    other = control(tmp_path / "other", replace(SHORT, split="more"), drawn, LocalEngine(1))
    with pytest.raises(DjepaError, match="of the same episodes"):
        ControlFilm((folders[0], other), out).run()
    assert not out.exists()
