"""Random programs for two cores, as scripts: a list of steps that says what happens, one after the other.

A script is turned into a kernel (`play`), in which every core issues its own part, and into values by an oracle of
plain NumPy (`expected`), which goes through the steps in their order and knows no cores that wait. Both may only agree
if no step depends on chance: `without_races` puts barriers between a write of a shared slot and its other uses.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from hypothesis import strategies as st

import nki.isa as nisa
import nki.language as nl
from tests.isa.two_cores import exchange, shared, tile

TILES, SLOTS, PIPES = 4, 2, 3
SHAPE = (4, 6)
CORES = (0, 1)
OPERATORS = {
    "add": (nl.add, np.add),
    "subtract": (nl.subtract, np.subtract),
    "maximum": (nl.maximum, np.maximum),
}
SCALES = (-1.0, 0.5, 3.0)

Step = tuple[Any, ...]

_core = st.sampled_from(CORES)
_tile = st.integers(0, TILES - 1)
_slot = st.integers(0, SLOTS - 1)
_pipe = st.integers(0, PIPES - 1)
_two = st.tuples(_tile, _tile)

_scale = st.tuples(st.just("scale"), _core, _tile, _tile, st.sampled_from(SCALES))
_combine = st.tuples(st.just("combine"), _core, _tile, _two, st.sampled_from(sorted(OPERATORS)))
_exchange = st.tuples(st.just("exchange"), _two, _two, _pipe, st.booleans())
_cross = st.tuples(st.just("cross"), _two, _two, _two, _two).filter(
    lambda step: (
        not _touches(step[1][0], step[2][0], step[3][0], step[4][0])
        and not _touches(step[3][1], step[4][1], step[1][1], step[2][1])
    )
)
_memory = st.tuples(st.sampled_from(["publish", "fetch", "keep", "recall"]), _core, _tile, _slot)
_barrier = st.just(("barrier",))
_simple = st.one_of(_scale, _combine, _exchange, _cross, _barrier)
_loop = st.tuples(
    st.just("loop"), st.integers(0, 3), st.booleans(), st.lists(_simple, min_size=1, max_size=4)
)


def _touches(src: int, dst: int, next_src: int, next_dst: int) -> bool:
    """Whether the second of two exchanges needs what the first one brings."""
    return dst in (next_src, next_dst)


def scripts(most: int = 10) -> st.SearchStrategy[list[Step]]:
    """Lists of steps that no core can spoil by being early or late."""
    return st.lists(st.one_of(_simple, _memory, _loop), max_size=most).map(without_races)


def without_races(steps: Iterable[Step]) -> list[Step]:
    """The steps with barriers wherever one core may use a shared slot that the other one used otherwise."""
    found: list[Step] = []
    used: dict[tuple[int, int], set[str]] = {}
    for step in steps:
        if step[0] in ("publish", "fetch"):
            kind, core, _, slot = step
            other = used.get((1 - core, slot), set())
            if "publish" in other or (kind == "publish" and other):
                found.append(("barrier",))
                used = {}
            used.setdefault((core, slot), set()).add(kind)
        found.append(step)
    return found


def play(x, script):
    """The kernel of a script. `x` is [cores, tiles, ...]; returns all tiles, kept and shared slots."""
    me = nl.program_id(0)
    tiles = [tile(SHAPE, x.dtype) for _ in range(TILES)]
    kept = [nl.ndarray(SHAPE, dtype=x.dtype, buffer=nl.private_hbm) for _ in range(SLOTS)]
    slots = shared((SLOTS, *SHAPE), x.dtype)
    for number in range(TILES):
        nisa.dma_copy(dst=tiles[number], src=x[me, number])
    for slot in range(SLOTS):
        nisa.dma_copy(dst=kept[slot], src=tiles[slot])
        if me == 0:
            nisa.dma_copy(dst=slots[slot], src=tiles[slot])
    nisa.core_barrier(slots, CORES)
    for step in script:
        issue(me, tiles, kept, slots, step)
    nisa.core_barrier(slots, CORES)
    out = shared((2, TILES + 2 * SLOTS, *SHAPE), x.dtype)
    for number in range(TILES):
        nisa.dma_copy(dst=out[me, number], src=tiles[number])
    for slot in range(SLOTS):
        nisa.dma_copy(dst=out[me, TILES + slot], src=kept[slot])
        nisa.dma_copy(dst=out[me, TILES + SLOTS + slot], src=slots[slot])
    return out


def issue(me, tiles, kept, slots, step):
    """One core's part of a step."""
    kind = step[0]
    if kind == "barrier":
        nisa.core_barrier(slots, CORES)
    elif kind == "loop":
        _, passes, known, body = step
        bound = passes if known else nisa.register_alloc(passes)

        def around(_):
            for inner in body:
                issue(me, tiles, kept, slots, inner)

        nl.fori_loop(0, bound, around)
    elif kind == "exchange":
        _, sources, targets, pipe, quick = step
        engine = nisa.dma_engine.gpsimd_dma if quick else nisa.dma_engine.dma
        exchange(tiles[sources[me]], tiles[targets[me]], pipe, dma_engine=engine)
    elif kind == "cross":
        pairs = [(step[1], step[2], 10), (step[3], step[4], 11)]
        for sources, targets, pipe in pairs if me == 0 else pairs[::-1]:
            exchange(tiles[sources[me]], tiles[targets[me]], pipe)
    elif step[1] == me:
        alone(tiles, kept, slots, step)


