"""Edits that make another sound folder, so that a reader may accept them.

Patterns are of what `trials` calls an edit: FILE/FIELD: EDIT.
"""

# Nothing is bound to the hash of such a folder.
HARMLESS = (
    "*threshold: negative",
    "*threshold: huge",  # of a gate: any finite number
    "*.tau: negative",
    "*.tau: huge",
    "*epsilon: huge",  # how far scores may move
    "*seed: huge",
    "about/versions.*: missing",
    "about/config.candidates: huge",  # and these two: nothing reads them but the profile of decoys
    "about/config.centres: huge",
    "about/config.shuffles: huge",
    "about/config.per_log: huge",  # at most so many
    "about/most: huge",  # the same of episodes that were read
    "guarantee.json/starts: huge",
    "gates.json/limit.starts: huge",
    "gates.json/*candidate: huge",  # an ID
    "proposals.npz/*templates: a row fewer",  # as many demonstrations as there were
    "mixtures.json/fusion: missing",  # a suite of fewer methods: no other one reads a fusion
)
