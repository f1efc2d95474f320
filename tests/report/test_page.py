import copy
import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from djepa.bank.read import Bank
from djepa.errors import DjepaError
from djepa.evidence.ranks import best, order
from djepa.report.inspector import View, inspect
from djepa.report.page import Figure, Headline, Page, Section, inline, write_page
from djepa.report.tables import Table
from djepa.worlds.outline import outline
from djepa.worlds.push import pusher_path
from djepa.worlds.shapes import SHAPES
from djepa.worlds.sketch import ANGLE

ROWS = range(8)
ODD = "<script>alert('a & b')</script>"


def views(bank: Bank) -> tuple[dict[str, np.ndarray], dict[str, View]]:
    """Two label-free costs, where the pusher ends and how far it goes, and three choosers."""
    known = bank.decisions
    paths = [
        pusher_path(known.state[n], known.actions[n].astype(float))[0] for n in range(len(bank))
    ]
    ends = np.stack([path[:, -1] for path in paths])
    near = np.linalg.norm(ends - known.goal[:, None, :2], axis=-1)
    far = np.stack([np.linalg.norm(np.diff(path, axis=1), axis=-1).sum(1) for path in paths])
    ids = torch.from_numpy(known.candidate_ids)
    first, moved = (best(torch.from_numpy(x), ids).numpy() for x in (near, near + far / 4))
    opened = np.arange(len(bank)) % 2 == 0
    gated = View(
        near + far / 4, np.where(opened, moved, first), near, opened, 1.0 * opened, threshold=0.5
    )
    return {"near": near, "far": far}, {"pusher": View(near, first), "corrected": gated}


@pytest.fixture(scope="module")
def inspected(small_bank: Bank) -> dict:
    return inspect(small_bank, ROWS, *views(small_bank), label="reference")


@pytest.fixture(scope="module")
def page(inspected: dict, tmp_path_factory: pytest.TempPathFactory) -> Page:
    folder = tmp_path_factory.mktemp("figures")
    Image.new("RGB", (900, 40), "white").save(folder / "bar.png")
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><g style="fill:red"/></svg>'
    (folder / "rect.svg").write_text(svg)
    (folder / "bar.csv").write_text("a,b\n1,2\n")
    wide = tuple(f"column {i}" for i in range(12))
    table = Table("numbers", "Numbers", wide, (tuple(f"{i}.0 %" for i in range(12)),), ODD)
    figures = (
        Figure("A bar", "drawn", folder / "bar.png", folder / "bar.csv"),
        Figure("A box", "drawn", folder / "rect.svg"),
    )
    return Page(
        f"Title {ODD}",
        "What **was** seen",
        (Headline("success", "75 %", "70 to 80", "of 8"), Headline("gain", "+3")),
        (Section("First", ("Plain.", f"`code` {ODD}"), (table,), figures), Section("Second")),
        [inspected, {**inspected, "label": "again"}],
        "made here",
    )


