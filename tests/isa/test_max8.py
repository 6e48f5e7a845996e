"""`nisa.max8` against Python's sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.target import get_target
from tests.isa.single import Out, Psum, bf16, f32, interval, normal, run, same, up
from tests.isa.tiles import load, sbuf, store

MOST = get_target("trn2").max8_fmax


def expected(x: np.ndarray) -> list[list[float]]:
    return [sorted(row, reverse=True)[:8] for row in x.reshape(len(x), -1).tolist()]


def test_worked_example() -> None:
    x = np.array([[3, 9, 1, 9, -2, 7, 0, 5, 9, 4]], f32)
    assert run(nisa.max8, dst=Out((1, 8)), src=x).tolist() == [[9, 9, 9, 7, 5, 4, 3, 1]]


def test_rule_109_duplicates_stay_and_infinities_are_ordered() -> None:
    x = np.array([[-np.inf, 2, np.inf, 2, 2, -1, -1, -np.inf], [7] * 8], f32)
    found = run(nisa.max8, dst=Out((2, 8)), src=x)
    assert found.tolist() == [[np.inf, 2, 2, 2, -1, -1, -np.inf, -np.inf], [7] * 8]


@given(st.lists(st.lists(st.integers(-20, 20), min_size=12, max_size=12), min_size=1, max_size=4))
def test_rule_109_any_numbers(rows: list[list[int]]) -> None:
    x = np.array(rows, f32)
    assert run(nisa.max8, dst=Out((len(rows), 8)), src=x).tolist() == expected(x)


def test_rule_109_three_dimensions_and_views() -> None:
    x = normal((5, 3, 4))
    assert run(nisa.max8, dst=Out((5, 8)), src=x).tolist() == expected(x)

    @nki.jit
    def every_other(x):
        dst = sbuf((4, 8))
        nisa.max8(dst=dst, src=load(x)[:, 1::2])
        return store(dst)

    y = normal((4, 20))
    assert nki.simulate(every_other)(y).tolist() == expected(y[:, 1::2])


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, bf16, np.float16])
def test_rule_109_compares_in_float32_and_converts(dtype: type) -> None:
    x = (normal((4, 16)) * 50 + 100).astype(dtype)
    wide = np.array(expected(x.astype(f32)), f32)
    same(run(nisa.max8, dst=Out((4, 8), nl.bfloat16), src=x), wide.astype(bf16))


def test_the_source_is_not_changed_and_may_hold_the_result() -> None:
    @nki.jit
    def kernel(x):
        tile = load(x)
        nisa.max8(dst=tile[:, 0:8], src=tile)
        return store(tile)

    x = normal((3, 12))
    found = nki.simulate(kernel)(x)
    assert found[:, :8].tolist() == expected(x) and np.array_equal(found[:, 8:], x[:, 8:])


def test_rule_112_top_16_in_two_rounds() -> None:
    """max8 -> nc_find_index8 -> nc_match_replace8 on the same tile."""

    @nki.jit
    def top16(x):
        tile, best, where = load(x), sbuf((x.shape[0], 16)), sbuf((x.shape[0], 16), nl.uint32)
        for part in (slice(0, 8), slice(8, 16)):
            nisa.max8(dst=best[:, part], src=tile)
            nisa.nc_find_index8(dst=where[:, part], data=tile, vals=best[:, part])
            nisa.nc_match_replace8(dst=tile, data=tile, vals=best[:, part], imm=-3.0e38)
        return store(best), store(where)

    x = np.random.default_rng(3).permutation(6 * 64).reshape(6, 64).astype(f32)
    best, where = nki.simulate(top16)(x)
    order = np.argsort(-x, axis=1)[:, :16]
    assert np.array_equal(where, order) and np.array_equal(best, np.take_along_axis(x, order, 1))


def test_rules_109_182_limits() -> None:
    run(nisa.max8, dst=Out((1, 8)), src=np.ones((1, MOST), f32))
    with pytest.raises(errors.LimitError, match=f"at most {MOST}"):
        run(nisa.max8, dst=Out((1, 8)), src=np.ones((1, MOST + 1), f32))
    with pytest.raises(errors.LimitError, match="at least 8 are needed"):
        run(nisa.max8, dst=Out((1, 8)), src=np.ones((1, 7), f32))
    with pytest.raises(errors.OperandShapeError, match="must have 8 element"):
        run(nisa.max8, dst=Out((1, 7)), src=np.ones((1, 9), f32))
    with pytest.raises(errors.OperandShapeError, match="at most 3 are possible"):
        run(nisa.max8, dst=Out((1, 8)), src=np.ones((1, 2, 2, 4), f32))


def test_psum() -> None:
    x = normal((4, 16))
    assert run(nisa.max8, dst=Out((4, 8), psum=True), src=Psum(x)).tolist() == expected(x)


def test_cost_is_an_element_a_cycle() -> None:
    assert interval(nisa.max8, "trn2", dst=Out((2, 8)), src=np.ones((2, 1000), f32)) == 1000
    assert interval(nisa.max8, "trn2", dst=Out((2, 8)), src=np.ones((2, 8), f32)) == 64


def test_result_in_hbm_is_refused() -> None:
    @nki.jit
    def kernel(x):
        nisa.max8(dst=x, src=up(x))

    with pytest.raises(errors.MemoryError_, match="`dst` must live in"):
        nki.simulate(kernel)(np.ones((1, 8), f32))
