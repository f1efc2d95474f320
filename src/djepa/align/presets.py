"""Named configurations of an alignment, and rules that derive one from evidence."""

from dataclasses import replace

from djepa.align.fit import AlignConfig, Mixing
from djepa.align.objectives import RelationalLoss
from djepa.align.operator import OperatorConfig
from djepa.errors import DjepaError, unknown_name
from djepa.evidence.evidence import Evidence

PAIR, FOUR = ("lewm", "tdjepa"), ("lewm", "tdjepa", "jepawm", "dinowm")


def single(name: str) -> AlignConfig:
    """One geometry's directions and ranks; its rank is the base score."""
    return AlignConfig(dense=(name,), ranked=(name,), base=(name,))


def mixed(
    names: tuple[str, ...], density: tuple[str, ...], by: Mixing = "log+ranks"
) -> AlignConfig:
    """A likelihood mixture of costs, with density if cross-validation selects it; no operator."""
    return AlignConfig(dense=(), ranked=names, base=names, mixture=by, density=density, updates=0)


def careful(
    names: tuple[str, ...], density: tuple[str, ...], by: Mixing = "log+ranks"
) -> AlignConfig:
    """An operator on top of `mixed`, whose gate opens only for a significant calibration gain.

    With graded outcomes the gain is in quality, and the worst one must not become more frequent.
    """
    return replace(
        mixed(names, density, by),
        extras=("log", "agreement"),
        operator=OperatorConfig(inputs=1, dropout=0.1),
        updates=1000,
        batch=32,
        decay=1e-2,
        policy="graded" if by.startswith("graded") else "careful",
    )


def described(
    names: tuple[str, ...], density: tuple[str, ...], raw: tuple[str, ...], updates: int = 2000
) -> AlignConfig:
    """As `careful`, for graded outcomes and thousands of fitting starts, with richer tokens.

    Tokens include the latents of `raw`; the loss is the expected quality. The operator has no
    attention: candidates are related only by ranks and log ratios within the pool.
    """
    return replace(
        careful(names, density, "graded+ranks"),
        raw=raw,
        operator=OperatorConfig(inputs=1, layers=0, relations=False),
        loss=RelationalLoss(graded=True),
        rate=1e-3,
        cosine=True,
        batch=64,
        decay=5e-2,
        updates=updates,
        every=updates,  # one checkpoint only: each is one more test of the gate
    )


def best_for(evidence: Evidence) -> AlignConfig:
    """Our method for this evidence: `careful` over all its costs, with density where available.

    Negative costs have no logarithm: then ranks are mixed, without density.
    """
    names, density = evidence.names, tuple(evidence.latents)
    config = careful(names, density)
    if (evidence.costs < 0).any():
        config = replace(config, mixture="ranks", density=(), extras=("agreement",))
    return config


def published_for(evidence: Evidence) -> AlignConfig:
    """The paper's relational operator: available directions, and ranks of all geometries.

    With one geometry the base score is its rank. With two this is the paper's dual-model alignment.
    With more, the base score is the fusion of all ranks.
    """
    dense = evidence.directed
    if not dense:
        raise DjepaError(
            'preset="published" reads directions from last latents to goals, and no geometry has '
            "both: give latents= and goals= to Evidence.from_arrays, or leave the preset out."
        )
    return AlignConfig(dense=dense, ranked=evidence.names, base=evidence.names)


FOR_EVIDENCE = {"best": best_for, "published": published_for}
PRESETS = {
    "published": AlignConfig(),
    "four": AlignConfig(ranked=FOUR, base=("jepawm",)),
    "four-fused": AlignConfig(ranked=FOUR, base=FOUR),
    "pointwise": AlignConfig(operator=OperatorConfig(inputs=1, relations=False)),
    "ranks": AlignConfig(dense=(), ranked=FOUR, base=FOUR),
    "logs": mixed(FOUR, (), "log"),
    "log": mixed(FOUR, PAIR, "log"),
    "best": careful(FOUR, PAIR, "log"),
    "lewm": single("lewm"),
    "tdjepa": single("tdjepa"),
}
# What a study fits, by the names of its tables.
SUITE = {
    "pointwise": PRESETS["pointwise"],
    "relational": PRESETS["published"],
    "multi-geometry": PRESETS["four"],
    "lewm descriptors": PRESETS["lewm"],
    "temporal descriptors": PRESETS["tdjepa"],
    "four-fused": PRESETS["four-fused"],
    "log costs": PRESETS["logs"],
    "log mixture": PRESETS["log"],
    "D-JEPA": PRESETS["best"],
}


def get_preset(name: str) -> AlignConfig:
    """The configuration of that name, or an error that suggests the nearest one."""
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS)
    return PRESETS[name]
