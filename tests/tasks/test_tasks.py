"""The table of worlds: each record keeps what collecting, predicting and training take from it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from cameras import needs_camera
from djepa.bank.check import check_bank
from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.rollout.engine import LocalEngine
from djepa.rollout.execute import CollectConfig
from djepa.seeds import generator
from djepa.tasks.granular import TURNS
from djepa.tasks.task import PLAIN, TASKS, Scene, get_task
from djepa.worlds.behaviours import drive
from djepa.worlds.granular import VIEW, GranularWorld, as_state
from djepa.worlds.looks import LOOKS as PUSH_LOOKS
from djepa.worlds.protocol import World

LOOKS = [(name, look) for name in TASKS for look in get_task(name).looks]
SIDE = 64
FELT = {"arm": 7}  # numbers of what is felt, where they are not four


def world_of(name: str) -> World:
    """Made as a worker makes it, where its engine is installed."""
    for engine in ("mujoco", "dm_control", "ogbench"):
        if engine in get_task(name).engines:
            pytest.importorskip(engine)
    if name == "arm":
        needs_camera()
    task = get_task(name)
    world: World = task.make(task.shapes[0], task.rules[0])
    return world


def states_of(name: str, controls: int = 3) -> Tensor:
    """(controls + 1, S) states of an episode as training sees them."""
    task, world, rng = get_task(name), world_of(name), generator("test-tasks", name)
    world.restore(task.initial_state(world, rng))
    return torch.from_numpy(drive(world, task.explorer(world, rng), controls)[0])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", TASKS)
def test_a_record_says_what_its_world_is(name: str) -> None:
    world_of(name)
    task = get_task(name)
    assert task.name == name
    assert task.horizon % task.stride == 0
    assert PLAIN in task.looks
    assert "replay" in task.drops
    for names in (task.shapes, task.rules, task.profiles, task.looks, task.drops):
        assert len(set(names)) == len(names) > 0
    variants = set()
    for shape in task.shapes:
        for rule in task.rules:
            world = task.make(shape, rule)
            assert isinstance(world, World)
            assert (world.name, world.version, world.rule) == (task.name, task.version, rule)
            assert world.action_size == task.actions
        variants.add(world.variant)
    assert len(variants) == len(task.shapes)


@pytest.mark.parametrize("name", TASKS)
def test_hands_answer_controls_of_the_world(name: str) -> None:
    task, world = get_task(name), world_of(name)
    for maker in (*task.behaviours.values(), task.explorer):
        paths = []
        for _ in range(2):
            rng = generator("test-hands", name)
            start = task.initial_state(world, rng)
            assert start.shape == (world.state_size,)
            world.restore(start)
            states, controls = drive(world, maker(world, rng), 4)  # type: ignore[arg-type]
            assert controls.shape == (4, task.actions)
            paths.append(states)
        assert np.array_equal(paths[0], paths[1])  # the generator fixes everything


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("pusht", "Unknown world 'pusht'. Did you mean 'push'?"),
        ("granula", "Did you mean 'granular'?"),
        ("nowhere.at_all:TASK", "There is no module 'nowhere.at_all'"),
        ("djepa.tasks.pull:TASK", "There is no module 'djepa.tasks.pull'"),
        ("djepa.tasks.push:TASC", "The module 'djepa.tasks.push' has no 'TASC'"),
        ("djepa.tasks.push:LOOKS", "djepa.tasks.push:LOOKS is a tuple, not a Task"),
    ],
)
def test_a_world_that_is_not_there_is_named(name: str, complaint: str) -> None:
    with pytest.raises(DjepaError) as caught:
        get_task(name)
    assert complaint in str(caught.value)
    with pytest.raises(DjepaError):
        CollectConfig(world=name)


def test_a_module_of_ones_own_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "their_world.py").write_text("from djepa.tasks.push import TASK as MINE\n")
    assert get_task("their_world:MINE") is get_task("push")
    (tmp_path / "wanting_world.py").write_text("import a_package_they_lack\n")
    with pytest.raises(ModuleNotFoundError, match="a_package_they_lack"):  # no world of that name
        get_task("wanting_world:TASK")


@pytest.mark.parametrize("name", TASKS)
def test_what_is_left_empty_is_the_worlds_own(name: str) -> None:
    world_of(name)
    task, config = get_task(name), CollectConfig(world=name)
    own = (task.shapes[0], task.rules[0], task.profiles[0], task.horizon)
    assert (config.shape, config.rule, config.profile, config.horizon) == own
    longer = CollectConfig(world=name, shape=task.shapes[-1], horizon=2 * task.horizon)
    assert (longer.shape, longer.horizon) == (task.shapes[-1], 2 * task.horizon)
    if task.stride > 1:
        with pytest.raises(DjepaError, match=f"a multiple of {task.stride} controls"):
            CollectConfig(world=name, horizon=task.horizon + 1)
    with pytest.raises(DjepaError, match="Unknown shape"):
        CollectConfig(world=name, shape="pyramid")
    with pytest.raises(DjepaError, match="Unknown behaviour"):
        CollectConfig(world=name, behaviour="idle")


def test_the_push_world_is_what_is_collected_unless_another_is_named(small_bank: Bank) -> None:
    written = json.loads((small_bank.path / "manifest.json").read_text())["about"]["config"]
    assert written == {
        "world": "push",
        "shape": "T",
        "rule": "push.v1",
        "behaviour": "mixed",
        "profile": "reference-control",
        "split": "fit",
        "starts": 10,
        "seed": 0,
        "horizon": 25,
        "block": 4,
        "candidates": 64,
        "centres": 4,
        "shuffles": 3,
    }
    named = CollectConfig("push", "T", "push.v1", profile="reference-control", starts=10, block=4)
    assert named == small_bank.config
    assert small_bank.scene() == Scene()


@pytest.mark.parametrize("name", TASKS)
def test_a_small_bank_has_the_shapes_of_its_world(name: str, tmp_path: Path) -> None:
    world, task = world_of(name), get_task(name)
    bank = collect(tmp_path / name, CollectConfig(world=name, starts=2, block=1), LocalEngine(1))
    S, A, K, H = world.state_size, task.actions, bank.candidates, task.horizon
    known, seen = bank.decisions, bank.outcomes
    assert K == 63
    assert known.context.shape == (2, 3, S)
    assert known.history.shape == (2, 2 * task.stride, A)
    assert known.actions.shape == (2, K, H, A)
    assert seen.states.shape == (2, K, H // task.stride, S)
    assert np.array_equal(known.context[:, -1], known.state)
    assert set(bank.manifest["drops"]) == set(task.drops)
    assert set(bank.provenance.behaviour) <= set(task.behaviours)
    assert len(list(check_bank(bank.path, sample=5))) == 7
    for look in task.looks:
        assert bank.scene(look) == Scene(name, task.shapes[0], look)
    with pytest.raises(DjepaError, match="Unknown look 'foggy'"):
        bank.scene("foggy")
    frames, felt = bank.scene().observe(torch.from_numpy(known.context), SIDE)
    assert np.array_equal(frames[1, -1].numpy(), world.render(known.state[1], SIDE))
    assert felt.shape == (2, 3, FELT.get(name, 4))


@pytest.mark.parametrize(("name", "look"), LOOKS)
def test_every_look_is_frames_and_what_is_felt(name: str, look: str) -> None:
    states = states_of(name)[None].expand(2, -1, -1)
    scene = Scene(name, get_task(name).shapes[0], look)
    frames, felt = scene.observe(states, SIDE)
    assert (frames.dtype, tuple(frames.shape)) == (torch.uint8, (2, 4, SIDE, SIDE, 3))
    assert (felt.dtype, tuple(felt.shape)) == (torch.float32, (2, 4, FELT.get(name, 4)))
    assert felt.isfinite().all()
    for i in range(4):  # neither the batch nor its shape changes a bit
        alone = scene.observe(states[0, i], SIDE)
        assert torch.equal(alone[0], frames[1, i])
        assert torch.equal(alone[1], felt[1, i])
    assert (frames[0, 0] != frames[0, -1]).any()


@pytest.mark.parametrize("name", TASKS)
def test_looks_differ_and_only_turned_ones_touch_the_controls(name: str) -> None:
    task, states = get_task(name), states_of(name)
    scenes = [Scene(name, task.shapes[0], look) for look in task.looks]
    seen = {scene.observe(states, SIDE)[0].numpy().tobytes() for scene in scenes}
    assert len(seen) == len(scenes)
    controls = torch.from_numpy(generator("test-controls").uniform(-1, 1, (2, 5, task.actions)))
    for scene in scenes:
        told = scene.controls(controls)
        assert told.shape == controls.shape
        assert torch.equal(told, controls) == (not scene.look.startswith("turned"))


def test_the_looks_of_the_push_world_are_its_conditions() -> None:
    assert get_task("push").looks == PUSH_LOOKS


# The granular table seen from its sides.


def turned(points: np.ndarray, quarters: int) -> np.ndarray:
    """(..., 2) turned so that what lies right comes to lie below: clockwise, as y points down."""
    angle = quarters * np.pi / 2
    turn = np.round([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return np.asarray(points @ turn.T)


def turned_state(state: np.ndarray, quarters: int) -> np.ndarray:
    """(4 n,) places and velocities alike."""
    return turned(state.reshape(-1, 2), quarters).ravel()


def grains(count: int = 100, seed: int = 0) -> np.ndarray:
    """(4 n,) a state at rest that looks different from every side."""
    rng = generator("test-grains", seed)
    return as_state(rng.uniform(-0.9 * VIEW, 0.9 * VIEW, (count, 2)) * [1.0, 0.6])


@pytest.mark.parametrize(("look", "quarters"), TURNS.items())
def test_a_turned_look_is_the_turned_table(look: str, quarters: int) -> None:
    state = grains()
    scene, plain = Scene("granular", "grains-100", look), Scene("granular", "grains-100")
    frame = scene.observe(torch.from_numpy(state), SIDE)[0].numpy()
    other = plain.observe(torch.from_numpy(turned_state(state, quarters)), SIDE)[0].numpy()
    assert np.array_equal(frame, other)  # the table itself turned
    seen = plain.observe(torch.from_numpy(state), SIDE)[0].numpy()
    picture = np.rot90(seen, -quarters).astype(int)  # clockwise
    # Half a pixel of rounding at the edge of a grain is a level or two, not another picture.
    assert np.abs(frame.astype(int) - picture).max() <= 2
    if quarters:
        assert np.abs(seen.astype(int) - picture).max() > 100


@pytest.mark.parametrize(("look", "quarters"), TURNS.items())
def test_a_turned_push_does_the_same_on_the_turned_table(look: str, quarters: int) -> None:
    world, scene = GranularWorld(100), Scene("granular", "grains-100", look)
    rest = as_state(np.stack(np.meshgrid(np.arange(10.0), np.arange(10.0)), -1).reshape(-1, 2) / 2)
    rest[:200] -= np.tile([2.25, 1.8], 100)  # far apart: a push moves few, one after the other
    push = np.array([-2.4, -0.5, -1.6, -0.2])
    away = np.array([-2.4, -3.0, -1.6, -3.5])
    for control, touches in ((push, True), (away, False)):
        told = scene.controls(torch.from_numpy(control)).numpy()
        plain = world.execute(rest, control[None, None])[0, 1]
        other = world.execute(turned_state(rest, quarters), told[None, None])[0, 1]
        moved = np.abs(plain - rest).max()
        assert (moved > 0.2) == touches
        assert np.abs(turned_state(other, -quarters) - plain).max() < 1e-6
        if quarters and touches:  # an unturned push there is another one
            wrong = world.execute(turned_state(rest, quarters), control[None, None])[0, 1]
            assert np.abs(turned_state(wrong, -quarters) - plain).max() > 0.1


def test_four_quarters_are_none() -> None:
    push = torch.tensor([[0.3, -1.2, 2.0, 3.5]])
    quarter = Scene("granular", "grains-100", "turned-90")
    told = [push]
    for _ in range(4):
        told.append(quarter.controls(told[-1]))
    assert torch.equal(told[4], push)
    for look, quarters in TURNS.items():
        assert torch.equal(Scene("granular", "grains-100", look).controls(push), told[quarters])
    state = torch.from_numpy(grains())
    once = torch.from_numpy(turned_state(state.numpy(), 1))
    last = Scene("granular", "grains-100", "turned-270").observe(once, SIDE)[0]
    assert torch.equal(last, Scene("granular", "grains-100").observe(state, SIDE)[0])
