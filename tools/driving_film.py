"""Films of single driving scenes, from the stored rows of a study: the native choice beside ours.

    python -m tools.driving_film docs/results/driving-large 25 528 --out docs/pictures

Scenes and candidates are made again from the seed. A scene is refused if its log, or the PDMS of a
choice, is not what the rows hold.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import Positional, arg

from djepa.align.registry import label
from djepa.artefacts.records import sha256
from djepa.errors import DjepaError
from djepa.evaluate.rows import Row, read_rows
from djepa.models.traffic_predict import load_scorer
from djepa.pools.driving import propose
from djepa.report.driving import film
from djepa.report.sheet import save_animation
from djepa.rollout.driving import PARTS, TrafficConfig, scenes_in
from djepa.rollout.engine import LocalEngine
from djepa.studies.design import Place
from djepa.studies.measures.driving import NATIVE
from djepa.studies.measures.driving_views import FILMED, RULES, from_above
from djepa.studies.names import get_design
from djepa.worlds.traffic.judge import Judge
from djepa.worlds.traffic.scene import Scene

NEAR = 1e-6  # rows round costs to six places


@dataclass(frozen=True)
class DrivingFilm:
    """Make a GIF of each scene: what the native choice and ours lead to."""

    results: Annotated[Path, Positional, arg(metavar="RESULTS")]
    """Folder of a driving study, or its stored results: study.json and rows."""
    scenes: Annotated[tuple[int, ...], Positional, arg(metavar="SCENE")]
    """Numbers of generated scenes, as its page and its rows count them."""
    out: Path = Path("runs/films")
    """Folder of the films."""

    def run(self) -> list[Path]:
        """Write the films."""
        scorer, made = load_scorer(), []
        for number in self.scenes:
            scene, rows = self._found(number)
            poses = propose(scorer.vocabulary, scene)
            judged = Judge(scene)(poses)
            parts = {name: getattr(judged, name) for name in PARTS}
            for row in rows:
                if abs(1 - parts["pdms"][row.chosen] - row.cost) > NEAR:
                    raise DjepaError(
                        f"Scene {number} is made otherwise here: candidate {row.chosen} has "
                        f"another PDMS than in {self.results}."
                    )
            native, ours = ({name: x[row.chosen] for name, x in parts.items()} for row in rows)
            kinds = [name for name in FILMED if RULES[name][1](ours, native)]
            self.out.mkdir(parents=True, exist_ok=True)
            made.append(self.out / f"driving-{(*kinds, f'scene-{number}')[0]}.gif")
            chosen = {label(row.method): row.chosen for row in rows}
            save_animation(made[-1], film(from_above(scene, poses, parts), chosen))
        return made

    def _found(self, number: int) -> tuple[Scene, list[Row]]:
        """A scene, and the rows of the native choice and of ours."""
        design = get_design("driving")
        try:
            about = json.loads((self.results / "study.json").read_text())
            preset, seed = design.sizes[about["preset"]], about["seed"]
        except (OSError, ValueError, KeyError) as error:
            raise DjepaError(f"{self.results} is no driving study: {error!r}.") from None
        case = design.cases("confirmation", preset, Place(self.results, LocalEngine(1), seed=seed))
        every = read_rows(self.results / "rows" / f"{case[0].name}.csv.gz")
        known: dict[str, dict[int, Row]] = {name: {} for name in (NATIVE, design.ours)}
        for row in every:
            if row.method in known:
                known[row.method][row.start] = row
        if any(number not in of for of in known.values()):
            raise DjepaError(f"{self.results} has no rows of scene {number}.")
        config = case[0].bank
        assert isinstance(config, TrafficConfig)
        names = [known[NATIVE][start].identity for start in range(number + 1)]
        place = names[:-1].count(names[-1])  # position in its log
        for log in range(len(set(names)) - 1, config.logs):  # a log may have no scene
            scenes = scenes_in(config, log)
            if scenes and sha256(scenes[0].log.encode())[:16] == names[-1]:
                return scenes[place], [of[number] for of in known.values()]
        raise DjepaError(f"No log of {self.results} is that of scene {number}.")


def main() -> None:
    """Run and print."""
    films = tyro.cli(DrivingFilm)
    try:
        print(*films.run(), sep="\n")
    except DjepaError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
