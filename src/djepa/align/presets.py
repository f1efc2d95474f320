"""Named configurations of an alignment."""

from djepa.align.fit import AlignConfig
from djepa.align.operator import OperatorConfig
from djepa.errors import unknown_name

PAIR, FOUR = ("lewm", "tdjepa"), ("lewm", "tdjepa", "jepawm", "dinowm")
PRESETS = {
    "published": AlignConfig(),
    "four": AlignConfig(ranked=FOUR, base=("jepawm",)),
    "four-fused": AlignConfig(ranked=FOUR, base=FOUR),
    "pointwise": AlignConfig(operator=OperatorConfig(inputs=1, relations=False)),
    "ranks": AlignConfig(dense=(), ranked=FOUR, base=FOUR),
}


def get_preset(name: str) -> AlignConfig:
    """The configuration of that name, or an error that suggests the nearest one."""
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS)
    return PRESETS[name]
