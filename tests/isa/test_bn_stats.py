"""`nisa.bn_stats` against Python's statistics module."""

from __future__ import annotations

import statistics

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.target import get_target
from tests.isa.single import Out, Psum, bf16, f32, interval, normal, run
from tests.isa.tiles import load, store

MOST = get_target("trn2").bn_stats_fmax


def expected(row: list[float]) -> list[float]:
    result = []
    for part in (row[0::2], row[1::2]):
        if part:
            result += [len(part), statistics.fmean(part), statistics.pvariance(part) * len(part)]
        else:
            result += [0, 0, 0]
    return result


def test_worked_example() -> None:
    x = np.array([[1, 10, 3, 20], [2, 5, 2, 5]], f32)
    assert run(nisa.bn_stats, dst=Out((2, 6)), data=x).tolist() == [[2, 2, 2, 2, 15, 50], [2, 2, 0, 2, 5, 0]]


@pytest.mark.parametrize("size", [1, 2, 7, 64, MOST - 1, MOST])
def test_rule_81_halves_by_parity(size: int) -> None:
    x = normal((3, size)) * 3 + 100
    found = run(nisa.bn_stats, dst=Out((3, 6)), data=x)
    np.testing.assert_allclose(found, [expected(row) for row in x.tolist()], rtol=1e-4, atol=1e-5)
    assert found[:, 0].tolist() == [(size + 1) // 2] * 3 and found[:, 3].tolist() == [size // 2] * 3


def test_rule_81_float32_inside() -> None:
    """2^11 + k is no float16 for odd k; the sums are not rounded on the way."""
    x = np.array([[256, 1, 2, 1, 2, 1, 2, 1]], bf16)
    found = run(nisa.bn_stats, dst=Out((1, 6)), data=x)
    assert found.tolist() == [expected(x.astype(f32)[0].tolist())]
    narrow = run(nisa.bn_stats, dst=Out((1, 6), nl.bfloat16), data=x)
    assert narrow.dtype == bf16 and np.array_equal(narrow.astype(f32), found.astype(bf16).astype(f32))


def test_free_axes_are_flattened_and_the_result_may_lie_in_a_bigger_tile() -> None:
    @nki.jit
    def kernel(x):
        stats = nl.zeros((2, 12), nl.float32)
        nisa.bn_stats(dst=stats[:, 6:12], data=load(x))
        return store(stats)

    x = normal((2, 3, 5))
    found = nki.simulate(kernel)(x)
    rows = x.reshape(2, 15).tolist()
    np.testing.assert_allclose(found[:, 6:], [expected(row) for row in rows], rtol=1e-5, atol=1e-6)
    assert not found[:, :6].any()


def test_rule_182_limit() -> None:
    with pytest.raises(errors.LimitError, match=f"allows at most {MOST}"):
        run(nisa.bn_stats, dst=Out((1, 6)), data=np.ones((1, MOST + 1), f32))
    with pytest.raises(errors.OperandShapeError, match="`dst` must have 6"):
        run(nisa.bn_stats, dst=Out((1, 3)), data=np.ones((1, 4), f32))
    with pytest.raises(errors.OperandShapeError, match="dimension P"):
        run(nisa.bn_stats, dst=Out((2, 6)), data=np.ones((1, 4), f32))


def test_psum_and_cost() -> None:
    x = np.array([[1, 10, 3, 20]], f32)
    assert run(nisa.bn_stats, dst=Out((1, 6), psum=True), data=Psum(x)).tolist() == [[2, 2, 2, 2, 15, 50]]
    assert interval(nisa.bn_stats, "trn2", dst=Out((1, 6)), data=np.ones((1, MOST), f32)) == MOST
    assert interval(nisa.bn_stats, "trn2", dst=Out((1, 6)), data=x) == 64
