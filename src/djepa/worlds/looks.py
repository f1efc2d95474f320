"""Names of the appearance conditions of the push world, and how severe each is. Needs no torch.

A look is a condition at a severity: 0 would be clean, 1 is the severity of the first set. The
stored rows of the appearance study were made with `looks.v1`. The severities of `looks.v2` were
chosen on development starts by a rule (docs/other-worlds.md, "Severities of the looks"):
`python -m tools.severity` reproduces them.
"""

PLAIN, CLEAN = "plain", "clean"
CONDITIONS = (
    CLEAN,  # the original environment, with its fixed marker; the others start from it
    "blur",
    "salt-pepper",
    "dark",
    "block-colour",
    "marker-colour",
    "pusher-colour",
)
V2 = {
    "blur": 0.5,
    "salt-pepper": 0.125,
    "dark": 0.0625,
    "block-colour": 0.5625,
    "marker-colour": 0.6875,
    "pusher-colour": 0.9375,
}
SEVERITIES: dict[str, tuple[str, float]] = {
    PLAIN: (PLAIN, 1.0),  # without any marker, as the shipped geometries saw it
    **{name: (name, 1.0) for name in CONDITIONS},
    **{f"{name}.v2": (name, severity) for name, severity in V2.items()},
}
"""Look -> its condition and severity."""
LOOKS = tuple(SEVERITIES)
LOOK_SETS = {"looks.v1": CONDITIONS, "looks.v2": (CLEAN, *(f"{name}.v2" for name in V2))}
"""Sets of looks that the appearance study compares: seven each, in the paper's order."""
