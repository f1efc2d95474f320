"""`djepa`: one command, one subcommand per job."""

import difflib
import sys
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache, reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any

import tyro
from docstring_parser import parse_from_object
from tyro.conf import DisallowNone, OmitArgPrefixes, arg, subcommand

from djepa.align.registry import METHODS
from djepa.artefacts.store import locate
from djepa.cli.audit import Audit
from djepa.cli.bench import Bench
from djepa.cli.check import Check
from djepa.cli.collect import Collect
from djepa.cli.console import errors, fail, out, prepare_output
from djepa.cli.control import Control
from djepa.cli.convert import Convert
from djepa.cli.decide import Decide, Export
from djepa.cli.fit import FitAlignment
from djepa.cli.info import Info
from djepa.cli.pools import Pools
from djepa.cli.predict import Predict
from djepa.cli.recorded import ImportEpisodes
from djepa.cli.serve import Serve
from djepa.cli.show import Show
from djepa.cli.simulate import Simulate
from djepa.cli.study import RunStudy
from djepa.cli.train import Train
from djepa.cli.weights import Weights
from djepa.errors import DjepaError
from djepa.files import advice
from djepa.studies.names import APART, MAIN, STUDIES

COMMANDS: dict[str, Any] = {
    "collect": Collect,
    "check": Check,
    "show": Show,
    "pools": Pools,
    "simulate": Simulate,
    "import": ImportEpisodes,
    "train": Train,
    "predict": Predict,
    "audit": Audit,
    "fit": FitAlignment,
    "decide": Decide,
    "export": Export,
    "serve": Serve,
    "convert": Convert,
    "control": Control,
    "study": RunStudy,
    "bench": Bench,
    "weights": Weights,
    "info": Info,
}
NAMES = tuple(COMMANDS)
Command: Any = reduce(or_, (Annotated[kind, subcommand(name)] for name, kind in COMMANDS.items()))
KEPT = "what was finished is on disk; the same command goes on from there"
LOST = "nothing was written; run the same command again"
INTERRUPTED = {  # what is kept, and how to continue
    Collect: KEPT,
    Predict: KEPT,
    Simulate: KEPT,
    ImportEpisodes: KEPT,
    Control: KEPT,
    RunStudy: KEPT,
    Train: "what was saved in the last minute is on disk; the same command goes on from there",
    FitAlignment: "alignments that were finished are on disk; the same command fits the others",
    Export: LOST,
}
RENAMED = {"stats": "pools", "quality": "audit", "compare": "audit"}
ABOUT = (
    "Decision-aligned latent world models. A bank holds starts, the candidate action sequences of "
    "each and what executing them showed; a geometry is a model that predicts where candidates "
    "lead; an alignment re-orders candidates. Begin with `djepa collect push --starts 64 --out "
    "runs/first`, then `djepa check runs/first` and `djepa show runs/first --start 0`."
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, run, exit: 0 done, 1 an error the user can correct, 130 interrupted."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    prepare_output()
    try:
        code = _run(given)
    except SystemExit as end:  # help, or words that cannot be parsed
        code = end.code if isinstance(end.code, int) else 0
    except KeyboardInterrupt:
        errors.print("interrupted")
        code = 130
    sys.exit(out.close_with(code))


def _run(given: list[str]) -> int:
    if given in (["--version"], ["-V"]):
        from djepa import __version__

        print(f"djepa {__version__}")
        return 0
    _suggest(given)
    for kind in COMMANDS.values():
        _plain_help(kind)
    command = tyro.cli(
        Command,
        prog="djepa",
        description=ABOUT,
        args=given or ["--help"],
        config=(OmitArgPrefixes, DisallowNone),
    )
    try:
        command = _located(command)
        if not _elsewhere(command):
            _check_device(_device(command))
        return int(command.run() or 0)
    except DjepaError as error:
        fail(error)
    except OSError as error:  # errors that no reader or writer has handled
        fail(advice(error))
    except KeyboardInterrupt:
        kept = INTERRUPTED.get(type(command))
        errors.print(f"interrupted{f': {kept}' if kept else ''}")
        return 130
    return 1


@cache
def _plain_help(kind: Any) -> None:
    """The help of each field in one paragraph; defaults as a user would type them, if at all.

    tyro would keep the line breaks of the source. A word in braces is a list of names.
    """
    for base in filter(is_dataclass, kind.__mro__):
        hints = {f.name: _default(f.name, f.default) for f in fields(base)}
        for of in base.__annotations__.values():
            if isinstance(of, type) and is_dataclass(of):
                _plain_help(of)
        for field in parse_from_object(base).params:
            name, text = field.arg_name, " ".join((field.description or "").split())
            for word, names in _NAMES.items():
                text = text.replace(f"{{{word}}}", ", ".join(names))
            own = base.__annotations__[name]
            many = _MANY.get(own)  # tyro would say [STR [STR ...]]
            given = arg(help=text, help_behavior_hint=hints[name], metavar=many)
            base.__annotations__[name] = Annotated[own, given]


_FITTED = [method for method in reversed(METHODS.values()) if method.preset]
_NAMES: dict[str, Iterable[str]] = {
    "presets": {m.preset: f"{m.preset} ({m.label})" for m in _FITTED}.values(),
    "studies": STUDIES,
    "apart": APART,
    "main": MAIN,
}
_MANY: dict[Any, str] = {
    tuple[str, ...]: "STR ...",
    tuple[int, ...]: "INT ...",
    tuple[float, ...]: "FLOAT ...",
    tuple[Path, ...]: "PATH ...",
}


def _default(name: str, value: Any) -> str | None:
    """Text of a default: "" for an empty one, the flag of a switch that is on; None: as usual."""
    if isinstance(value, bool):
        return f"(default: --{name.replace('_', '-')})" if value else ""
    return "" if value in (None, "", (), MISSING) else None


def _located(command: Any) -> Any:
    """The command with every path that is a URL replaced by a `Remote`."""
    found: dict[str, Any] = {}
    for one in fields(command):
        value = getattr(command, one.name)
        if isinstance(value, Path):
            found[one.name] = locate(value)
        elif is_dataclass(value):
            found[one.name] = _located(value)
        elif isinstance(value, tuple) and any(isinstance(part, Path) for part in value):
            found[one.name] = tuple(locate(part) for part in value)
    return replace(command, **found)


def _device(command: Any) -> str:
    """The value of --device, in whichever field a command has it."""
    groups = [command, *vars(command).values()]
    return next((str(g.device) for g in groups if hasattr(g, "device")), "cpu")


def _elsewhere(command: Any) -> bool:
    """Whether only the workers of a cluster need the device."""
    return isinstance(command, Predict) and command.execution.engine == "ray"


def _check_device(name: str) -> None:
    """Refuse a missing device before any work."""
    if name == "cpu":
        return
    import torch

    try:
        found: Any = torch.device(name)
    except (RuntimeError, TypeError):
        raise DjepaError(f"There is no device '{name}'. Use --device cpu or cuda.") from None
    number = found.index or 0
    if found.type == "cuda" and number >= torch.cuda.device_count():
        raise DjepaError(f"There is no '{name}' here: torch sees no such GPU. Use --device cpu.")
    if found.type not in ("cpu", "cuda"):
        raise DjepaError(f"'{name}' is not supported. Use --device cpu or cuda.")


def _suggest(given: list[str]) -> None:
    """Suggest the nearest name for a misspelt command."""
    if not given or given[0].startswith("-") or given[0] in NAMES:
        return
    if given[0] in RENAMED:
        fail(f"`djepa {given[0]}` is now `djepa {RENAMED[given[0]]}`.")
        sys.exit(2)
    close = difflib.get_close_matches(given[0], NAMES, n=1, cutoff=0.4)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    fail(f"Unknown command '{given[0]}'.{hint} Known: {', '.join(NAMES)}.")
    sys.exit(2)
