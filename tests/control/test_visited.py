"""Pools at visited states: what the planner would search, executed, ready to fit on."""

from pathlib import Path

import numpy as np
import pytest
from test_loop import SHORT, files, planner

from djepa.align.methods import Population
from djepa.control.episodes import Episode, draw_episodes
from djepa.control.loop import control
from djepa.control.results import Episodes
from djepa.control.visited import read_visited, visit
from djepa.errors import DjepaError
from djepa.evidence.evidence import clusters
from djepa.rollout.engine import LocalEngine

BOTH = ("lewm", "tdjepa")


@pytest.fixture
def ran(models: Path, tmp_path: Path) -> Episodes:
    folder = control(tmp_path / "ran", SHORT, planner("aligned", models), LocalEngine(1))
    return Episodes(folder)


def test_visited_states_become_starts(ran: Episodes, models: Path, tmp_path: Path) -> None:
    own = planner("aligned", models)
    folder = visit(tmp_path / "visited", ran, own, LocalEngine(1))
    whole = read_visited(folder, ran, range(3), BOTH)
    assert isinstance(whole, Population)
    decisions = (ran.arrays["executed"] + 4) // 5
    assert len(whole.evidence) == decisions.sum()
    assert whole.evidence.names == BOTH
    assert dict(whole.evidence.weights) == ran.planner["weights"]
    assert len(read_visited(folder, ran, range(1), BOTH).evidence) == decisions[0]
    whole.outcomes.check(whole.evidence)
    of = clusters(whole.evidence.identities)  # the decisions of an episode are one start
    assert of.bincount().tolist() == decisions.tolist()
    before = files(folder)
    visit(folder, ran, own, LocalEngine(1))
    assert files(folder) == before


def test_outcomes_are_those_of_the_visited_state(
    ran: Episodes, models: Path, tmp_path: Path
) -> None:
    """Executed by hand: the second decision of the first episode."""
    own = planner("aligned", models)
    whole = read_visited(visit(tmp_path / "v", ran, own, LocalEngine(1)), ran, range(3), BOTH)
    at = whole.evidence.identities.index(f"{ran.names[0]}@1")
    world = SHORT.starts().make_world()
    episode: Episode = draw_episodes(SHORT, 0)[0]
    episode.execute(world, ran.arrays["controls"][0, :5])
    assert np.array_equal(episode.states[-1], ran.arrays["states"][0, 5])
    from djepa.seeds import seed_for

    seeds = [seed_for("visited", episode.name, 1)]
    ((actions, evidence),) = own.pools(SHORT.scene, [episode.now()], seeds, 20)
    assert actions.shape == (7, 20, 2)
    _, cost = world.judge(episode.start.goal, world.execute(episode.states[-1], actions)[:, -1])
    assert whole.outcomes.cost is not None
    assert np.array_equal(whole.outcomes.cost[at].numpy(), cost)
    assert np.allclose(whole.evidence.cost("lewm")[at].numpy(), evidence["cost of lewm"])


def test_pools_of_other_episodes_are_refused(ran: Episodes, models: Path, tmp_path: Path) -> None:
    from dataclasses import replace

    folder = visit(tmp_path / "v", ran, planner("aligned", models), LocalEngine(1))
    other = replace(SHORT, episodes=1)
    second = Episodes(control(tmp_path / "o", other, planner("aligned", models), LocalEngine(1)))
    with pytest.raises(DjepaError, match="do not belong together"):
        read_visited(folder, second, range(1), BOTH)
