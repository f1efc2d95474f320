"""`djepa.fit` for any evidence: the configuration follows from what is there."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import djepa
from djepa.align.fit import AlignConfig, Alignment
from djepa.align.presets import best_for, published_for
from djepa.errors import DjepaError
from djepa.evidence.evidence import Evidence


def made(split: str = "fit", M: int = 1, seen: str = "", N: int = 30, K: int = 6) -> Evidence:
    """M models m0, m1, ...; `seen`: l latents, g goals too."""
    rng = np.random.default_rng([M, len(split)])
    names = [f"m{m}" for m in range(M)]
    latents = {name: rng.normal(size=(N, K, 3)) for name in names} if "l" in seen else None
    goals = {name: rng.normal(size=(N, 3)) for name in names} if "g" in seen else None
    return Evidence.from_arrays(
        start_ids=[f"{split}-{n}" for n in range(N)],
        candidate_ids=np.tile(np.arange(K), (N, 1)),
        costs={name: rng.random((N, K)) for name in names},
        latents=latents,
        goals=goals,
    )


def outcomes(split: str = "fit", N: int = 30, K: int = 6) -> Any:
    return np.random.default_rng(len(split)).random((N, K)) < 0.4


@pytest.mark.parametrize("M", [1, 2, 3])
@pytest.mark.parametrize("seen", ["", "l", "lg"])
def test_the_default_takes_what_there_is(M: int, seen: str) -> None:
    evidence = made(M=M, seen=seen)
    config = best_for(evidence)
    assert (config.base, config.ranked, config.dense) == (evidence.names, evidence.names, ())
    assert config.density == (evidence.names if seen else ())
    assert (config.mixture, config.policy) == ("log+ranks", "careful")
    alignment = djepa.fit(evidence, outcomes(), config=replace(config, updates=3))
    alignment.calibrate(made("cal", M, seen), outcomes("cal"))
    assert alignment.decide(made("new", M, seen)).choice.shape == (30,)


def test_the_published_preset_needs_directions() -> None:
    for M in (1, 2, 3):
        config = published_for(made(M=M, seen="lg"))
        assert (config.mixture, config.policy, config.mode) == (
            "ranks",
            "permissive",
            "base_minus_refined",
        )
        assert config.dense == config.ranked == config.base == tuple(f"m{m}" for m in range(M))
    for seen in ("", "l"):
        with pytest.raises(DjepaError, match="latents= and goals="):
            djepa.fit(made(seen=seen), outcomes(), preset="published")
    with pytest.raises(DjepaError, match="Did you mean 'published'"):
        djepa.fit(made(), outcomes(), preset="publishd")


def test_costs_below_zero_are_ranked() -> None:
    evidence = made(M=2, seen="l")
    below = replace(evidence, costs=evidence.costs - 0.5)
    config = best_for(below)
    assert (config.mixture, config.density, config.extras) == ("ranks", (), ("agreement",))
    djepa.fit(below, outcomes(), config=replace(config, updates=2))


def test_large_pools_are_fitted_in_small_batches() -> None:
    ours, published = (Alignment(of) for of in (best_for(made()), AlignConfig()))
    for K, batch in {63: 32, 512: 32, 1024: 8, 4096: 1}.items():
        assert ours._size(40, K) == batch
        assert published._size(40, K) == 8  # no attention weights are dropped, so none are held
    assert ours._size(5, 63) == 5


def test_one_call_is_the_long_way(tmp_path: Path) -> None:
    evidence, config = made(seen="lg"), replace(best_for(made(seen="lg")), updates=4)
    alignment = djepa.fit(evidence, outcomes(), config=config, seed=5)
    assert alignment.config == replace(config, seed=5)
    known = djepa.Outcomes.from_arrays(evidence, outcomes())
    other = djepa.Alignment(replace(config, seed=5)).fit(evidence, known)
    assert alignment.report == other.report
    with pytest.raises(DjepaError, match="Fit and calibrate"):
        alignment.save(tmp_path / "none")
    alignment.calibrate(made("cal", seen="lg"), outcomes("cal")).save(str(tmp_path / "kept"))
    again, new = djepa.load(str(tmp_path / "kept")), made("new", seen="lg")
    assert torch.equal(again.decide(new).final, alignment.decide(new).final)


def test_arguments_in_the_wrong_place() -> None:
    with pytest.raises(DjepaError, match="Evidence comes first"):
        djepa.fit(outcomes(), made())  # type: ignore[arg-type]
    with pytest.raises(DjepaError, match="not of the same starts"):
        djepa.fit(made(), djepa.Outcomes.from_arrays(made("cal"), outcomes()))


def test_names_of_the_package() -> None:
    for name in djepa.__all__:
        assert getattr(djepa, name) is not None
    assert set(djepa.__all__) <= set(dir(djepa))
    with pytest.raises(AttributeError, match="no attribute 'fitt'"):
        djepa.fitt  # noqa: B018
