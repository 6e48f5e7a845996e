"""`nisa.set_rng_seed`: same seed, same stream."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.single import Psum, interval, run
from tests.isa.tiles import load, sbuf, store


@nki.jit
def two_streams(first, second):
    tiles = []
    for seed in (first, second):
        tile = sbuf((128, 16), nl.uint32)
        nisa.set_rng_seed(load(seed))
        nisa.rng(tile)
        tiles.append(store(tile))
    return tuple(tiles)


def streams(target: str, first: int, second: int, dtype: type = np.int32) -> tuple[np.ndarray, np.ndarray]:
    arrays = (np.array([[seed]]).astype(dtype) for seed in (first, second))
    return nki.simulate(two_streams, target=target)(*arrays)


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_rule_121_same_seed_same_stream(target: str) -> None:
    a, b = streams(target, 42, 42)
    assert np.array_equal(a, b) and len(np.unique(a)) > a.size - 5
    a, b = streams(target, 42, 43)
    assert (a != b).mean() > 0.99


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_any_seed_gives_lanes_that_differ(target: str) -> None:
    for seed in (0, 1, -1, 2**31 - 1):
        stream, _ = streams(target, seed, 0)
        assert len(np.unique(stream, axis=0)) == 128 and stream.any(axis=1).all()


def test_the_bits_are_the_seed() -> None:
    signed, unsigned = streams("trn2", -1, -1)[0], streams("trn2", 0xFFFFFFFF, 0, np.uint32)[0]
    assert np.array_equal(signed, unsigned)
    assert np.array_equal(streams("trn2", 1.0, 0, np.float32)[0], streams("trn2", 0x3F800000, 0)[0])


def test_all_lanes_are_seeded_and_gpsimd_is_not() -> None:
    @nki.jit
    def kernel(seed):
        a, b, c, d = (sbuf((128, 4), nl.uint32) for _ in range(4))
        nisa.rng(a, engine=nisa.engine.gpsimd)
        nisa.set_rng_seed(load(seed))
        nisa.rng(b, engine=nisa.engine.gpsimd)
        nisa.rng(c)
        nisa.set_rng_seed(load(seed))
        nisa.rng(d)
        return store(a), store(b), store(c), store(d)

    a, b, c, d = nki.simulate(kernel, target="trn2")(np.array([[7]], np.uint32))
    assert not np.array_equal(a, b) and np.array_equal(c, d)


def test_one_32_bit_value() -> None:
    with pytest.raises(errors.OperandShapeError, match="`src_seeds` must have 1"):
        run(lambda **a: nisa.set_rng_seed(**a), src_seeds=np.ones((1, 2), np.int32))
    with pytest.raises(errors.OperandShapeError, match="`src_seeds` must have 1"):
        run(lambda **a: nisa.set_rng_seed(**a), src_seeds=np.ones((2, 1), np.int32))
    with pytest.raises(errors.OperandDtypeError, match="`src_seeds` cannot be int16"):
        run(lambda **a: nisa.set_rng_seed(**a), src_seeds=np.ones((1, 1), np.int16))
    with pytest.raises(errors.ArgumentError, match="must be a tensor"):
        run(lambda **a: nisa.set_rng_seed(**a), src_seeds=42)


def test_psum_and_cost() -> None:
    seed = np.ones((1, 1), np.int32)
    assert interval(nisa.set_rng_seed, "trn2", src_seeds=Psum(seed)) == 64
