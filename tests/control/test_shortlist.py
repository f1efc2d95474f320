"""A shortlist: the other models see only the cheapest of the final population."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from control_kit import fit_alignment
from test_loop import SHORT, files, planner

from djepa.align.store import load_alignment
from djepa.control.episodes import draw_episodes
from djepa.control.loop import Work, control, run_block
from djepa.control.parts import Sight
from djepa.errors import DjepaError
from djepa.evidence.logs import LogMixture
from djepa.models.lewm import LeWM
from djepa.models.weights import weights_hash
from djepa.rollout.engine import LocalEngine

FEW = 3
LIMIT = 43


def test_the_whole_population_is_what_was_chosen_from_before(models: Path) -> None:
    """A shortlist that leaves nothing out; without one not even the settings differ."""
    every, none = planner("aligned", models, shortlist=7), planner("aligned", models)
    assert "shortlist" not in none.settings
    assert every.settings == none.settings | {"shortlist": 7}
    a, b = (run_block(Work(SHORT, own, 0)) for own in (every, none))
    assert a[0] == b[0]
    for key, array in a[1].items():
        assert np.array_equal(array, b[1][key]), key


def test_what_is_saved_goes_into_the_search(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """43 evaluations: 3 of lewm leave five populations of 8; 7 of lewm leave four."""
    rolled = {"lewm": 0, "tdjepa": 0}
    own, few = (planner("aligned", models, shortlist=n, evaluations=LIMIT) for n in (0, FEW))
    assert own.evaluations() == {"lewm": 7, "tdjepa": 32}
    assert few.evaluations() == {"lewm": FEW, "tdjepa": 40}
    real = LeWM.rollout

    def counting(self: LeWM, context: Any, history: Any, candidates: Any) -> Any:
        rolled[self.name] += candidates.shape[0] * candidates.shape[1]
        return real(self, context, history, candidates)

    monkeypatch.setattr(LeWM, "rollout", counting)
    _, arrays = run_block(Work(SHORT, few, 0))
    counted = dict(zip(few.names, arrays["evaluations"].sum(0).tolist(), strict=True))
    assert counted == rolled
    decisions = (arrays["executed"] + 4) // 5
    assert (arrays["evaluations"].sum(1) <= LIMIT * decisions).all()


def test_the_choice_is_the_best_of_the_cheapest(models: Path) -> None:
    """By the mixture of all models; which others were left out does not matter to it."""
    own = planner("aligned", models, shortlist=FEW)
    whole = planner("aligned", models)
    now = [draw_episodes(SHORT, 0)[0].now()]
    ((actions, known),) = whole.pools(SHORT.scene, now, [5], 25)
    cost = known["cost of tdjepa"]
    kept = np.sort(np.lexsort((known["ids"], cost))[:FEW])
    sight = Sight(whole.parts, SHORT.scene, now)
    score = sight.decide(actions[None].copy(), known["ids"][None].copy()).base[0].numpy()
    best = known["ids"][kept[np.argmin(score[kept])]]
    (decision,) = own.decide(SHORT.scene, now, [5], [None], 25)
    assert decision.candidate == best
    ((_, few),) = own.pools(SHORT.scene, now, [5], 25)
    assert np.array_equal(few["ids"], known["ids"][kept])


def test_neither_batch_nor_workers_change_a_byte(models: Path, tmp_path: Path) -> None:
    own = planner("aligned", models, shortlist=FEW)
    together = run_block(Work(replace(SHORT, block=3), own, 0))[1]
    alone = [run_block(Work(replace(SHORT, block=1), own, block))[1] for block in range(3)]
    for key, array in together.items():
        assert np.array_equal(array, np.concatenate([of[key] for of in alone])), key
    for workers in (1, 2):
        control(tmp_path / f"{workers}", SHORT, own, LocalEngine(workers))
    assert files(tmp_path / "1") == files(tmp_path / "2")


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("native-cem", {"shortlist": 3}, "of the planner aligned, not of native-cem"),
        ("aligned-cem", {"shortlist": 3}, "not of aligned-cem"),
        ("aligned", {"shortlist": 1}, "shortlist must be at least 2"),
        ("aligned", {"shortlist": -1}, "shortlist must be at least 2"),
        ("aligned", {"shortlist": 8}, "at most 7 candidates"),
    ],
)
def test_odd_shortlists_are_refused(
    kind: str, changes: dict[str, int], words: str, models: Path
) -> None:
    with pytest.raises(DjepaError, match=words):
        planner(kind, models, **changes)


@pytest.mark.parametrize("depends", ["ranks", "density", "operator"])
def test_an_alignment_that_depends_on_the_pool_is_refused(
    depends: str, models: Path, tmp_path: Path
) -> None:
    hashes = {name: weights_hash(models / f"tiny-{name}") for name in ("lewm", "tdjepa")}
    found = load_alignment(fit_alignment(hashes, tmp_path / "plain"))
    assert found.report is not None
    assert found.gate is not None
    mixture = found.report.fusion
    assert isinstance(mixture, LogMixture)
    if depends == "operator":
        found.config = replace(found.config, updates=1)
        found.gate = replace(found.gate, threshold=0.0)
    elif depends == "ranks":
        twice = replace(mixture, ranked=True, weights=(*mixture.weights, *mixture.weights))
        found.report = found.report._replace(fusion=twice)
    else:
        more = replace(mixture, density=("lewm",), weights=(*mixture.weights, 0.5))
        found.report = found.report._replace(fusion=more)
        found.config = replace(found.config, density=("lewm",))
    found.save(tmp_path / "odd")
    with pytest.raises(DjepaError, match="A shortlist needs an alignment that mixes log costs"):
        planner("aligned", models, alignment=str(tmp_path / "odd"), shortlist=FEW)
    planner("aligned", models, alignment=str(tmp_path / "odd"))
