"""Every random draw comes from a generator named by what it is for, never from a global stream.

A key such as ("push", "T", seed, "fit", start, attempt) fixes the draw: it depends neither on
the worker that makes it nor on the order.
"""

import hashlib

import numpy as np


def seed_for(*key: str | int) -> int:
    """A 63-bit seed from the SHA-256 of the key."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in ("djepa-v1", *key))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def generator(*key: str | int) -> np.random.Generator:
    """The generator that belongs to the key."""
    return np.random.default_rng(seed_for(*key))
