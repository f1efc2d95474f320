"""The command line as a user meets it: what is parsed, printed and written."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from commands import djepa
from djepa.bank.read import Bank
from djepa.cli.info import EXTRAS, packages
from djepa.cli.main import NAMES


def test_help_names_every_command() -> None:
    """The one real process here: the entry point itself."""
    module = [sys.executable, "-m", "djepa"]
    done = subprocess.run([*module, "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert len(NAMES) >= 16
    for command in NAMES:
        assert f"• {command}" in done.stdout
    assert djepa().stdout == djepa("--help").stdout  # nothing at all is a call for help


@pytest.mark.parametrize("command", NAMES)
def test_every_command_explains_itself(command: str) -> None:
    done = djepa(command, "--help")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) > 5
    for odd in ("(default: )", "(default: True)", "(default: False)", "{None", "{True", "[STR ["):
        assert odd not in done.stdout


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("collect", "(256 with the reference, which is removed; 63 retained by TD-JEPA's cost)"),
        ("audit", "of starts no geometry was trained on; any model's arrays in an .npz"),
        ("bench", "predict, fit, decide and audit, such as 1000 10000 100000"),
    ],
)
def test_help_flows_whatever_the_width(
    command: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines end where the terminal does, not where those of the source do."""
    for width in (70, 120, 400):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = [line.strip("│ ") for line in djepa(command, "--help").stdout.splitlines()]
        assert sentence in " ".join(lines)


def test_version() -> None:
    from djepa import __version__

    assert djepa("--version").stdout == f"djepa {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["colect"], "Did you mean 'collect'"),
        (["collect", "pusht"], "Did you mean 'push'"),
        (["collect", "--profile", "decoi"], "Did you mean 'decoy'"),
        (["collect", "--shape", "t"], "Unknown shape 't'"),
        (["collect", "--engine", "rey"], "Did you mean 'ray'"),
        (["collect", "--engine", "ray", "--address", "127.0.0.1:1"], "No Ray cluster answers"),
        (["collect", "--address", "nonsense"], "Add --engine ray"),
        (["collect", "--workers", "-3"], "workers must be 0"),
        (["bench", "--seconds", "-1"], "seconds must be above 0"),
        (["collect", "--strats", "3"], "--starts"),
        (["check", "nowhere"], "There is no bank at nowhere"),
        (["check"], "Name at least one bank"),
        (["pools"], "Name at least one bank"),
        (["show", "nowhere"], "There is no bank at nowhere"),
        (["bench", "wrold"], "Did you mean 'world'"),
        (["predict", "x", "--futures", "--no-futures"], "--no-futures"),
        (["bench", "--world", "reecher"], "Did you mean 'reacher'"),
        (["bench", "all", "--many", "0"], "many must be at least"),
    ],
)
def test_mistakes_are_explained_without_a_traceback(arguments: list[str], complaint: str) -> None:
    done = djepa(*arguments)  # an exception would fail the test
    assert done.returncode in (1, 2)
    assert complaint in done.stderr


def test_info_lists_versions_devices_and_extras() -> None:
    done = djepa("info")
    assert done.returncode == 0
    for word in ("python", "torch", "pymunk", "cpu", "extra ray", "extra mujoco", "weights"):
        assert word in done.stdout


def test_info_lists_every_extra_that_a_user_may_want() -> None:
    """Those of pyproject.toml but for the two of this repository, each with what it installs."""
    project = Path(__file__).parents[2] / "pyproject.toml"
    declared = tomllib.loads(project.read_text())["project"]["optional-dependencies"]
    assert EXTRAS.keys() == declared.keys() - {"docs", "dev"}
    for extra in EXTRAS:
        named = sorted(re.split("[=>]", one)[0].replace("_", "-") for one in declared[extra])
        assert sorted(name.replace("_", "-") for name in packages(extra)) == named
    said = " ".join(djepa("info").stdout.split())
    assert all(f"extra {extra} " in said for extra in EXTRAS)


def test_from_collection_to_pictures(tmp_path: Path) -> None:
    bank, pictures = tmp_path / "bank", tmp_path / "pictures"
    done = djepa("collect", "push", "--starts", "6", "--block", "2", "--out", bank)
    assert done.returncode == 0, done.stderr
    assert "0/6 starts" in done.stdout  # plain lines when nobody watches
    assert "\x1b" not in done.stdout
    assert "6 starts x 63 candidates" in done.stdout
    assert "dropped: " in done.stdout
    assert Bank(bank).hash[:12] in done.stdout

    checked = djepa("check", bank, "--sample", "30")
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout.count("ok ") == 7

    shown = djepa("show", bank, "--start", "5", "--out", pictures)
    assert shown.returncode == 0, shown.stderr
    assert {file.suffix for file in pictures.iterdir()} == {".png", ".gif"}

    numbers = tmp_path / "stats.json"
    for _ in range(2):  # the second replaces its own
        stats = djepa("pools", bank, "--json", numbers)
        assert stats.returncode == 0, stats.stderr
    assert "noisy_0.05" in stats.stdout
    assert json.loads(numbers.read_text())


def test_check_fails_on_a_flipped_bit(bank_copy: Path) -> None:
    shard = bank_copy / "outcome" / "block-000002.safetensors"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    done = djepa("check", bank_copy)
    assert done.returncode == 1
    assert "outcome/block-000002.safetensors is damaged" in done.stderr.replace("\n", "")


def test_importing_the_package_loads_no_simulator_and_no_torch() -> None:
    code = (
        "import sys, djepa, djepa.cli.main;"
        "print(sorted({'torch', 'pymunk', 'ray', 'gymnasium', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
