"""Verify banks: files are whole and consistent, and executing again gives the same outcomes."""

import hashlib
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np

from djepa.artefacts.folder import encode
from djepa.artefacts.records import sha256
from djepa.bank.read import Bank
from djepa.bank.schema import BANK, KINDS, shard_name
from djepa.errors import DjepaError
from djepa.rollout.execute import BlockWork, Proposer, run_block, versions
from djepa.seeds import generator
from djepa.worlds.protocol import World
from djepa.worlds.starts import Start


def check_bank(
    path: Path | str, sample: int = 200, seed: int = 0, proposer: Proposer | None = None
) -> Iterator[str]:
    """Yield a line per property that holds; raise an error that names the first that fails.

    A block whose candidates a proposer searched or retained is made again if `proposer` is given.
    """
    bank = Bank(path)
    yield f"files: {3 * len(bank.manifest['blocks'])} shards, all listed, none foreign"
    _check_shards(bank)
    yield f"shards: SHA-256, names, dtypes, shapes as recorded (version {BANK.version})"
    if _other_versions(bank):
        yield f"versions:{_other_versions(bank)} The bits below were still found equal."
    _check_starts(bank)
    yield f"starts: {len(bank)} identities recomputed, all different (split '{bank.split}')"
    _check_candidates(bank)
    yield f"candidates: {len(bank)} x {bank.candidates} IDs unique, sequences match their SHA-256"
    _check_rule(bank)
    yield f"outcomes: success and cost follow from the recorded states by {bank.config.rule}"
    if bank.manifest.get("source") is None or proposer is not None:
        block = _check_block(bank, seed, proposer)
        yield f"configuration: block {block} made again from it, every byte the same"
    done = _check_execution(bank, sample, seed)
    yield f"physics: {done} candidates executed again, every state equal to the last bit"


def check_disjoint(banks: list[Bank]) -> Iterator[str]:
    """Yield a line per pair of banks that shares no start; raise for a pair that does."""
    for a, b in combinations(banks, 2):
        shared = _names(a) & _names(b)
        if a.split == b.split:
            yield f"splits: {a.path.name} and {b.path.name} are one split, {len(shared)} shared"
        elif shared:
            raise DjepaError(
                f"{a.path} ({a.split}) and {b.path} ({b.split}) share {len(shared)} starts. "
                "Collect one of them with another --split or --seed."
            )
        else:
            yield f"splits: {a.path.name} ({a.split}) and {b.path.name} ({b.split}) share no start"


def _names(bank: Bank) -> set[bytes]:
    return {row.tobytes() for part in bank.parts() for row in part.decisions.identities}


def _check_shards(bank: Bank) -> None:
    for part in bank.parts():  # refuses shards whose sizes are not those of the manifest
        d, made = part.decisions, part.provenance
        len(part.outcomes.success)
        proposed = bank.config.searches() or made.native_cost is not None
        if proposed != (bank.manifest.get("source") is not None):
            raise DjepaError(
                f"{bank.path}: profile '{bank.config.profile}' does not go with its source."
            )
        first, K = 0, d.candidate_ids.shape[1]
        for number in part.blocks:
            block = bank.manifest["blocks"][number]
            draws = made.draws[first : first + len(bank.config.members(number))]
            first += len(draws)
            recorded = (block["starts"], block["candidates"], sum(block["drops"].values()))
            if recorded != (len(draws), K, int((draws - 1).sum())):
                raise DjepaError(
                    f"{bank.path}: the manifest says {recorded} starts, candidates and drops of "
                    f"block {number}; its shards say {(len(draws), K, int((draws - 1).sum()))}."
                )


def _check_starts(bank: Bank) -> None:
    world, first = bank.world(), 0
    for part in bank.parts():
        d = part.decisions
        for i in range(len(part)):
            start = Start(d.state[i], d.goal[i], d.context[i], d.history[i])
            if start.identity(world) != d.identities[i].tobytes():
                raise DjepaError(
                    f"{bank.path}: the identity of start {first + i} does not match its numbers."
                )
        first += len(part)
    if len(_names(bank)) != len(bank):
        raise DjepaError(f"{bank.path}: two starts are the same.")


