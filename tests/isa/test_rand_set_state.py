"""`nisa.rand_set_state`: a stream goes on from a given state."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.generators import side_by_side
from tests.isa.single import Psum, interval, run
from tests.isa.tiles import load, sbuf, store

VECTOR, GPSIMD = nisa.engine.vector, nisa.engine.gpsimd
CASES = [("trn2", GPSIMD, 6), ("trn3", GPSIMD, 6), ("trn3", VECTOR, 24)]


def random_state(lanes: int, size: int) -> np.ndarray:
    return np.random.default_rng(size).integers(0, 1 << 32, (lanes, size), np.uint32)


@pytest.mark.parametrize(("target", "engine", "size"), CASES)
def test_rule_121_words_of_a_given_state(target: str, engine: object, size: int) -> None:
    @nki.jit
    def kernel(state):
        words = sbuf((16, 10), nl.uint32)
        nisa.rand_set_state(load(state), engine=engine)
        nisa.rng(words, engine=engine)
        return store(words)

    state = random_state(16, size)
    found = nki.simulate(kernel, target=target)(state)
    assert found.tolist() == [side_by_side(row, 10)[1] for row in state.tolist()]


@pytest.mark.parametrize(("target", "engine", "size"), CASES)
def test_rule_121_saved_and_restored(target: str, engine: object, size: int) -> None:
    @nki.jit
    def kernel(x):
        state, a, b = sbuf((128, size), nl.uint32), sbuf((128, 9), nl.uint32), sbuf((128, 9), nl.uint32)
        nisa.rand_get_state(state, engine=engine)
        nisa.rng(a, engine=engine)
        nisa.rand_set_state(state, engine=engine)
        nisa.rng(b, engine=engine)
        return store(a), store(b)

    a, b = nki.simulate(kernel, target=target)(np.zeros((1, 1), np.float32))
    assert np.array_equal(a, b)


def test_other_lanes_keep_their_state() -> None:
    @nki.jit
    def kernel(state, changed):
        words = sbuf((128, 5), nl.uint32)
        if changed:
            tile = sbuf((128, 6), nl.uint32)
            nisa.memset(tile, 0)
            nisa.dma_copy(dst=tile[32:36], src=state)
            nisa.rand_set_state(tile[32:36])
        nisa.rng(words, engine=GPSIMD)
        return store(words)

    state = random_state(4, 6)
    before, after = (nki.simulate(kernel, target="trn2")(state, flag) for flag in (False, True))
    assert np.array_equal(np.nonzero((before != after).any(axis=1))[0], [32, 33, 34, 35])
    assert after[32:36].tolist() == [side_by_side(row, 5)[1] for row in state.tolist()]


def test_refusals() -> None:
    with pytest.raises(errors.TargetError, match="trn2 and later"):
        run(lambda **a: nisa.rand_set_state(**a), target="trn1", src_seeds=random_state(2, 6))
    with pytest.raises(errors.EngineError, match="6 words in each partition, the tile 24"):
        run(lambda **a: nisa.rand_set_state(**a), target="trn3", src_seeds=random_state(2, 24))
    with pytest.raises(errors.EngineError, match="out of reach on trn2"):
        run(lambda **a: nisa.rand_set_state(**a), target="trn2", src_seeds=random_state(2, 24), engine=VECTOR)
    with pytest.raises(errors.MemoryError_, match="must live in sbuf"):
        run(
            lambda **a: nisa.rand_set_state(**a),
            target="trn3",
            src_seeds=Psum(random_state(2, 24)),
            engine=VECTOR,
        )
    with pytest.raises(errors.OperandDtypeError, match="`src_seeds` cannot be int32"):
        run(lambda **a: nisa.rand_set_state(**a), target="trn2", src_seeds=random_state(2, 6).view(np.int32))


def test_cost() -> None:
    assert interval(nisa.rand_set_state, "trn3", src_seeds=random_state(2, 24), engine=VECTOR) == 64
