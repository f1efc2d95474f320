"""Named configurations of an alignment."""

from djepa.align.fit import AlignConfig
from djepa.align.operator import OperatorConfig
from djepa.errors import unknown_name

PAIR, FOUR = ("lewm", "tdjepa"), ("lewm", "tdjepa", "jepawm", "dinowm")


def single(name: str) -> AlignConfig:
    """One geometry's directions and ranks; its rank is the base score."""
    return AlignConfig(dense=(name,), ranked=(name,), base=(name,))


PRESETS = {
    "published": AlignConfig(),
    "four": AlignConfig(ranked=FOUR, base=("jepawm",)),
    "four-fused": AlignConfig(ranked=FOUR, base=FOUR),
    "pointwise": AlignConfig(operator=OperatorConfig(inputs=1, relations=False)),
    "ranks": AlignConfig(dense=(), ranked=FOUR, base=FOUR),
    "logs": AlignConfig(dense=(), ranked=FOUR, base=FOUR, mixture="log", updates=0),
    "log": AlignConfig(dense=(), ranked=FOUR, base=FOUR, mixture="log", crowd=PAIR, updates=0),
    "best": AlignConfig(
        dense=(),
        ranked=FOUR,
        base=FOUR,
        mixture="log",
        crowd=PAIR,
        extras=("log", "agreement"),
        operator=OperatorConfig(inputs=1, dropout=0.1),
        batch=32,
        decay=1e-2,
        policy="careful",
    ),
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
