import re
from pathlib import Path

from djepa.align.presets import PRESETS, SUITE
from djepa.align.registry import METHODS, label, ordered, slug
from djepa.align.suite import MIXTURES
from djepa.evaluate.rows import read_rows

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def test_every_method_of_stored_rows_is_here() -> None:
    files = [next((study / "rows").glob("*.gz")) for study in sorted(RESULTS.glob("*-large"))]
    stored = {row.method for file in files for row in read_rows(file)}
    assert len(stored) > 30
    assert stored | set(SUITE) | set(MIXTURES) <= set(METHODS)


def test_entries_are_whole() -> None:
    for name, method in METHODS.items():
        assert method.name == name
        assert method.label
        assert method.sentence.endswith(".")
        assert method.preset in {"", *PRESETS}
        if name in SUITE:
            assert SUITE[name] == PRESETS[method.preset], name
    assert {method.preset for method in METHODS.values()} == {"", *PRESETS}
    shown = [method.label for method in METHODS.values()]
    assert len(set(shown)) == len(shown)


def test_slugs_name_folders() -> None:
    slugs = [slug(name) for name in METHODS]
    assert len(set(slugs)) == len(slugs)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", text) for text in slugs)
    assert slug("consensus + fusion, four") == "consensus-fusion-four"
    assert slug("D-JEPA") == "d-jepa"


def test_order_and_labels() -> None:
    assert ordered(["oracle", "mine", "D-JEPA", "random"]) == ["random", "D-JEPA", "oracle", "mine"]
    assert label("relational") == "D-JEPA, as published"
    assert label("mine") == "mine"
