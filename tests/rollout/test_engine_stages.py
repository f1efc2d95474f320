"""Stages write the same bytes whatever an engine does: here it works backwards, on copies.

`make cluster` compares them with real clusters.
"""

import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from djepa.align import fit as fitting
from djepa.align.fit import AlignConfig
from djepa.align.methods import Population
from djepa.align.operator import OperatorConfig
from djepa.align.outcomes import Outcomes
from djepa.align.presets import PAIR
from djepa.align.suite import Recipe, fit_suite
from djepa.bank import read
from djepa.bank.read import Bank
from djepa.evidence.evidence import Evidence
from djepa.interop.decide import decide_with, load_decider
from djepa.interop.record import write_decisions
from djepa.models import episodes
from djepa.models.lewm import LeWM
from djepa.models.predictions import predict_bank
from djepa.models.tdjepa import TDJEPA
from djepa.rollout.engine import CPU, Engine, Items, LocalEngine, Results, Work
from tiny import TINY

SMALL = OperatorConfig(inputs=1, width=8, layers=1, heads=2, hidden=8)


class Backwards:
    """The last item first; whatever goes to a worker, or comes back, is a copy."""

    items = 0

    def map(self, work: Work, items: Items, shared: Any = None, device: str = CPU) -> Results:
        more = () if shared is None else (_copy(shared),)
        for key, item in reversed(list(items)):
            Backwards.items += 1
            yield key, _copy(work(_copy(item), *more))


def _copy(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def all_stages(home: Path, engine: Engine) -> dict[str, bytes]:
    """Predict, fit, decide and simulate."""
    bank = Bank(home / "copy")
    for kind in (LeWM, TDJEPA):
        torch.manual_seed(0)
        model = kind(TINY).eval()
        predict_bank(bank, model, "abc", engine=engine)
    evidence, outcomes = Evidence.from_bank(bank, PAIR, PAIR), Outcomes.from_bank(bank)
    whole = Population(evidence, outcomes)
    parts = whole.rows(torch.arange(6)), whole.rows(torch.arange(6, 10))
    config = AlignConfig(updates=3, every=1, batch=4, operator=SMALL)
    recipe = Recipe({}, {f"updates {n}": replace(config, updates=n) for n in (2, 3)})
    fit_suite(home / "suite", *parts, {}, recipe=recipe, engine=engine)
    found = decide_with(engine, bank, load_decider(home / "suite" / "updates-3"))
    write_decisions(home / "decided.json", (one for part in found for one in part.records))
    shards = episodes.plan_shards(home / "episodes", 64, 0, ("T",))
    episodes.simulate_all(shards, engine, lambda done, total: None)
    files = [path for path in home.rglob("*") if path.is_file()]
    return {str(path.relative_to(home)): path.read_bytes() for path in files}


def test_neither_order_nor_copies_change_a_byte(
    small_bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, value in (
        (read, "PART", 2),
        (fitting, "AT_ONCE", 126),
        (episodes, "SHARD", 16),
    ):
        monkeypatch.setattr(module, name, value)
    homes = tmp_path / "forwards", tmp_path / "backwards"
    for home in homes:
        shutil.copytree(small_bank.path, home / "copy")
    one, other = (
        all_stages(home, engine)
        for home, engine in zip(homes, (LocalEngine(1), Backwards()), strict=True)
    )
    assert Backwards.items == 2 * 3 + 2 + 3 + 4
    assert {"decided.json", "suite/manifest.json", "episodes/episodes-00003.safetensors"} <= {*one}
    assert one == other
