"""Episodes are the same ones always, and what happens in them is the world's own doing."""

import numpy as np
import pytest

from djepa.control.episodes import (
    LETTERS,
    Episode,
    EpisodeConfig,
    draw_episodes,
    frozen_names,
    is_frozen,
    list_hash,
)
from djepa.errors import DjepaError
from djepa.rollout.execute import BlockWork, draw_block


@pytest.mark.parametrize("goal", [25, 50])
def test_the_first_episodes_are_the_frozen_ones(goal: int) -> None:
    config = EpisodeConfig(episodes=2, goal=goal)
    names = [episode.name for episode in draw_episodes(config, 0)]
    assert is_frozen(config, names)
    assert len(frozen_names(config)) >= 512
    assert len(set(frozen_names(config))) == len(frozen_names(config))
    assert not is_frozen(config, names[::-1])
    assert not is_frozen(EpisodeConfig(episodes=2, goal=goal, split="other"), names)


def test_an_episode_does_not_depend_on_its_block() -> None:
    one, two = (EpisodeConfig(episodes=3, block=block, split="other") for block in (1, 3))
    alone = [episode.name for block in range(3) for episode in draw_episodes(one, block)]
    assert alone == [episode.name for episode in draw_episodes(two, 0)]
    assert list_hash(alone) != list_hash(alone[:2])
    assert all(len(name) == 64 and name[:LETTERS] == name[:16] for name in alone)


def test_the_hidden_reference_reaches_the_goal_piece_by_piece() -> None:
    """Executed five controls at a time, each time from the state restored."""
    config = EpisodeConfig(episodes=3, split="other")
    world, drawn = config.starts().make_world(), draw_block(BlockWork(config.starts(), 0))
    for number, entry in enumerate(drawn):
        episode = Episode(number, entry.start, world, config)
        for begin in range(0, 25, 5):
            if not episode.done:
                episode.execute(world, entry.centres[0][begin : begin + 5])
        assert min(episode.cost) < 1
        assert episode.cost[0] >= 1


def test_what_is_known_moves_with_the_episode() -> None:
    config = EpisodeConfig(episodes=1, split="other", budget=15)
    (episode,) = draw_episodes(config, 0)
    world, start = config.starts().make_world(), episode.start
    assert np.array_equal(episode.now().context, start.context)
    assert np.array_equal(episode.now().history, start.history)
    controls = np.random.default_rng(0).uniform(-0.1, 0.1, (10, 2)).astype(np.float32)
    episode.execute(world, controls[:5])
    assert np.array_equal(episode.now().context[:2], start.context[1:])
    assert np.array_equal(episode.now().history, np.concatenate([start.history[5:], controls[:5]]))
    episode.execute(world, controls[5:])
    now = episode.now()
    assert np.array_equal(now.context, np.stack(episode.states)[[0, 5, 10]])
    assert np.array_equal(now.history, controls)
    assert np.array_equal(now.state, episode.states[-1])
    assert np.array_equal(now.goal, start.goal)
    assert not episode.done
    episode.execute(world, controls[:5])
    assert episode.done


def test_an_episode_ends_where_the_strict_rule_holds() -> None:
    config = EpisodeConfig(episodes=1, split="other")
    (entry,) = draw_block(BlockWork(config.starts(), 0))
    world = config.starts().make_world()
    episode = Episode(0, entry.start, world, config)
    episode.execute(world, entry.centres[0])  # in one piece it leads to the goal itself
    assert episode.done
    assert episode.cost[-1] < 0.5
    assert all(cost >= 0.5 for cost in episode.cost[:-1])
    assert len(episode.states) == len(episode.cost) == len(episode.controls) + 1


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"replan": 3}, "multiple of 5"),
        ({"budget": 52}, "multiple of replan"),
        ({"budget": -5}, "budget"),
        ({"episodes": 0}, "episodes"),
        ({"goal": 7}, "multiple of 5"),
        ({"shape": "Q"}, "Unknown shape"),
        ({"world": "pusch"}, "Did you mean 'push'"),
    ],
)
def test_odd_episodes_are_refused(wrong: dict, words: str) -> None:
    with pytest.raises(DjepaError, match=words):
        EpisodeConfig(**wrong)


def test_other_worlds_have_their_own_numbers() -> None:
    config = EpisodeConfig("granular")
    assert (config.goal, config.budget, config.replan) == (5, 10, 1)
    assert config.thresholds["strict"] == pytest.approx(2 / 3)