def _check_candidates(bank: Bank) -> None:
    for part in bank.parts():
        d = part.decisions
        ordered = np.sort(d.candidate_ids, axis=1)
        if (ordered[:, 1:] == ordered[:, :-1]).any() or ordered.min() < 0:
            raise DjepaError(f"{bank.path}: candidate IDs of a start repeat or are negative.")
        stored = np.ascontiguousarray(d.actions, dtype="<f4")
        for i, start in enumerate(d.start_ids):
            digests = b"".join(hashlib.sha256(one.tobytes()).digest() for one in stored[i])
            if digests != d.action_hashes[i].tobytes():
                raise DjepaError(
                    f"{bank.path}: a sequence of start {start} does not match its SHA-256."
                )


def _check_rule(bank: Bank) -> None:
    world = bank.world()
    for part in bank.parts():
        o, d = part.outcomes, part.decisions
        success, cost = world.judge(d.goal[:, None], o.states[:, :, -1])
        wrong = o.observed & ((success != o.success) | (cost != o.cost))
        if wrong.any():
            i, candidate = np.argwhere(wrong)[0]
            raise DjepaError(
                f"{bank.path}: outcome of start {d.start_ids[i]}, position {candidate} is not what "
                f"{bank.config.rule} says of its final state."
            )


def _check_block(bank: Bank, seed: int, proposer: Proposer | None) -> int:
    """Make one block again from the configuration alone and compare all it holds."""
    source, settings = bank.manifest.get("source"), dict(proposer.settings) if proposer else None
    if source != settings:
        raise DjepaError(f"{bank.path}: it was proposed by {source}, not by {settings}.")
    number = int(generator("check-block", seed).integers(bank.config.blocks))
    block = run_block(BlockWork(bank.config, number, proposer=proposer))
    records = bank.manifest["blocks"][number]
    for kind in KINDS:
        if sha256(encode(getattr(block, kind))) != bank.files[shard_name(kind, number)]:
            raise DjepaError(
                f"{bank.path}: block {number} ({kind}) does not follow from the configuration in "
                f"the manifest.{_other_versions(bank)}"
            )
    dropped = {
        why: sum(b["drops"].get(why, 0) for b in bank.manifest["blocks"]) for why in block.drops
    }
    if block.drops != records["drops"] or dropped != bank.manifest["drops"]:
        raise DjepaError(f"{bank.path}: the drops in the manifest are not those of its blocks.")
    return number


def _other_versions(bank: Bank) -> str:
    there, here = bank.manifest["versions"], versions(bank.config.world)
    return "" if there == here else f" It was recorded with {there}; this is {here}."


def _check_execution(bank: Bank, sample: int, seed: int) -> int:
    """Execute a random sample of observed candidates again, from the recorded start."""
    if sample < 1:
        raise DjepaError(f"The sample must be at least 1 candidate, got {sample}.")
    known = np.concatenate(
        [
            np.argwhere(part.outcomes.observed) + np.array([part.decisions.start_ids[0], 0])
            for part in bank.parts()
        ]
    )
    rng, world, first = generator("check", seed), bank.world(), 0
    chosen = known[rng.permutation(len(known))[:sample]]
    for part in bank.parts():
        for i, k in chosen[(chosen[:, 0] >= first) & (chosen[:, 0] < first + len(part))]:
            _execute_again(part, world, int(i) - first, int(k))
        first += len(part)
    return len(chosen)


def _execute_again(bank: Bank, world: World, i: int, k: int) -> None:
    d, recorded = bank.decisions, bank.outcomes.states[i, k]
    states = world.execute(d.state[i], d.actions[i, k][None])[0]
    stride = (len(states) - 1) // len(recorded)
    if np.array_equal(states[stride::stride], recorded):
        return
    raise DjepaError(
        f"{bank.path}: start {d.start_ids[i]}, candidate {d.candidate_ids[i, k]} ends elsewhere "
        f"when executed again.{_other_versions(bank)}"
    )
