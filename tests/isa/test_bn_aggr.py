"""`nisa.bn_aggr`, alone and after `nisa.bn_stats`, against NumPy's mean and variance in float64."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.single import Out, Psum, bf16, f32, interval, normal, run
from tests.isa.tiles import load, sbuf, store


def test_worked_example() -> None:
    """{1, 3} and {10, 20}: mean 8.5, variance ((7.5^2 + 5.5^2 + 1.5^2 + 11.5^2) / 4."""
    triples = np.array([[2, 2, 2, 2, 15, 50]], f32)
    assert run(nisa.bn_aggr, dst=Out((1, 2)), data=triples).tolist() == [[8.5, 55.25]]


def test_rule_81_one_triple_gives_itself() -> None:
    triples = np.array([[4, 7, 8], [1, -3, 0]], f32)
    assert run(nisa.bn_aggr, dst=Out((2, 2)), data=triples).tolist() == [[7, 2], [-3, 0]]


@pytest.mark.parametrize("size", [1, 5, 512])
def test_rule_81_of_one_tile(size: int) -> None:
    @nki.jit
    def kernel(x):
        stats, result = sbuf((x.shape[0], 6)), sbuf((x.shape[0], 2))
        nisa.bn_stats(dst=stats, data=load(x))
        nisa.bn_aggr(dst=result, data=stats)
        return store(result)

    x = normal((4, size)) * 10 + 3
    found = nki.simulate(kernel)(x)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(found[:, 0], wide.mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(found[:, 1], wide.var(axis=1), rtol=1e-4, atol=1e-6)


def test_published_example_of_several_tiles() -> None:
    """1100 elements in tiles of 512, 512 and 76: unequal counts are weighted."""

    @nki.jit
    def kernel(x):
        tile, width = load(x), nl.tile_size.bn_stats_fmax
        starts = range(0, x.shape[1], width)
        stats, result = sbuf((x.shape[0], 6 * len(starts))), sbuf((x.shape[0], 2))
        for i, start in enumerate(starts):
            part = tile[:, start : min(start + width, x.shape[1])]
            nisa.bn_stats(dst=stats[:, 6 * i : 6 * i + 6], data=part)
        nisa.bn_aggr(dst=result, data=stats)
        return store(result)

    x = np.random.default_rng(0).random((128, 1100), f32) * 100
    found = nki.simulate(kernel)(x)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(found[:, 0], wide.mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(found[:, 1], wide.var(axis=1), rtol=1e-4)


def test_one_cast_at_the_end() -> None:
    triples = np.array([[1, 257, 0, 1, 259, 0]], f32)  # neither mean is a bfloat16
    found = run(nisa.bn_aggr, dst=Out((1, 2), nl.bfloat16), data=triples)
    assert found.dtype == bf16 and found.astype(f32).tolist() == [[258, 1]]


def test_triples_only() -> None:
    with pytest.raises(errors.OperandShapeError, match="consists of triples"):
        run(nisa.bn_aggr, dst=Out((1, 2)), data=np.ones((1, 7), f32))
    with pytest.raises(errors.OperandShapeError, match="`dst` must have 2"):
        run(nisa.bn_aggr, dst=Out((1, 6)), data=np.ones((1, 6), f32))


def test_psum_and_cost() -> None:
    triples = np.array([[2, 2, 2, 2, 15, 50]], f32)
    assert run(nisa.bn_aggr, dst=Out((1, 2), psum=True), data=Psum(triples)).tolist() == [[8.5, 55.25]]
    assert interval(nisa.bn_aggr, "trn2", dst=Out((1, 2)), data=np.ones((1, 30), f32)) == 130
    assert interval(nisa.bn_aggr, "trn2", dst=Out((1, 2)), data=triples) == 64
