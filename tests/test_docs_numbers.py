"""Results in sentences and tables are generated: outside of marks no page states one by hand."""

import json
import re

import pytest
from tools.docs import measured
from tools.docs.fill import MARK, ROOT, functions, pages

from djepa.worlds.looks import V2

RESULT = re.compile(
    r"\d+(?:\.\d+)? ?%"  # a share
    r"|\d+(?:\.\d+)? points"
    r"|(?<![\w.])[+-]\d+\.\d+"  # a difference
    r"|\([+-]?\d+(?:\.\d+)? ?(?:to|-) ?[+-]?\d+(?:\.\d+)?\)"  # an interval
    r"|\bp ?[=<>] ?[\d.]+\d"  # a p value
    r"|\b[\d,]*\d of [\d,]*\d\b"  # a count
    r"|(?<=\|) *[+-]?\d+\.\d+ *(?=\|)"  # a number that is a cell of a table
)
NAMES = {page.relative_to(ROOT).with_suffix("").as_posix(): page for page in pages()}
LEVEL = re.compile(r"95 %(?= interval| confidence)")  # how sure; no result
CODE = (
    r"```.*?```",
    r"`[^`\n]+`",
    r"(?<=\n\n)(?: {4}[^\n]*\n)+",
    r"\]\([^)\s]*\)",
)  # and addresses
# No results of ours: settings, aims and definitions, and how large files are.
ALLOWED = {
    "README": ("50 % is chance",),
    "docs/alignment": ("101 points", "the 5 % level", "The test's 5 %"),
    "docs/audit": ("Intervals are 95 %", "at most 10 %", "Wilson 95 %", "50 % is chance"),
    "docs/bimanual": ("at most 5 % of starts", "(5 % of starts"),
    "docs/controls": ("150 of 600",),
    "docs/driving": (
        *("60 % on generated and 40 % on recorded", "tests at 5 %", "at 5 % divided"),
        *(
            "at most 1 % of logs",
            "keeps harm at 1 % with 95 %",
            "At 1 % and 95 %",
            "at least 10 points",
        ),
    ),
    "docs/faq": ("at most 2 %",),
    "docs/folders": ("Deflate takes 8 %",),
    "docs/geometries": ("over 25 points", "2.5 points", "196 of 384", "warm-up 2 %"),
    "docs/other-worlds": ("16 of 63", "4 % of pixels", "about 4 points"),
    "docs/pools": ("chance is 25 %",),
    "docs/scale": ("75 and 95 % of the bytes",),
    "docs/table": ("150 of 600", "16 of 63"),
}


def prose(text: str) -> str:
    """Without generated parts and code."""
    text = MARK.sub(" ", text)
    for code in CODE:
        text = re.sub(code, " ", text, flags=re.DOTALL)
    return text


def pattern(phrase: str) -> re.Pattern[str]:
    """A phrase, wherever its lines break."""
    return re.compile(r"\s+".join(map(re.escape, phrase.split())))


def stated(page: str, text: str) -> list[str]:
    """What looks like a result by hand, with the words around it."""
    rest = LEVEL.sub(" ", prose(text))
    for phrase in ALLOWED.get(page, ()):
        rest = pattern(phrase).sub(" ", rest)
    return [rest[max(0, m.start() - 40) : m.end() + 20] for m in RESULT.finditer(rest)]


@pytest.mark.parametrize("name", NAMES)
def test_results_are_generated(name: str) -> None:
    assert stated(name, NAMES[name].read_text()) == [], "put them in a mark: tools/docs"


def test_every_exception_is_needed() -> None:
    texts = {name: prose(page.read_text()) for name, page in NAMES.items()}
    for page, phrases in ALLOWED.items():
        for phrase in phrases:
            assert pattern(phrase).search(texts[page]), f"{page}: {phrase}"
            assert RESULT.search(phrase), phrase


@pytest.mark.parametrize(
    "sentence",
    [
        "It solves 84 % of them.",
        "Better by 3.1 points.",
        "It gains +2.4 here.",
        "Closes most (40 to 51).",
        "No difference (p = 0.46).",
        "It opened on 3 of 512 starts.",
        "| LeWM | 67.2 | x |",
    ],
)
def test_a_result_by_hand_is_noticed(sentence: str) -> None:
    assert stated("README", f"Text.\n\n{sentence}\n") != []
    assert stated("README", f"<!--= f() -->\n{sentence}\n<!--/-->") == []


def test_measured_figures_say_how_and_are_shown() -> None:
    """Each once noted has the command or says that there is none; each stands on some page."""
    text = "\n".join(page.read_text() for page in pages())
    for what, of in json.loads((ROOT / "docs/results/measured.json").read_text()).items():
        assert len(of["command"]) > 20, what
        for value in of["values"]:
            assert f'measured("{what}", "{value}")' in text
    for call, _ in MARK.findall(text):
        assert call.split("(")[0].strip() in functions(), call


def test_the_rule_takes_the_severities_of_the_second_set() -> None:
    """From the success that `tools.severity` printed, as docs/other-worlds.md shows it."""
    rows = [line.split(" | ") for line in measured.severities().splitlines()[2:]]
    assert [float(row[4]) for row in rows] == list(V2.values())


def test_the_shortlist_adds_up() -> None:
    """Differences are those of the counts that stand beside them."""
    stored = json.loads((ROOT / "docs/results/shortlist.json").read_text())
    for of in stored["differences"]:
        ours, theirs = (stored["solved"][of[who]][of["rule"]] for who in ("ours", "theirs"))
        mean, low, high = of["points"]
        assert mean == pytest.approx(100 * (ours - theirs) / stored["episodes"], abs=0.05)
        assert low < mean < high
