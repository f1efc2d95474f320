"""The operator: starts as the base score, stays within ε of it, and knows no candidate order."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from djepa.align.operator import OperatorConfig, RelationalOperator
from djepa.errors import DjepaError


def operator(seed: int = 0, trained: float = 1.0, **config: object) -> RelationalOperator:
    """An operator whose last layer is not zero any more, unless `trained` is 0."""
    random = torch.Generator().manual_seed(seed)
    sizes = OperatorConfig(**{"inputs": 5, **config})  # type: ignore[arg-type]
    made = RelationalOperator(sizes, random)
    torch.nn.init.normal_(made.up.weight, std=trained, generator=random) if trained else None
    return made.eval()


def pools(seed: int, N: int = 3, K: int = 9, F: int = 5) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(N, K, F, generator=g), torch.rand(N, K, generator=g, dtype=torch.float64)


@pytest.mark.parametrize("relations", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_a_fresh_operator_is_the_base_score_bit_for_bit(relations: bool, grad: bool) -> None:
    tokens, base = pools(1)
    fresh = operator(trained=0.0, relations=relations)
    for mode in (True, False):
        with torch.set_grad_enabled(grad):
            scores, delta = fresh.train(mode)(1e3 * tokens, base)
        assert scores.dtype == torch.float32
        assert torch.equal(scores.view(torch.int32), base.float().view(torch.int32))
        assert not delta.any()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    K=st.integers(2, 80),
    scale=st.sampled_from([0.1, 1.0, 1e3, 1e30]),
    epsilon=st.sampled_from([0.2, 0.1, 0.3, 0.7, 1.0, 1e-3]),
)
def test_corrections_never_exceed_epsilon(seed: int, K: int, scale: float, epsilon: float) -> None:
    """Compared as real numbers: float32(0.2) itself is larger than 0.2."""
    tokens, base = pools(seed % 997, 2, K)
    scores, delta = operator(seed % 7, scale, epsilon=epsilon)(tokens, base)
    assert delta.double().abs().max() <= epsilon
    assert torch.equal(scores, base.float() + delta)


def test_huge_weights_everywhere_saturate() -> None:
    made = operator()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter *= 1e6
    _, delta = made(*pools(0))
    assert delta.double().abs().max() <= 0.2
    assert delta.abs().max() > 0.19


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 80), st.booleans())
def test_candidate_order_permutes_the_output(seed: int, K: int, relations: bool) -> None:
    tokens, base = pools(seed % 9973, 2, K)
    tokens[:, 1], base[:, 1] = tokens[:, 0], base[:, 0]  # exact twins
    made = operator(seed % 5, relations=relations)
    p = torch.randperm(K, generator=torch.Generator().manual_seed(seed % 2**31))
    with torch.no_grad():
        scores, delta = made(tokens, base)
        mixed, moved = made(tokens[:, p], base[:, p])
    torch.testing.assert_close(mixed, scores[:, p], atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(moved, delta[:, p], atol=1e-6, rtol=1e-6)


def test_candidates_see_each_other_unless_told_not_to() -> None:
    tokens, base = pools(2)
    other = tokens.clone()
    other[:, 0] += 1.0
    for relations in (True, False):
        made = operator(relations=relations)
        moved = (made(tokens, base)[1] - made(other, base)[1]).abs()
        assert moved[:, 0].min() > 1e-4
        assert (moved[:, 1:].max() > 1e-4) == relations
    assert sum(p.numel() for p in operator(relations=True).parameters()) == sum(
        p.numel() for p in operator(relations=False).parameters()
    )


def test_starts_do_not_see_each_other() -> None:
    tokens, base = pools(3)
    made = operator()
    torch.testing.assert_close(made(tokens[1:2], base[1:2])[0], made(tokens, base)[0][1:2])


def test_training_and_deciding_paths_agree() -> None:
    tokens, base = pools(4)
    made = operator()
    with torch.no_grad():
        fast = made.eval()(tokens, base)[0]
    torch.testing.assert_close(made.train()(tokens, base)[0], fast, atol=1e-6, rtol=1e-6)


def test_published_sizes() -> None:
    made = operator(inputs=386, trained=0.0)
    assert made.encoder(torch.zeros(1, 2, 386)).shape == (1, 2, 64)
    assert [tuple(w.shape) for w in (made.down.weight, made.up.weight)] == [(8, 64), (1, 8)]
    assert made.down.bias is None
    assert made.up.bias is None
    assert len(made.relations) == 2
    layer = made.relations[0]
    assert (layer.self_attn.heads, layer.linear1.out_features) == (4, 128)
    names = [type(module).__name__ for module in made.encoder]
    assert names == ["Identity", "Linear", "LayerNorm", "GELU"]
    names = [type(module).__name__ for module in operator(norm_first=True).encoder]
    assert names == ["Identity", "LayerNorm", "Linear", "GELU"]


def test_one_step_moves_the_last_layer() -> None:
    made = operator(trained=0.0).train()
    tokens, base = pools(5)
    made(tokens, base)[0][:, 0].sum().backward()
    assert made.up.weight.grad is not None
    assert made.up.weight.grad.abs().max() > 0


def test_three_hundred_candidates() -> None:
    tokens, base = pools(6, 1, 300)
    assert operator()(tokens, base)[0].shape == (1, 300)


@pytest.mark.parametrize("config", [{"inputs": 0}, {"epsilon": 0.0}, {"epsilon": -1.0}])
def test_operators_that_cannot_be(config: dict[str, float]) -> None:
    with pytest.raises(DjepaError, match="at least one input and an epsilon above 0"):
        operator(**config)  # type: ignore[arg-type]


def test_tokens_of_another_width() -> None:
    with pytest.raises(DjepaError, match="tokens of 5 numbers, not 6"):
        operator()(*pools(0, F=6))


def test_a_layer_is_torchs_layer() -> None:
    tokens, _ = pools(8, K=7)
    made = operator(seed=3)
    theirs = torch.nn.TransformerEncoderLayer(
        64, 4, 128, 0.0, activation="gelu", batch_first=True, norm_first=True
    )
    h = made.encoder(tokens)
    for layer in made.relations:
        theirs.load_state_dict(layer.state_dict())
        torch.testing.assert_close(layer(h, None), theirs(h), atol=1e-6, rtol=1e-5)
        h = layer(h, None)


def test_weights_and_dropout_come_from_the_generators_given() -> None:
    """The same numbers as torch draws after manual_seed, and its own stream stays untouched."""
    before = torch.get_rng_state()
    made, again = operator(seed=4, trained=0.0), operator(seed=4, trained=0.0)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(
        torch.equal(a, b) for a, b in zip(made.parameters(), again.parameters(), strict=True)
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        embed, layer = torch.nn.Linear(5, 64), torch.nn.TransformerEncoderLayer(64, 4, 128)
    assert torch.equal(made.encoder[1].weight, embed.weight)
    for name, weight in made.relations[0].state_dict().items():
        assert torch.equal(weight, layer.state_dict()[name]), name
    made, (tokens, base) = operator(dropout=0.5), pools(9)
    draws = [made(tokens, base, torch.Generator().manual_seed(s))[1] for s in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert torch.equal(made.train()(tokens, base)[1], made.eval()(tokens, base)[1])
    assert torch.equal(torch.get_rng_state(), before)
