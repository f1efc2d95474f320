"""Every world is replayed where it really is: sketches against frames, and in a real browser."""

from pathlib import Path

import numpy as np
import pytest

from djepa.bank.collect import collect
from djepa.bank.read import Bank
from djepa.report.inspector import View, inspect
from djepa.report.page import Page, write_page
from djepa.rollout.engine import LocalEngine
from djepa.rollout.execute import CollectConfig
from djepa.tasks.task import TASKS, get_task
from djepa.worlds.sketch import Part, no_sketch

SIZE = 512  # px: fine enough that a centre lies within its body
INK = {"pusher": (65, 105, 225), "finger": (65, 105, 225), "grains": (90, 72, 56)}
NAMES = {
    "push": ["block", "pusher", "goal", "trail"],
    "reacher": ["arm", "finger", "goal", "trail"],
    "granular": ["grains", "board", "goal"],
    "cube": ["cube", "fingers", "goal", "trail"],
}
# The arm is seen by a camera that stands aside; tests/worlds/arms compares its sketch with states.
every = pytest.mark.parametrize("name", [name for name in TASKS if name != "arm"])
flat = pytest.mark.parametrize("name", [name for name in TASKS if name not in ("arm", "cube")])


@pytest.fixture(scope="module")
def banks(tmp_path_factory: pytest.TempPathFactory):
    """World -> a bank of two starts."""
    made: dict[str, Bank] = {}

    def make(name: str) -> Bank:
        for engine in ("mujoco", "dm_control", "ogbench"):
            if engine in get_task(name).engines:
                pytest.importorskip(engine)
        if name not in made:
            config = CollectConfig(name, split="replays", starts=2, block=1)
            made[name] = collect(tmp_path_factory.mktemp(name) / "bank", config, LocalEngine(1))
        return made[name]

    return make


def inspected(bank: Bank, **options) -> dict:
    """Two starts as the page shows them; who chooses does not matter here."""
    score = np.abs(bank.decisions.actions.astype(float)).sum((2, 3))
    view = View(score, score.argmin(1))
    return inspect(bank, [0, 1], {"effort": score}, {"least": view}, **options)


def middles(part: Part, state: np.ndarray) -> np.ndarray:
    """(n, 2) where discs have their centres, of one drawn state."""
    at = np.array(part.at)[None] + 2 * np.arange(part.many)[:, None]
    return state[at]


@flat
def test_bodies_are_drawn_where_frames_show_them(name: str, banks) -> None:
    """Executed, drawn as whole numbers, and looked up in the frame of the recorded last state."""
    bank = banks(name)
    world, told = bank.world(), inspected(bank)
    sketch, seen = bank.config.task.sketch(world), bank.outcomes
    discs = [part for part in sketch.parts if part.kind == "disc"]
    assert [part.name for part in discs] == [n for n in NAMES[name] if n in INK]
    looked = 0
    for row, start in enumerate(told["starts"]):
        order = np.argsort(bank.decisions.candidate_ids[row])
        frames = world.render(seen.states[row, order, -1], SIZE)
        for path, frame in zip(start["states"], frames, strict=True):
            last = np.array(path).reshape(-1, len(start["aim"]))[-1]
            for x, y in (SIZE * middles(discs[0], last) / told["side"]).astype(int):
                if 0 <= x < SIZE and 0 <= y < SIZE:
                    assert frame[y, x].tolist() == list(INK[discs[0].name])
                    looked += 1
    assert looked > 100


@every
def test_the_first_state_is_the_start_and_the_aim_the_goal(name: str, banks) -> None:
    bank = banks(name)
    told, known = inspected(bank), bank.decisions
    sketch = bank.config.task.sketch(bank.world())
    nothing = known.actions[0, 0, :0]
    for row, start in enumerate(told["starts"]):
        aim = sketch.draw(known.goal[row][None], nothing)[0]
        assert start["aim"] == aim.tolist()
        first = sketch.draw(known.state[row][None], nothing)[0].tolist()
        width, H = len(first), known.actions.shape[2]
        for path in start["states"]:
            assert path[:width] == first
            assert len(path) == (H + 1) * width


def test_a_push_is_told_with_the_state_it_leads_to(banks) -> None:
    bank = banks("granular")
    start, world = inspected(bank)["starts"][0], bank.world()
    (board,) = (part for part in bank.config.task.sketch(world).parts if part.kind == "board")
    order = np.argsort(bank.decisions.candidate_ids[0])
    for path, pushes in zip(start["states"], bank.decisions.actions[0, order], strict=True):
        drawn = np.array(path).reshape(6, -1)[1:, list(board.at)]
        assert np.abs(drawn / 1000 - 2.5 - pushes).max() <= 0.0005


def test_frames_have_the_look_that_was_asked_for(banks) -> None:
    bank = banks("push")
    plain, dark = (inspected(bank, look=look)["starts"][0] for look in ("plain", "dark"))
    assert plain["goal"] != dark["goal"]
    assert plain["states"] == dark["states"]


def test_a_world_without_a_sketch_is_drawn_as_nothing() -> None:
    sketch = no_sketch(object())
    assert sketch.parts == ()
    assert sketch.draw(np.ones((63, 26, 4)), np.ones((63, 25, 2))).shape == (63, 26, 0)


@every
def test_a_browser_replays_it(name: str, banks, browser, tmp_path: Path) -> None:
    told = inspected(banks(name), label=name)
    starts = [{**s, "aim": [], "states": [[] for _ in s["states"]]} for s in told["starts"]]
    silent = {**told, "label": "silent", "parts": [], "starts": starts}
    file = write_page(tmp_path / "page.html", Page("Replays", "", inspector=[told, silent]))
    context, trouble = browser.new_context(reduced_motion="reduce"), []
    tab = context.new_page()
    tab.on("console", lambda message: trouble.append(message.text))
    tab.on("pageerror", lambda error: trouble.append(str(error)))
    tab.goto(file.as_uri())
    canvas = tab.locator("#inspector canvas").last
    assert tab.locator(".legend li").all_inner_texts() == NAMES[name]
    pictures = set()
    for time in (0, 1.5, 3):
        tab.locator("input[type=range]").evaluate(
            "(e, t) => { e.value = t; e.dispatchEvent(new Event('input')); }", time
        )
        pictures.add(canvas.evaluate("c => c.toDataURL()"))
    assert len(pictures) == 3
    tab.locator("#pick-pool").select_option("silent")
    assert not canvas.is_visible()
    assert tab.locator("tbody tr[data-id]").count() == 63
    context.close()
    assert not trouble
