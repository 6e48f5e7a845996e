"""`nisa.nc_match_replace8` against a search in explicit loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.single import Out, Psum, bf16, f32, interval, normal, run, same
from tests.isa.tiles import load, sbuf, store

MISSING = 0xFFFFFFFF


def expected(data: list[float], vals: list[float], imm: float) -> tuple[list[float], list[int]]:
    result, places, taken = list(data), [MISSING] * 8, set()
    for slot in (7, 6, 5, 4, 3, 2, 1, 0):
        for i, value in enumerate(data):
            if value == vals[slot] and i not in taken:
                taken.add(i)
                places[slot] = i
                result[i] = imm
                break
    return result, places


def replaced(data: np.ndarray, vals: np.ndarray, imm: float, dtype: object = nl.uint32) -> tuple:
    return run(
        nisa.nc_match_replace8,
        dst=Out(data.shape),
        data=data,
        vals=vals,
        imm=imm,
        dst_idx=Out((len(data), 8), dtype),
    )


def test_rule_111_documented_example() -> None:
    """Of seven equal values the last slot gets the first occurrence: the opposite of nc_find_index8."""
    data = np.array([[1, 2, 3, 4, 8, 8, 8, 8, 8, 8, 8]], f32)
    vals = np.array([[3, 8, 8, 8, 8, 8, 8, 8]], f32)
    dst, places = replaced(data, vals, -1.0)
    assert dst.tolist() == [[1, 2, -1, 4] + [-1] * 7]
    assert places.tolist() == [[2, 10, 9, 8, 7, 6, 5, 4]]
    forward = run(nisa.nc_find_index8, dst=Out((1, 8), nl.uint32), data=data, vals=vals)
    assert forward.tolist() == [[2, 4, 5, 6, 7, 8, 9, 10]]


@given(
    data=st.lists(st.integers(0, 4), min_size=8, max_size=14),
    vals=st.lists(st.integers(0, 5), min_size=8, max_size=8),
)
def test_rule_111_any_numbers(data: list[int], vals: list[int]) -> None:
    dst, places = replaced(np.array([data], f32), np.array([vals], f32), 99.0)
    assert (dst.tolist()[0], places.tolist()[0]) == expected(data, vals, 99.0)


def test_rule_111_what_is_replaced_is_not_found_again() -> None:
    data = np.array([[5, 1, 3, 0, 0, 0, 0, 0]], f32)
    vals = np.array([[3, 5, 9, 9, 9, 9, 9, 9]], f32)  # slot 1 puts a 3 in front of the real one
    dst, places = replaced(data, vals, 3.0)
    assert dst.tolist() == [[3, 1, 3, 0, 0, 0, 0, 0]] and places.tolist() == [[2, 0] + [MISSING] * 6]


def test_rule_111_missing_is_all_ones() -> None:
    data, vals = np.zeros((1, 8), f32), np.ones((1, 8), f32)
    dst, places = replaced(data, vals, 7.0, nl.uint16)
    assert not dst.any() and places.tolist() == [[0xFFFF] * 8]


def test_published_example() -> None:
    """The eight largest of each row, replaced by minus infinity."""

    @nki.jit
    def kernel(x):
        tile, best = load(x), sbuf((x.shape[0], 8))
        out, places = sbuf(x.shape), sbuf((x.shape[0], 8), nl.uint32)
        nisa.max8(dst=best, src=tile)
        nisa.nc_match_replace8(dst=out, data=tile, vals=best, imm=float("-inf"), dst_idx=places)
        return store(out), store(places)

    x = np.random.default_rng(0).permutation(128 * 32).reshape(128, 32).astype(f32)
    dst, places = nki.simulate(kernel)(x)
    order = np.argsort(-x, axis=1)[:, :8]
    golden = x.copy()
    np.put_along_axis(golden, order, -np.inf, 1)
    assert np.array_equal(dst, golden) and np.array_equal(places, order)


@pytest.mark.parametrize("shape", [(4, 16), (4, 4, 4)])
def test_in_place(shape: tuple[int, ...]) -> None:
    @nki.jit
    def kernel(x, v):
        tile, places = load(x), sbuf((4, 8), nl.uint32)
        nisa.nc_match_replace8(dst=tile, data=tile, vals=load(v), imm=0.0, dst_idx=places)
        return store(tile), store(places)

    x = normal(shape)
    flat = x.reshape(4, -1)
    dst, places = nki.simulate(kernel)(x, flat[:, 3:11].copy())
    golden = flat.copy()
    golden[:, 3:11] = 0
    assert np.array_equal(dst.reshape(4, -1), golden) and places.tolist() == [list(range(3, 11))] * 4


def test_narrow_types() -> None:
    data = (np.arange(16)[None] + 1).astype(bf16)
    out = run(
        nisa.nc_match_replace8,
        dst=Out((1, 16), nl.float16),
        data=data,
        vals=data[:, :8].astype(f32),
        imm=-1.0,
    )
    same(out, np.array([[-1] * 8 + list(range(9, 17))], np.float16))


def test_refusals() -> None:
    data, vals = np.ones((1, 9), f32), np.ones((1, 8), f32)
    with pytest.raises(errors.OperandShapeError, match="dimension F"):
        run(nisa.nc_match_replace8, dst=Out((1, 8)), data=data, vals=vals, imm=0.0)
    with pytest.raises(errors.OperandShapeError, match="`vals` must have 8"):
        run(nisa.nc_match_replace8, dst=Out((1, 9)), data=data, vals=data, imm=0.0)
    with pytest.raises(errors.OperandDtypeError, match="`dst_idx` cannot be float32"):
        replaced(data, vals, 0.0, nl.float32)
    with pytest.raises(errors.ArgumentError, match="misses its argument `imm`"):
        run(nisa.nc_match_replace8, dst=Out((1, 9)), data=data, vals=vals)


def test_psum_and_cost() -> None:
    data = np.arange(500, dtype=f32)[None]
    vals = np.array([[0, 1, 2, 3, 4, 5, 6, 7]], f32)
    out = run(nisa.nc_match_replace8, dst=Out((1, 500), psum=True), data=Psum(data), vals=vals, imm=-1.0)
    assert out[0, :10].tolist() == [-1] * 8 + [8, 9]
    arguments = {"data": data, "vals": vals, "imm": 0.0}
    assert interval(nisa.nc_match_replace8, "trn2", dst=Out((1, 500)), **arguments) == 500
