import numpy as np
import pytest

from djepa.errors import DjepaError
from djepa.seeds import generator
from djepa.worlds.behaviours import BEHAVIOURS, Explorer, drive, get_behaviour
from djepa.worlds.push import PushWorld
from djepa.worlds.rules import angle_error
from djepa.worlds.shapes import SHAPES
from djepa.worlds.starts import initial_state

MAKERS = BEHAVIOURS | {"explorer": Explorer}  # the last one is for training data alone
every_one = pytest.mark.parametrize("behaviour", MAKERS)


def segment(shape: str, behaviour: str, seed: int, controls: int = 50):
    """An episode as starts have it: states (H + 1, 10), controls (H, 2)."""
    world, rng = PushWorld(shape), generator("test", behaviour, seed)
    world.restore(initial_state(world, rng))
    return drive(world, MAKERS[behaviour](world, rng), controls)


@every_one
def test_a_seed_fixes_a_segment(behaviour):
    for seed in range(4):
        first, again = segment("T", behaviour, seed), segment("T", behaviour, seed)
        assert first[0].tobytes() == again[0].tobytes()
        assert first[1].tobytes() == again[1].tobytes()
    assert (segment("T", behaviour, 0)[1] != segment("T", behaviour, 1)[1]).any()


@every_one
@pytest.mark.parametrize("shape", SHAPES)
def test_controls_are_in_the_box_and_lose_nothing_when_stored(behaviour, shape):
    world, rng = PushWorld(shape), generator("box", behaviour)
    acting = MAKERS[behaviour](world, rng)
    states, controls = drive(world, acting, 40)
    assert states.shape == (41, 10)
    assert controls.shape == (40, 2)
    assert controls.dtype == np.float32
    assert (np.abs(controls) <= 1.0).all()
    control = acting.act(states[-1])
    assert control.dtype == np.float64
    assert (control == control.astype(np.float32)).all()
    assert world.execute(states[0], controls[None])[0].tobytes() == states.tobytes()


@every_one
@pytest.mark.parametrize("shape", ["T", "square", "Z"])
def test_most_segments_touch_the_block(behaviour, shape):
    touched = 0
    for seed in range(40):
        states, _ = segment(shape, behaviour, seed)
        moved = np.linalg.norm(states[-1, 2:4] - states[0, 2:4])
        touched += bool(moved > 1.0 or angle_error(states[-1, 4], states[0, 4]) > 0.02)
    assert touched > 24


@every_one
def test_it_does_not_look_at_the_live_world(behaviour):
    """A control follows from the states shown and the generator alone."""
    world = PushWorld()
    states = segment("T", behaviour, 3, 12)[0]
    calm = MAKERS[behaviour](world, generator("same"))
    stirred = MAKERS[behaviour](PushWorld(), generator("same"))
    for state in states:
        want = calm.act(state.copy())
        world.step([0.5, -0.5])
        assert (stirred.act(state) == want).all()


def test_a_misspelt_behaviour_is_corrected():
    assert isinstance(get_behaviour("weak", PushWorld(), generator()), BEHAVIOURS["weak"])
    with pytest.raises(DjepaError, match=r"Unknown behaviour 'week'\. Did you mean 'weak'\?"):
        get_behaviour("week", PushWorld(), generator())
