"""Populations made by hand, and tiny studies that have run once."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from study_kit import Finished, Tiny, tiny_design

from djepa.align.methods import Population
from djepa.align.outcomes import Outcomes
from djepa.evidence.evidence import Evidence

MakePopulation = Callable[..., Population]


def make_population(
    costs: Any,
    success: Any,
    ids: Any = None,
    others: Mapping[str, Any] | None = None,
    task: Any = None,
    latent: int = 4,
) -> Population:
    """(N, K) native costs of TD-JEPA and outcomes; IDs and task costs follow, unless given.

    Every geometry, TD-JEPA first, has random last latents.
    """
    native, won = np.asarray(costs, float), np.asarray(success, bool)
    N, K = native.shape
    if ids is None:
        ids = np.tile(np.arange(K), (N, 1))
    stored = {"tdjepa": native} | {name: np.asarray(c, float) for name, c in (others or {}).items()}
    rng = np.random.default_rng(7)
    ends = {name: rng.normal(size=(N, K, latent)).astype(np.float32) for name in stored}
    goals = {name: np.zeros((N, latent), np.float32) for name in stored}
    names = [f"{n:064x}" for n in range(N)]
    evidence = Evidence.from_arrays(
        start_ids=names,
        candidate_ids=np.asarray(ids, np.int64),
        costs=stored,
        latents=ends,
        goals=goals,
    )
    paid = np.where(won, 0.5, 1.5) if task is None else np.asarray(task, float)
    tensors = (torch.from_numpy(x) for x in (won, np.ones_like(won), paid))
    return Population(evidence, Outcomes(evidence.identities, *tensors))


@pytest.fixture(scope="session")
def population() -> MakePopulation:
    """`make_population`."""
    return make_population


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    """Name -> a study that has run once, in a folder of that name. Not to be written to.

    Test workers share them: whoever comes first runs the study, others wait for it.
    """
    made: dict[str, Tiny] = {}
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "studies"
    root.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:

        def make(name: str) -> Tiny:
            if name not in made:
                tiny = Tiny(tiny_design(name, patch), root / name)
                with (root / f"{name}.lock").open("w") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX)
                    if not (root / f"{name}.done").exists():
                        stages = [stage.name for stage in tiny.study.stages()]
                        assert tiny.run() == stages
                        assert stages[-3:] == ["tables", "figures", "page"]
                        (root / f"{name}.done").touch()
                made[name] = tiny
            return made[name]

        yield make


@pytest.fixture
def again(finished: Finished, tmp_path: Path) -> Finished:
    """Name -> a copy to work on, with all its times."""

    def copy(name: str) -> Tiny:
        whole = finished(name)
        return Tiny(whole.design, Path(shutil.copytree(whole.out, tmp_path / name)))

    return copy
