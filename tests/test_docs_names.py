"""Every name, path, link and command in README and docs exists."""

import ast
import dataclasses
import re
import shlex
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from tools.docs.fill import MARK, ROOT, pages

import djepa
from djepa.cli import main as cli
from djepa.errors import MissingExtraError
from djepa.rollout.engine import LocalEngine
from djepa.studies.design import ROLES, Place
from djepa.studies.names import get_design

PAGES = [page for page in pages() if page.parent.name != "tables"]
COMMANDS = {get_args(of)[1].name: get_args(of)[0] for of in get_args(cli.Command)}
PRIVATE = (
    "voice|crowd|choir|told|cannot be told|pools tell|answer away|before your eyes|mend|mended|"
    "sceptic|yardstick|beats|believed"
)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def text_of(page: Path) -> str:
    """Without the calls of generated parts."""
    return MARK.sub(lambda match: match[2], page.read_text())


def blocks(text: str) -> list[str]:
    return re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)


def ticked(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def command_lines(text: str) -> Iterator[list[str]]:
    """Those of code blocks, continuation lines joined."""
    for block in blocks(text):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r" && |; ", line.strip().removeprefix("$ ")):
                if part.startswith("djepa "):
                    yield shlex.split(part, comments=True)[1:]


@cache
def flags(command: type) -> frozenset[str]:
    found = set[str]()
    for name, kind in get_type_hints(command, include_extras=True).items():
        found |= {f"--{name.replace('_', '-')}", f"--no-{name.replace('_', '-')}"}
        found |= {a for extra in get_args(kind) for a in getattr(extra, "aliases", None) or ()}
        if dataclasses.is_dataclass(plain := (get_args(kind) or (kind,))[0]):
            found |= flags(plain)
    return frozenset(found)


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", text_of(page)):
        target = (page.parent / path) if path else page
        assert target.exists(), path
        if anchor:
            assert anchor in anchors(target), f"{path}#{anchor}"


@each_page
def test_names_exist(page: Path) -> None:
    """Dotted ones are imported; others that can only be Python stand somewhere in the code."""
    for name in set(re.findall(r"\bdjepa(?:\.\w+)+", text_of(page))):
        resolve(name)
    for word in ticked(text_of(page)):
        if re.fullmatch(r"[A-Za-z]\w*_\w+|[A-Z][a-z]+[A-Z]\w+|\w+\(.*\)", word):
            name = word.split("(")[0]
            assert re.search(rf"\b{name}\b", code()), word


@cache
def code() -> str:
    files = [f for part in ("src", "tests") for f in (ROOT / part).rglob("*.py")]
    return "\n".join(file.read_text() for file in files)


def resolve(name: str) -> Any:
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:cut]))
        except MissingExtraError:  # the module is there, its library is not
            assert cut == len(parts), name
            return None
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            fields = getattr(found, "__dataclass_fields__", {})
            found = fields[part] if part in fields else getattr(found, part)
        return found
    raise AssertionError(name)


@each_page
def test_paths_exist(page: Path) -> None:
    for word in ticked(text_of(page)):
        if re.fullmatch(r"[\w.\-]+(/[\w.\-]+)+", word) and not word.startswith("runs/"):
            places = (ROOT, ROOT / "src" / "djepa", ROOT / "src", ROOT / "docs")
            if re.search(r"\.(py|md|json|png|toml|safetensors)$", word) or word.startswith("docs/"):
                assert any((place / word).exists() for place in places), word
        elif re.fullmatch(r"\w+\.py", word) and word != "my_world.py":
            assert list((ROOT / "src").rglob(word)), word


@each_page
def test_commands_are_understood(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the parser itself; nothing is run."""
    for command in COMMANDS.values():
        monkeypatch.setattr(command, "run", lambda self: 0)
    monkeypatch.setattr(cli, "_check_device", lambda name: None)  # there may be no GPU here
    for line in command_lines(text_of(page)):
        if "decoi" in line:
            continue
        with pytest.raises(SystemExit) as stop:
            cli.main(line)
        assert stop.value.code == 0, line


@each_page
def test_flags_in_sentences_exist(page: Path) -> None:
    known = {flag for command in COMMANDS.values() for flag in flags(command)} | {"--help"}
    for word in ticked(text_of(page)):
        named = re.match(r"djepa ([a-z]+)", word)
        if named:
            assert named[1] in COMMANDS, word
        wanted = set(re.findall(r"(?<!\w)--[\w-]+", word))
        of = flags(COMMANDS[named[1]]) | {"--help"} if named else known
        if program := re.match(r"tests/\w+\.py", word):  # its own parser has them
            of = set(re.findall(r'add_argument\("(--[\w-]+)"', (ROOT / program[0]).read_text()))
        assert wanted <= of, (word, wanted - of)


def test_folders_are_made_before_they_are_used() -> None:
    """A folder below runs/ is one that some command writes; banks of a study are those it has."""
    text = "\n".join(text_of(page) for page in PAGES)
    made = {"runs/study", "runs/bench.json", "runs/push", "runs/soak.md"}
    made |= set(re.findall(r"(?:--out|--json|python -m \S+|save\()\s*\"?(runs/[\w./$-]+)", text))
    design = get_design("pusht")
    place = Place(Path(), LocalEngine(1))
    cases = [c for role in ROLES for c in design.cases(role, design.sizes["quick"], place)]
    banks = {f"runs/study/banks/{case.folder}" for case in cases}
    for path in set(re.findall(r"\bruns/[\w./-]+", text)):
        if path.startswith("runs/study/"):
            assert path.rstrip(".") in {*banks, "runs/study/report.html"}, path
        else:
            heads = [of.split("$")[0] for of in made]
            assert any(path.startswith(h) or h.startswith(f"{path}/") for h in heads), path


@each_page
def test_words_are_plain(page: Path) -> None:
    sentences = re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL)
    assert re.findall(rf"\b(?:{PRIVATE})\b", sentences, re.IGNORECASE) == []


def test_the_program_speaks_plainly_too() -> None:
    """What a command, a page or an error may say: every text in the source but docstrings."""
    texts = 0
    for file in sorted(Path(djepa.__file__).parent.rglob("*.py")):
        nodes = list(ast.walk(ast.parse(file.read_text())))
        first = [node.body[0] for node in nodes if isinstance(node, DOCUMENTED) and node.body]
        inner = {id(one.value) for one in first if isinstance(one, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                odd = re.search(rf"\b(?:{PRIVATE})\b", node.value, re.IGNORECASE)
                assert odd is None or id(node) in inner, f"{file.name}:{node.lineno}: {odd}"
                texts += id(node) not in inner
    assert texts > 5000
