"""Every chooser: decided by evidence alone, the lowest score, the same in any order."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from djepa.align.compose import PUBLISHED, Pair, compose
from djepa.align.fit import AlignConfig, Alignment
from djepa.align.gates import NEVER, Gate
from djepa.align.methods import (
    PLASTIC,
    TUNED,
    Choice,
    Chooser,
    Mixture,
    Population,
    aligned,
    composed,
    densest,
    fit_aligned,
    fit_composed,
    lowest,
    native,
    pair_of,
    successes,
    with_plastic,
)
from djepa.align.operator import OperatorConfig
from djepa.align.outcomes import Outcomes
from djepa.align.presets import FOUR, PAIR
from djepa.evidence.evidence import Evidence
from djepa.evidence.ranks import best

QUICK = AlignConfig(
    updates=8,
    every=4,
    batch=8,
    rate=1e-2,
    operator=OperatorConfig(inputs=1, width=8, layers=1, heads=2, hidden=8, epsilon=0.5),
)


def population(split: str, N: int = 24, K: int = 10) -> Population:
    """Six geometries; costs of few values, so that ties are common, and some outcomes not seen."""
    rng = np.random.default_rng([ord(c) for c in split])
    success = rng.random((N, K)) < 0.3
    names = (*FOUR, PLASTIC, TUNED)
    costs = {name: (4 * rng.random((N, K)) + ~success).round() + 1 for name in names}
    ends = {name: rng.normal(size=(N, K, 4)).astype(np.float32) for name in (*PAIR, PLASTIC)}
    goals = {name: rng.normal(size=(N, 4)).astype(np.float32) for name in (*PAIR, PLASTIC)}
    ids = rng.random((N, K)).argsort(1) * 2 + 1
    evidence = Evidence.from_arrays(
        start_ids=[f"{split}-{n}" for n in range(N)],
        candidate_ids=ids,
        costs=costs,
        latents=ends,
        goals=goals,
    )
    seen = torch.from_numpy(rng.random((N, K)) < 0.9)
    seen[:, :2] = True
    return Population(evidence, Outcomes(evidence.identities, torch.from_numpy(success), seen))


@dataclass
class Fitted:
    """Populations, and one chooser of every kind."""

    fit: Population
    test: Population
    calibration: Population
    relational: Alignment
    choosers: dict[str, Chooser] = field(default_factory=dict)


def half_open(alignment: Alignment, e: Evidence) -> Alignment:
    """Noise teaches nothing: weights that move scores, a gate open for half of these starts."""
    assert alignment.operator is not None
    random = torch.Generator().manual_seed(0)
    torch.nn.init.normal_(alignment.operator.up.weight, generator=random)
    base, refined = alignment.scores(e)
    alignment.gate = Gate(float(Gate().advantage(base, refined, e.ids).median()))
    return alignment


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    fit, calibration, test = (population(split) for split in ("fit", "cal", "test"))
    relational = half_open(fit_aligned(QUICK, fit, calibration), test.evidence)
    logs = replace(QUICK, mixture="log", density=PAIR, base=FOUR, policy="careful")
    threshold = fit_composed(relational, calibration)
    choosers: dict[str, Chooser] = {
        "native": native("jepawm"),
        "native adapted": native(PLASTIC),
        "densest": densest("lewm"),
        "two": Mixture.fit(PAIR, fit),
        "density and two": Mixture.fit(PAIR, fit, "tdjepa"),
        "aligned": aligned(relational),
        "log aligned": aligned(fit_aligned(logs, fit, calibration)),
        "composed": composed(relational, threshold),
        "composed, never": composed(relational, NEVER),
        "composed, always": composed(relational, -10.0),
    }
    return Fitted(fit, test, calibration, relational, choosers)


KINDS = [
    *("native", "native adapted", "densest", "two", "density and two", "aligned"),
    *("log aligned", "composed", "composed, never", "composed, always"),
]


def first(score: Tensor, ids: Tensor) -> list[int]:
    """Positions of the lowest scores, ties to the smaller ID, one by one."""
    rows = zip(score.tolist(), ids.tolist(), strict=True)
    return [min(range(len(i)), key=lambda k: (s[k], i[k])) for s, i in rows]


def same(one: Choice, other: Choice) -> bool:
    pairs = zip(one, other, strict=True)
    return all(torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in pairs)


@pytest.mark.parametrize("kind", KINDS)
def test_the_choice_is_the_lowest_score(kind: str, fitted: Fitted) -> None:
    e = fitted.test.evidence
    choice = fitted.choosers[kind](e)
    assert choice.score.dtype == torch.float64
    assert choice.score.shape == e.ids.shape
    assert choice.position.tolist() == first(choice.score, e.ids)


def test_where_the_gate_is_shut_the_base_chooses(fitted: Fitted) -> None:
    e = fitted.test.evidence
    choice = fitted.choosers["aligned"](e)
    assert choice.base is not None
    assert choice.opened is not None
    base, refined = fitted.relational.scores(e)
    for n, opened in enumerate(choice.opened.tolist()):
        assert torch.equal(choice.score[n], refined[n].double() if opened else base[n])
    assert 0 < int(choice.opened.sum()) < len(e)
    assert first(refined, e.ids) != first(base, e.ids)
    assert torch.equal(choice.base, base)
    assert choice.advantage is not None
    assert choice.threshold is not None
    assert torch.equal(choice.advantage > choice.threshold, choice.opened)


@pytest.mark.parametrize("kind", KINDS)
def test_outcomes_of_the_test_starts_decide_nothing(kind: str, fitted: Fitted) -> None:
    """Everything reachable is scrambled in place: the same tensors, whoever kept a hold of them."""
    choose, test = fitted.choosers[kind], fitted.test
    before, rng = choose(test.evidence), torch.Generator().manual_seed(0)
    kept = []
    for outcomes in (fitted.fit.outcomes, fitted.calibration.outcomes, test.outcomes):
        kept.append((outcomes, outcomes.success.clone(), outcomes.observed.clone()))
        outcomes.success.bitwise_xor_(torch.rand(outcomes.success.shape, generator=rng) < 0.5)
        outcomes.observed.bitwise_xor_(torch.rand(outcomes.success.shape, generator=rng) < 0.5)
        assert not torch.equal(outcomes.success, kept[-1][1])
    try:
        assert same(before, choose(test.evidence))
        found = successes({"it": choose}, test)["it"]
        at = before.position.tolist()
        assert found.tolist() == [bool(test.outcomes.success[n, i]) for n, i in enumerate(at)]
    finally:
        for outcomes, success, observed in kept:
            outcomes.success.copy_(success)
            outcomes.observed.copy_(observed)


@pytest.mark.parametrize("kind", KINDS)
def test_order_of_candidates_and_company_of_starts_change_no_choice(
    kind: str, fitted: Fitted
) -> None:
    e, choose = fitted.test.evidence, fitted.choosers[kind]
    N, K = e.ids.shape
    ids = e.ids.gather(1, choose(e).position[:, None])
    p = torch.rand(N, K, generator=torch.Generator().manual_seed(1)).argsort(1)
    mixed = e.columns(p)
    assert torch.equal(mixed.ids.gather(1, choose(mixed).position[:, None]), ids)
    alone = [e.rows([n]).ids[0, choose(e.rows([n])).position[0]] for n in range(N)]
    assert torch.equal(torch.stack(alone), ids[:, 0])


@pytest.mark.parametrize("kind", KINDS)
def test_choosing_leaves_the_evidence_as_it_was(kind: str, fitted: Fitted) -> None:
    before = population("test").evidence
    fitted.choosers[kind](fitted.test.evidence)
    after = fitted.test.evidence
    assert torch.equal(before.costs, after.costs)
    assert all(torch.equal(end, after.latents[name]) for name, end in before.latents.items())


# ---------------------------------------------------------------------------------- by hand


def tiny() -> Evidence:
    """One pool of three whose ends are 0, 1 and 10 (tdjepa) or 0, 9 and 10 (adapted)."""
    costs = {"lewm": [[1.0, 3.0, 2.0]], "tdjepa": [[2.0, 2.0, 1.0]], PLASTIC: [[5.0, 4.0, 6.0]]}
    ends = {"tdjepa": [[[0.0], [1.0], [10.0]]], PLASTIC: [[[0.0], [9.0], [10.0]]]}
    goals = {name: np.float32([[0.5]]) for name in ends}
    latents = {name: np.float32(end) for name, end in ends.items()}
    return Evidence.from_arrays(
        start_ids=["s"], candidate_ids=[[7, 3, 5]], costs=costs, latents=latents, goals=goals
    )


def test_one_geometry_by_hand() -> None:
    e = tiny()
    assert native("lewm")(e).score.tolist() == [[1.0, 3.0, 2.0]]
    assert native("lewm")(e).position.tolist() == [0]
    assert densest("tdjepa")(e).score.tolist() == [[5.5, 5.0, 9.5]]
    assert densest("tdjepa")(e).position.tolist() == [1]
    assert densest(PLASTIC)(e).score.tolist() == [[9.5, 5.0, 5.5]]
    assert lowest(torch.tensor([[2.0, 2.0, 3.0]]), e.ids).position.tolist() == [1]  # ID 3, not 7


def test_mixtures_by_hand() -> None:
    """Ranks: lewm 0 1 .5; tdjepa 1 .5 0, a tie to ID 3; its density .5 0 1."""
    two = Mixture(PAIR, (0.25, 0.75))(tiny())
    assert two.score.tolist() == [[0.75, 0.625, 0.125]]
    assert two.position.tolist() == [2]
    three = Mixture(PAIR, (0.25, 0.25, 0.5), "tdjepa")(tiny())
    assert three.score.tolist() == [[0.5, 0.375, 0.625]]
    assert three.position.tolist() == [1]


def test_a_fitted_mixture_weights_the_input_that_predicts() -> None:
    fit = population("fit")
    costs = fit.evidence.costs.clone()
    costs[..., 1] = (~fit.outcomes.success).double()
    telling = Population(replace(fit.evidence, costs=costs), fit.outcomes)
    solvable = (fit.outcomes.success & fit.outcomes.observed).any(1)
    for names, dense in ((PAIR, None), (PAIR, "lewm"), (("dinowm", "tdjepa"), None)):
        mixture = Mixture.fit(names, telling, dense)
        assert (mixture.names, mixture.dense) == (names, dense)
        assert len(mixture.weights) == 2 + (dense is not None)
        score = mixture(telling.evidence).score.masked_fill(~fit.outcomes.observed, torch.inf)
        won = fit.outcomes.success.gather(1, best(score, fit.evidence.ids)[:, None])[:, 0]
        assert torch.equal(won & solvable, solvable)
    # What was not executed has no say.
    hidden = replace(fit.outcomes, success=fit.outcomes.success ^ ~fit.outcomes.observed)
    assert Mixture.fit(PAIR, Population(fit.evidence, hidden)) == Mixture.fit(PAIR, fit)


def test_the_adapted_predictor_stands_for_its_original() -> None:
    e = population("test").evidence
    swapped = with_plastic(e)
    for m, name in enumerate(e.names):
        source = e.names.index(PLASTIC) if name == "tdjepa" else m
        assert torch.equal(swapped.costs[..., m], e.costs[..., source]), name
    for name in e.latents:
        source = PLASTIC if name == "tdjepa" else name
        assert torch.equal(swapped.latents[name], e.latents[source]), name
    assert not torch.equal(e.costs[..., 1], swapped.costs[..., 1])
    assert (swapped.identities, swapped.names) == (e.identities, e.names)
    assert torch.equal(swapped.ids, e.ids)
    assert all(torch.equal(swapped.goals[name], goal) for name, goal in e.goals.items())


class Scripted:
    """An alignment that says what the test sets; of adapted futures the proposals."""

    def __init__(self, proposals: list[float]) -> None:
        self.base = torch.tensor([[0.4, 0.2, 0.3]]).double()
        self.refined = torch.tensor([[0.1, 0.3, 0.4]])
        self.proposals = torch.tensor([proposals])

    def decide(self, e: Evidence) -> SimpleNamespace:
        assert e.costs[0, :, 1].tolist() == [2.0, 2.0, 1.0]
        return SimpleNamespace(base=self.base, refined=self.refined, position=torch.tensor([0]))

    def scores(self, e: Evidence) -> tuple[Tensor, Tensor]:
        assert e.costs[0, :, 1].tolist() == [5.0, 4.0, 6.0]
        assert e.latents["tdjepa"][0, :, 0].tolist() == [0.0, 9.0, 10.0]
        return self.base + 1, self.proposals


@pytest.mark.parametrize(
    ("proposals", "position", "score"),
    [([0.3, 0.2, 0.095], 0, [0.1, 0.2, 0.3]), ([0.3, 0.2, 0.01], 2, [0.3, 0.2, 0.01])],
)
def test_composition_by_hand(proposals: list[float], position: int, score: list[float]) -> None:
    """The published example: gains of .005 and .09 against a threshold of .0065."""
    alignment = Scripted(proposals)
    choice = composed(alignment, PUBLISHED)(tiny())  # type: ignore[arg-type]
    assert choice.position.tolist() == [position]
    assert choice.score[0].tolist() == pytest.approx(score, abs=1e-7)
    assert choice.opened is not None
    assert choice.opened.tolist() == [position == 2]
    assert choice.base is not None
    assert choice.base[0].tolist() == pytest.approx([0.1, 0.2, 0.3], abs=1e-7)  # the default g


def test_composition_is_that_of_its_parts(fitted: Fitted) -> None:
    e, alignment = fitted.test.evidence, fitted.relational
    swapped = population("test").evidence
    costs, m = swapped.costs, e.names.index(PLASTIC)
    costs[..., e.names.index("tdjepa")] = costs[..., m]
    ends = {**swapped.latents, "tdjepa": swapped.latents[PLASTIC]}
    d, proposals = alignment.decide(e), alignment.scores(replace(swapped, latents=ends))[1]
    assert not torch.equal(proposals, d.refined)
    pair = Pair(e.ids, d.base, d.refined, d.position, proposals)
    gain = pair.default().amin(1) - proposals.double().amin(1)
    for threshold in (NEVER, float(gain.median()), -10.0):
        expected, choice = compose(pair, threshold), composed(alignment, threshold)(e)
        assert torch.equal(choice.position, expected.position)
        assert torch.equal(choice.opened, expected.opened)  # type: ignore[arg-type]
    never, always = (fitted.choosers[f"composed, {word}"](e) for word in ("never", "always"))
    assert torch.equal(never.position, aligned(alignment)(e).position)
    assert always.position.tolist() == first(proposals, e.ids)


def test_the_composition_is_calibrated_for_successes(fitted: Fitted) -> None:
    """At least as many as with either alone, on starts whose winner was executed."""
    calibration, alignment = fitted.calibration, fitted.relational
    seen, success = calibration.outcomes.observed, calibration.outcomes.success
    pair = pair_of(alignment, calibration.evidence)
    known = seen.gather(1, pair.relational[:, None])[:, 0]

    def hits(threshold: float) -> int:
        proposals = pair.proposals.double().masked_fill(~seen, 1e300)
        position = compose(replace(pair, proposals=proposals), threshold).position
        return int((success & seen).gather(1, position[:, None])[known].sum())

    found = fit_composed(alignment, calibration)
    assert hits(found) == max(hits(tau) for tau in (found, NEVER, -10.0))


def test_fitting_is_fitting_then_calibrating() -> None:
    fit, calibration, test = (population(split) for split in ("fit", "cal", "test"))
    by_hand = Alignment(QUICK).fit(fit.evidence, fit.outcomes)
    by_hand.calibrate(calibration.evidence, calibration.outcomes)
    choices = [aligned(a)(test.evidence) for a in (by_hand, fit_aligned(QUICK, fit, calibration))]
    assert same(*choices)


@pytest.mark.parametrize("pick", [[3, 0], torch.tensor([False, True] * 12)])
def test_some_starts_of_a_population(pick: object) -> None:
    whole = population("test")
    part = whole.rows(torch.as_tensor(pick))
    part.outcomes.check(part.evidence)
    at = [3, 0] if isinstance(pick, list) else list(range(1, 24, 2))
    assert part.evidence.identities == tuple(f"test-{n}" for n in at)
    assert torch.equal(part.evidence.costs, whole.evidence.costs[at])
    assert torch.equal(part.outcomes.success, whole.outcomes.success[at])