@pytest.fixture(scope="module")
def written(page: Page, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(tmp_path_factory.mktemp("page") / "new" / "page.html", page)


class Tags(HTMLParser):
    """Checks that tags nest, and keeps what they would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.loads += [value for name, value in attrs if name in ("src", "href", "srcset")]
        if tag not in ("meta", "link", "img", "br", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_loads_nothing(written: Path) -> None:
    text = written.read_text()
    tags = Tags()
    tags.feed(text)
    assert not tags.open
    assert "http://" not in text
    assert "https://" not in text
    assert all(link.startswith(("data:", "#")) for link in tags.loads)
    assert tags.seen.count("script") == 2  # the data and our own; none from the text
    assert ODD not in text
    assert inline(ODD) in text
    assert "default-src 'none'" in text


def test_the_page_is_deterministic_and_small(page: Page, written: Path, tmp_path: Path) -> None:
    again = write_page(tmp_path / "again.html", page)
    assert again.read_bytes() == written.read_bytes()
    assert len(json.dumps(page.inspector[0])) < 700_000  # 8 starts of 63 candidates


def test_only_bold_and_code_are_markup() -> None:
    assert inline("a **b** `c **d** <e>`") == (
        "a <strong>b</strong> <code>c **d** &lt;e&gt;</code>"
    )
    assert inline("_x_ [y](z) ** ` <b>") == "_x_ [y](z) ** ` &lt;b&gt;"


def test_a_page_refuses_what_it_cannot_show(tmp_path: Path) -> None:
    def write(section: Section) -> None:
        write_page(tmp_path / "page.html", Page("", "", sections=(section,)))

    with pytest.raises(DjepaError, match="no png, svg or gif"):
        write(Section("", figures=(Figure("", "", tmp_path / "x.pdf"),)))
    with pytest.raises(DjepaError, match="Cannot read"):
        write(Section("", figures=(Figure("", "", tmp_path / "x.png"),)))
    assert not list(tmp_path.iterdir())


def test_the_inspector_tells_what_the_bank_tells(small_bank: Bank, inspected: dict) -> None:
    known, seen = small_bank.decisions, small_bank.outcomes
    costs, methods = views(small_bank)
    ids = torch.from_numpy(known.candidate_ids)
    for row, start in zip(ROWS, inspected["starts"], strict=True):
        at = np.argsort(known.candidate_ids[row])
        assert start["ids"] == known.candidate_ids[row, at].tolist()
        assert start["success"] == seen.success[row, at].astype(int).tolist()
        assert np.allclose(start["task"], seen.cost[row, at], rtol=1e-4)
        assert np.allclose(start["costs"], [cost[row, at] for cost in costs.values()], rtol=1e-4)
        states = np.array(start["states"]).reshape(len(at), 26, 5)
        poses = seen.states[row, at][..., :5] * (1, 1, 1, 1, ANGLE)
        assert np.abs(states[:, 5::5] - poses).max() <= 0.5
        for view, method in zip(methods.values(), start["methods"], strict=True):
            ranking = order(torch.from_numpy(view.score), ids)[row]
            assert np.array(start["ids"])[np.argsort(method["ranks"])].tolist() == (
                ids[row][ranking].tolist()
            )
            assert method["chosen"] == ids[row, view.chosen[row]]
    plain, gated = start["methods"]
    assert (plain["base"], plain["before"], plain["opened"]) == (None, None, None)
    assert gated["before"] == plain["chosen"]
    assert np.allclose(gated["correction"], costs["far"][row, at] / 4, rtol=1e-4)
    assert (gated["opened"], gated["advantage"], gated["threshold"]) == (False, 0.0, 0.5)


def test_what_was_not_executed_is_not_a_failure(small_bank: Bank) -> None:
    bank, seen = copy.copy(small_bank), small_bank.outcomes
    observed, cost = seen.observed.copy(), seen.cost.copy()
    observed[2, 5], cost[2, 5] = False, np.nan
    bank.__dict__["outcomes"] = dataclasses.replace(seen, observed=observed, cost=cost)
    (start,) = inspect(bank, [2], *views(bank))["starts"]
    at = start["ids"].index(bank.decisions.candidate_ids[2, 5])
    assert start["success"][at] is start["task"][at] is start["states"][at] is None
    assert None not in start["success"][:at] + start["success"][at + 1 :]


def test_the_inspector_refuses_what_does_not_fit(small_bank: Bank) -> None:
    costs, methods = views(small_bank)
    score = methods["pusher"].score
    with pytest.raises(DjepaError, match="the cost of near"):
        inspect(small_bank, [0], {"near": costs["near"][:4]}, methods)
    with pytest.raises(DjepaError, match="that no pool has"):
        inspect(small_bank, [0], costs, {"m": View(score, np.full(len(score), 63))})
    with pytest.raises(DjepaError, match="has no start 10"):
        inspect(small_bank, [10], costs, methods)
    with pytest.raises(DjepaError, match="at least one start"):
        inspect(small_bank, [], costs, methods)


@pytest.mark.parametrize("name", SHAPES)
def test_an_outline_encloses_the_parts_once(name: str) -> None:
    rim = np.array(outline(SHAPES[name]))
    nxt = np.roll(rim, -1, axis=0)
    area = (rim[:, 0] * nxt[:, 1] - rim[:, 1] * nxt[:, 0]).sum() / 2
    parts = SHAPES[name].vertices
    assert area == np.prod(parts.max(1) - parts.min(1), axis=-1).sum()
    assert ((rim == nxt).sum(1) == 1).all()  # every edge runs along an axis


@pytest.fixture
def visit(browser, written: Path):
    """A function that opens the page; whatever it complains about fails the test."""
    contexts, trouble = [], []

    def look(width=1280, still=True, **options):
        motion = "reduce" if still else "no-preference"
        size = {"width": width, "height": 800}
        contexts.append(browser.new_context(viewport=size, reduced_motion=motion, **options))
        tab = contexts[-1].new_page()
        tab.on("console", lambda message: trouble.append(message.text))
        tab.on("pageerror", lambda error: trouble.append(str(error)))
        tab.on("request", note)
        tab.goto(written.as_uri())
        return tab

    def note(request):
        if not request.url.startswith(("data:", written.as_uri())):
            trouble.append(request.url[:80])

    yield look
    for context in contexts:
        context.close()
    assert not trouble


def pixels(tab, which: int) -> str:
    return tab.locator("#inspector canvas").nth(which).evaluate("c => c.toDataURL()")


def selected(tab) -> int:
    return int(tab.locator("tr[aria-selected=true]").get_attribute("data-id"))


def test_the_page_opens_offline_without_complaint(visit) -> None:
    tab = visit(offline=True)
    assert tab.title() == f"Title {ODD}"
    assert tab.locator("tbody tr[data-id]").count() == 63
    assert tab.locator(".plot img").evaluate_all("all => all.every(i => i.naturalWidth > 0)")
    assert tab.locator("nav a").all_inner_texts() == ["First", "Second", "Decision inspector"]


def test_a_click_replays_that_candidate_beside_the_base_choice(visit, inspected) -> None:
    tab = visit()
    left, right = pixels(tab, 0), pixels(tab, 1)
    start = inspected["starts"][0]
    shown = {selected(tab), start["methods"][1]["before"]}
    id = next(i for i in start["ids"] if i not in shown)
    tab.locator(f"tbody tr[data-id='{id}']").click()
    assert selected(tab) == id
    assert pixels(tab, 1) != right
    won = start["success"][start["ids"].index(id)]
    caption = tab.locator(".screen figcaption").nth(1).inner_text()
    assert f"#{id} · {'success' if won else 'failure'}" in caption
    tab.get_by_label("Compare with").select_option("choice 1")
    assert pixels(tab, 0) != left


def test_methods_say_what_they_chose_and_why(visit, inspected) -> None:
    tab = visit()
    method = inspected["starts"][0]["methods"][1]
    row = tab.locator(".votes li").nth(1)
    assert f"#{method['chosen']} " in row.locator("button").inner_text()
    assert row.locator(".gate").inner_text() == "gate open: advantage 1.000 > threshold 0.500"
    tab.get_by_label("Next start").click()
    assert "gate closed: advantage 0.0000 ≤ threshold 0.5000" in row.locator(".gate").inner_text()
    row.locator("button").click()
    assert selected(tab) == inspected["starts"][1]["methods"][1]["chosen"]


def test_the_keyboard_reaches_candidates_starts_and_time(visit) -> None:
    tab = visit()
    tab.locator("tr[aria-selected=true]").focus()
    first, right = selected(tab), pixels(tab, 1)
    last = tab.locator("tbody tr[data-id]").last.get_attribute("aria-selected") == "true"
    tab.keyboard.press("ArrowUp" if last else "ArrowDown")
    assert selected(tab) != first
    assert pixels(tab, 1) != right
    tab.keyboard.press("ArrowRight")
    assert tab.locator("#pick-start").evaluate("s => s.selectedIndex") == 1
    tab.keyboard.press("ArrowLeft")
    assert tab.locator("#pick-start").evaluate("s => s.selectedIndex") == 0
    tab.keyboard.press("Space")
    assert tab.get_by_role("button", name="Pause").count() == 1
    tab.keyboard.press("Space")
    assert tab.get_by_role("button", name="Pause").count() == 0
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.tagName") == "TR"
    edge = tab.locator("tr[aria-selected=true] td").first
    assert edge.evaluate("c => getComputedStyle(c).boxShadow") != "none"  # focus is seen


def test_replays_start_by_themselves_only_where_motion_is_welcome(visit) -> None:
    tab = visit(still=False)
    assert tab.get_by_role("button", name="Pause").count() == 0
    tab.locator("tbody tr[data-id]").nth(2).click()
    early = pixels(tab, 1)
    tab.locator(".play output", has_text="25 / 25").wait_for()
    assert pixels(tab, 1) != early
    quiet = visit(still=True)
    quiet.locator("tbody tr[data-id]").nth(2).click()
    assert quiet.get_by_role("button", name="Pause").count() == 0
    assert quiet.locator(".play output").inner_text() == "25 / 25"


def test_the_table_sorts_by_every_column(visit, inspected) -> None:
    tab = visit()
    start = inspected["starts"][0]
    cost = dict(zip(start["ids"], start["task"], strict=True))
    for sense, sign in (("ascending", 1), ("descending", -1)):
        tab.get_by_role("button", name="task cost").click()
        rows = tab.locator("tbody tr[data-id]").evaluate_all("r => r.map(x => +x.dataset.id)")
        assert rows == sorted(cost, key=lambda id: (sign * cost[id], id))
        assert tab.locator("th[data-key=task]").get_attribute("aria-sort") == sense
    tab.locator("#pick-pool").select_option("again")
    assert tab.locator("#pick-start option").count() == len(ROWS)


@pytest.mark.parametrize("width", [360, 800])
def test_nothing_sticks_out_on_a_phone(visit, width: int) -> None:
    tab = visit(width=width)
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    boxes = tab.locator(".scroll").evaluate_all("b => b.map(x => x.scrollWidth - x.clientWidth)")
    assert max(boxes) > 0  # wide tables scroll in their own boxes


def test_light_and_dark(visit) -> None:
    def shade(tab) -> int:
        colour = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)[:3]))

    day, night = visit(color_scheme="light"), visit(color_scheme="dark")
    bright, dark = shade(day), shade(night)
    assert dark < 150 < 600 < bright
    before = pixels(day, 1)
    day.locator("#theme").click()
    assert shade(day) == dark
    assert pixels(day, 1) != before
    night.locator("#theme").click()
    assert shade(night) == bright


def test_links_lead_to_pages_beside_it_and_nowhere_else() -> None:
    from djepa.report.page import inline

    assert inline("[all](reacher/report.html)") == '<a href="reacher/report.html">all</a>'
    for text in (
        "[x](https://a.b/c.html)",
        "[x](../up.html)",
        "[x](javascript:a.html)",
        "[x](/a.html)",
    ):
        assert "href" not in inline(text)
    assert inline("`[x](a.html)`") == "<code>[x](a.html)</code>"


def test_rows_that_begin_alike_share_their_name(tmp_path: Path) -> None:
    rows = (("a", "1", "2"), ("a", "3", "4"), ("b", "5", "6"))
    section = Section("Numbers", tables=(Table("t", "T", ("method", "x", "y"), rows),))
    text = write_page(tmp_path / "p.html", Page("P", "S", sections=(section,))).read_text()
    body = text.split("<tbody>")[1].split("</tbody>")[0]
    assert body.count("<tr>") == 3
    assert '<th scope="rowgroup" rowspan="2">a</th><td class="n">1</td>' in body
    assert '<tr><td class="n">3</td>' in body
    assert '<th scope="row">b</th>' in body