def alone(tiles, kept, slots, step):
    """A step of one core."""
    kind, _, number, other = step[:4]
    if kind == "scale":
        nisa.tensor_scalar(dst=tiles[number], data=tiles[other], op0=nl.multiply, operand0=step[4])
    elif kind == "combine":
        first, second = tiles[other[0]], tiles[other[1]]
        nisa.tensor_tensor(dst=tiles[number], data1=first, data2=second, op=OPERATORS[step[4]][0])
    elif kind == "publish":
        nisa.dma_copy(dst=slots[other], src=tiles[number])
    elif kind == "fetch":
        nisa.dma_copy(dst=tiles[number], src=slots[other])
    elif kind == "keep":
        nisa.dma_copy(dst=kept[other], src=tiles[number])
    else:
        nisa.dma_copy(dst=tiles[number], src=kept[other])


def expected(x: np.ndarray, script: list[Step]) -> np.ndarray:
    """What the kernel must return, by going through the steps in order."""
    tiles = x.copy()
    kept, slots = x[:, :SLOTS].copy(), x[0, :SLOTS].copy()
    for step in script:
        happen(tiles, kept, slots, step)
    return np.concatenate([tiles, kept, np.stack([slots, slots])], axis=1)


def happen(tiles: np.ndarray, kept: np.ndarray, slots: np.ndarray, step: Step) -> None:
    """One step on the arrays of both cores; tiles and kept slots are [core, number, ...]."""
    kind = step[0]
    if kind == "loop":
        for _ in range(step[1]):
            for inner in step[3]:
                happen(tiles, kept, slots, inner)
    elif kind in ("exchange", "cross"):
        before = tiles.copy()
        for sources, targets in [step[1:3], step[3:5]] if kind == "cross" else [step[1:3]]:
            for core in CORES:
                tiles[core, targets[core]] = before[1 - core, sources[1 - core]]
    elif kind != "barrier":
        _happen_alone(tiles[step[1]], kept[step[1]], slots, step)


def _happen_alone(tiles: np.ndarray, kept: np.ndarray, slots: np.ndarray, step: Step) -> None:
    kind, _, number, other = step[:4]
    if kind == "scale":
        tiles[number] = (tiles[other].astype(np.float32) * np.float32(step[4])).astype(tiles.dtype)
    elif kind == "combine":
        first, second = (tiles[index].astype(np.float32) for index in other)
        tiles[number] = OPERATORS[step[4]][1](first, second).astype(tiles.dtype)
    elif kind == "publish":
        slots[other] = tiles[number]
    elif kind == "fetch":
        tiles[number] = slots[other]
    elif kind == "keep":
        kept[other] = tiles[number]
    else:
        tiles[number] = kept[other]
