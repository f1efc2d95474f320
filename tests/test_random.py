"""Every random draw takes an explicit generator: the whole source is read for those that do not."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import djepa

SOURCE, ROOT = Path(djepa.__file__).parent, Path(__file__).parents[1]
NUMPY = {"default_rng", "Generator", "SeedSequence"}
TORCH = {"rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial"}
TORCH |= {"rand_like", "randn_like", "randint_like"}
GLOBAL = {"manual_seed", "manual_seed_all", "seed", "set_rng_state", "initial_seed"}
IN_PLACE = {"normal_", "uniform_", "bernoulli_", "random_", "exponential_", "cauchy_"}
INIT = ("normal_", "uniform_", "orthogonal_", "sparse_")
DROPOUT = {"dropout", "alpha_dropout", "Dropout", "Dropout1d", "Dropout2d", "AlphaDropout"}


def global_draws(code: str) -> Iterator[str]:
    """What in this code draws from a global stream, or seeds one."""
    for node in ast.walk(ast.parse(code)):
        text = ast.unparse(node).partition("\n")[0]
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if "random" in modules or (isinstance(node, ast.ImportFrom) and node.module == "random"):
            yield text
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            if owner in ("np.random", "numpy.random") and node.attr not in NUMPY:
                yield text
            if owner == "torch.random" and node.attr != "fork_rng":  # which draws nothing
                yield text
        if isinstance(node, ast.Call) and _draws(node):
            yield text


def _draws(call: ast.Call) -> bool:
    *owner, last = ast.unparse(call.func).split(".")
    keywords = {keyword.arg for keyword in call.keywords}
    torch_itself, explicit = owner[:1] == ["torch"], "generator" in keywords
    return (
        (owner in (["torch"], ["torch", "cuda"]) and last in GLOBAL)
        or (last == "default_rng" and not call.args)
        or (torch_itself and last in TORCH and not explicit)
        or (bool(owner) and "init" not in owner and last in IN_PLACE and not explicit)
        or ("init" in owner and last.endswith(INIT) and not explicit)
        or (owner[:1] in (["nn"], ["F"], ["torch"]) and last in DROPOUT)
        or "dropout_p" in keywords
    )


# A policy of another library draws from PyTorch's stream: it is seeded. `chunks` puts it back
# afterwards; the two programs of tools run in processes of their own.
FOREIGN = {
    "src/djepa/interop/chunks.py": 1,
    "tools/lerobot_train.py": 1,
    "tools/lerobot_trial.py": 1,
}


def test_nothing_random_is_global() -> None:
    found = {
        str(file.relative_to(ROOT)): draws
        for folder in (SOURCE, ROOT / "tools")
        for file in sorted(folder.rglob("*.py"))
        if (draws := list(global_draws(file.read_text())))
    }
    assert {name: len(found.pop(name, ())) for name in FOREIGN} == FOREIGN
    assert not found


@pytest.mark.parametrize(
    "code",
    [
        "torch.manual_seed(0)",
        "torch.cuda.manual_seed_all(0)",
        "torch.rand(3)",
        "torch.randn(\n    3,\n    device=device,\n)",
        "torch.randint(0, 5, (3,))",
        "torch.randperm(5)",
        "torch.rand_like(x)",
        "torch.multinomial(p, 3)",
        "torch.empty(3).normal_()",
        "x.uniform_(0, 1)",
        "nn.init.trunc_normal_(w, std=0.02)",
        "nn.init.kaiming_uniform_(w)",
        "torch.nn.init.normal_(w)",
        "F.dropout(x, 0.1, True)",
        "nn.Dropout(0.1)",
        "F.scaled_dot_product_attention(q, k, v, dropout_p=0.1)",
        "torch.random.manual_seed(0)",
        "np.random.normal(size=3)",
        "np.random.seed(0)",
        "np.random.default_rng()",
        "import random",
        "from random import shuffle",
    ],
)
def test_the_reader_finds_it(code: str) -> None:
    assert list(global_draws(code))


@pytest.mark.parametrize(
    "code",
    [
        "torch.rand(3, generator=g)",
        "g = torch.Generator().manual_seed(seed)",
        "self.random.manual_seed(seed_for('window', i))",
        "nn.init.trunc_normal_(w, std=0.02, generator=g)",
        "nn.init.zeros_(w)",
        "np.random.default_rng(seed)",
        "rng: np.random.Generator = generator('fit', 0)",
        "rng.normal(0.0, 1.0, 3)",
        "x.normal_(generator=g)",
    ],
)
def test_explicit_generators_pass(code: str) -> None:
    assert not list(global_draws(code))
