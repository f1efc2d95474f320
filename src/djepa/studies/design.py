"""The design of a study: its cases, its methods, its comparisons and its measures.

A case is a set of starts on which methods are compared: a kind of pools, a shape, a look. Cases of
one group share fitted methods. A new study is one `Design`: see pusht.py, reacher.py, granular.py
and shifts.py. A `Measure` measures something beside success; any design can list it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from djepa.align.fit import AlignConfig, Alignment
from djepa.align.methods import Chooser, Population
from djepa.align.registry import slug
from djepa.align.suite import Recipe
from djepa.bank.read import Bank
from djepa.evaluate.rows import Row
from djepa.evaluate.verdict import Comparison
from djepa.evidence.evidence import Evidence
from djepa.report.tables import Table
from djepa.rollout.bimanual import BimanualConfig
from djepa.rollout.driving import TrafficConfig
from djepa.rollout.engine import Engine, LocalEngine
from djepa.rollout.execute import CollectConfig, Proposer
from djepa.studies.populations import has_both
from djepa.studies.stages import Say
from djepa.tasks.task import PLAIN

if TYPE_CHECKING:
    from djepa.studies.results import Results
    from djepa.studies.study import Study

ROLES = ("fit", "calibration", "confirmation", "audit", "mechanism")


@dataclass(frozen=True)
class Place:
    """Where a study runs."""

    out: Path
    engine: Engine
    device: str = "cpu"
    seed: int = 0
    recorded: Path | None = None  # folder of recorded scenes, for studies that can use them

    def fits(self, group: str) -> Path:
        """Folder of the suite that was fitted for a group of cases."""
        return self.out / "fits" / group

    def own(self, group: str, method: str) -> Path:
        """Folder of a fit outside the suite; it is finished once it has a manifest."""
        return self.out / "fits" / f"{group}-own" / slug(method)

    def made(self, group: str, method: str) -> bool:
        """Whether the fit in `own` is finished."""
        return (self.own(group, method) / "manifest.json").exists()


@dataclass(frozen=True)
class Sizes:
    """Numbers of starts, over all cases of a group; populations share no start."""

    fit: int
    calibration: int
    confirmation: int
    searched: int = 0  # confirmation starts of planner pools, and episodes with far goals: costly
    audit: int = 0
    plastic: tuple[int, int] = (0, 0)  # fitting and calibration starts of adapted predictors
    curve: tuple[int, ...] = ()  # fitting starts of a learning curve
    repeats: int = 10  # of a latency measurement,
    timed: int = 256  # and its starts
    updates: int | None = None  # most updates of an operator
    shipped: bool = False  # use the fitted methods of the package instead of fitting
    retained: int = 0  # confirmation starts of the paper's PushT pools
    mechanism: int = 0  # starts of the paper's ablations
    adapted: int = 0  # updates of adapted predictors, with one rate and one cap; 0: as published


@dataclass(frozen=True)
class Case:
    """Starts on which methods are compared."""

    name: str  # in the tables
    bank: CollectConfig | TrafficConfig | BimanualConfig
    look: str = PLAIN
    group: str = "all"  # cases of one group share fitted methods
    part: tuple[int, int] | None = None  # first and last start of the bank; None: all of them
    rule: str = ""  # success rule, if not the bank's,
    scale: float = 1.0  # and the factor of the bank's costs for it
    proposer: Callable[[str], Proposer] | None = None  # device -> a search that makes the pools

    @property
    def folder(self) -> str:
        """Folder of its bank; cases that differ only in look, rule or part share one."""
        b = self.bank
        return f"{b.split}/{b.shape}-{b.profile}".replace("+", "plus")


@dataclass(frozen=True)
class Source:
    """Functions of a study whose starts are not in the bank of a world."""

    collect: Callable[["Study", Case, Say], str]  # adds missing starts; hash of the folder
    open: Callable[[Path], Any]  # reads that folder; has `hash` and `config.rule`
    population: Callable[["Study", str, Case], Population]  # of a role and a case
    choosers: Callable[["Study", Case], Mapping[str, Chooser]]  # additional methods


@dataclass(frozen=True)
class Measure:
    """A plug-in: something measured for a case, stored as JSON, and shown in a section of the page.

    `run` returns what is stored in measures/NAME/CASE.json; arrays may be stored beside it. The
    tables and the figures are made from stored files alone.
    """

    name: str
    title: str
    text: tuple[str, ...] = ()
    run: Callable[["Study", Case, Say], Any] | None = None  # None: computed from the rows alone
    tables: Callable[["Results"], Iterable[Table]] = lambda results: ()
    figures: Callable[["Results", Path], Iterable[tuple[str, str]]] = lambda results, folder: ()
    only: tuple[str, ...] = ()  # names of cases; all if empty
    when: Callable[[Sizes], bool] = lambda sizes: True


@dataclass(frozen=True, kw_only=True)
class Design:
    """Everything that defines a study."""

    name: str
    title: str
    question: tuple[str, ...]  # paragraphs at the head of the page
    sizes: Mapping[str, Sizes]  # preset -> sizes

    # Starts, candidates and evidence.
    cases: Callable[[str, Sizes, Place], list[Case]]  # of a role
    weights: tuple[str, ...]  # geometries by the names of their weights
    evidence: Callable[[Bank, str], Evidence]  # bank, look
    source: Source | None = None  # for starts that are not collected as banks
    prepare: Callable[["Study", str, Say], None] | None = None  # makes further evidence of a group
    summary: bool = False  # store summaries of wide latents
    sparse: int = 0  # candidates of a fitting start that count as executed; 0: all
    clustered: bool = False  # cases share their starts

    # Fits and methods.
    recipe: Recipe  # of the suite
    natives: Mapping[str, str]  # method -> column of the evidence
    density: tuple[str, ...]  # columns whose predicted ends give a pool density control
    here: Mapping[str, AlignConfig] = field(default_factory=dict)  # fitted beside shipped ones
    shipped: Path | None = None  # fitted methods shipped with the package, by group
    extra: Callable[["Study", str, Say], Mapping[str, Alignment]] | None = None  # more fits
    decide: Callable[["Study", Case, Say], list[Row]] | None = None  # rows of a case without a bank
    first: str = ""  # name of the candidate with the smallest ID, if it is special
    realised: str = ""  # geometry whose executed latents give an upper bound

    # Comparisons, by names of methods.
    ours: str = "D-JEPA"
    published: str = "relational"
    fusion: str  # the second primary comparison
    control: str  # the third: fusion with the rank of pool density
    base: str = ""  # base score of the published operator, if not that fusion
    against: tuple[str, ...] = ()  # further methods that ours is compared with
    adapted: tuple[str, ...] = ()  # methods that are themselves compared with the best geometry
    declared: tuple[Comparison, ...] = ()  # the primary comparisons, if not those of `comparisons`
    together: bool = False  # whether cases of one group are also counted together

    # Measures and tables.
    measures: tuple[Measure, ...] = ()
    blocks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # ablations: first = base
    eligible: Callable[[Population], list[bool]] = has_both  # starts on which a decision matters
    rule: str = ""  # name of that rule, if tables also show the eligible starts
    unit: tuple[float, str] | None = None  # factor of costs and a note that names their unit
    graded: str = ""  # name of a quality in [0, 1], if outcomes are graded: costs are 1 - quality
    pools: Mapping[str, str] = field(default_factory=dict)  # case -> kind of its pools
    paper: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # view -> its pools, case
    paper_names: Mapping[str, str] = field(default_factory=dict)  # the paper's method -> ours
    task: str = ""  # name of the paper's study whose figures are shown, if different

    @property
    def primary(self) -> tuple[str, ...]:
        """The first geometry and the two fusions, which summaries show beside ours."""
        return next(iter(self.natives)), self.fusion, self.control

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """The primary comparisons, declared before any confirmation start is seen.

        Ours with the single geometry that solves most of the same starts, with fusion and with the
        control; D-JEPA as published with its base score; adapted predictors with the unadapted
        geometry.
        """
        if self.declared:
            return self.declared
        single = [name for name in self.natives if name.startswith("native")]
        ours = [Comparison.of(self.ours, *of) for of in (single, [self.fusion], [self.control])]
        adapted = [Comparison.of(name, self.primary[0]) for name in self.adapted]
        return *ours, Comparison.of(self.published, self.base or self.fusion), *adapted

    @property
    def names(self) -> list[str]:
        """Names of the confirmation cases."""
        return [case.name for case in self._confirmation()]

    def units(self) -> dict[str, list[str]]:
        """Name -> cases of one verdict: each group of cases, or each case."""
        cases = self._confirmation()
        if not self.together:
            return {case.name: [case.name] for case in cases}
        found: dict[str, list[str]] = {}
        for case in cases:
            found.setdefault(case.group, []).append(case.name)
        return {"all" if len(found) == 1 else f"all {g}": names for g, names in found.items()}

    def _confirmation(self) -> list[Case]:
        sizes = Sizes(1000, 1000, 1000, 1000, retained=1000)  # names do not depend on sizes
        everywhere = Place(Path(), LocalEngine(1), recorded=Path())
        return self.cases("confirmation", sizes, everywhere)


def split_of(study: str, role: str) -> str:
    """Name of the split of a role: no two share a start.

    Confirmation starts are a second set: our method was changed after evaluation on the first.
    """
    return f"{study}-{role}-2" if role == "confirmation" else f"{study}-{role}"


def share_out(starts: int, names: Sequence[str]) -> dict[str, int]:
    """Divide `starts` equally among `names`; the first ones get the remainder."""
    each, left = divmod(starts, len(names))
    return {name: each + (i < left) for i, name in enumerate(names)}
