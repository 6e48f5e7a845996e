"""`nisa.nc_find_index8` against a search in explicit loops."""

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
from tests.isa.single import Out, Psum, bf16, f32, interval, normal, run
from tests.isa.tiles import load, sbuf, store

MISSING = 0xFFFFFFFF
MOST = get_target("trn2").max8_fmax


def expected(data: list[float], vals: list[float], missing: int = MISSING) -> list[int]:
    free = list(range(len(data)))
    result = []
    for value in vals:
        hits = [i for i in free if data[i] == value]
        result.append(hits[0] if hits else missing)
        if hits:
            free.remove(hits[0])
    return result


def test_pc_27_missing_values_and_duplicates() -> None:
    data = np.array([[9, 3, 9, 1, 9, 2, 0, 7]], f32)
    vals = np.array([[9, 9, 9, 8, 1, 2, 0, 7]], f32)
    found = run(nisa.nc_find_index8, dst=Out((1, 8), nl.uint32), data=data, vals=vals)
    assert found.tolist() == [[0, 2, 4, MISSING, 3, 5, 6, 7]]


@given(
    data=st.lists(st.integers(0, 4), min_size=8, max_size=14),
    vals=st.lists(st.integers(0, 5), min_size=8, max_size=8),
    wide=st.booleans(),
)
def test_rule_110_any_numbers(data: list[int], vals: list[int], wide: bool) -> None:
    dtype, missing = (nl.uint32, MISSING) if wide else (nl.uint16, 0xFFFF)
    arrays = {"data": np.array([data], f32), "vals": np.array([vals], f32)}
    assert run(nisa.nc_find_index8, dst=Out((1, 8), dtype), **arrays).tolist() == [
        expected(data, vals, missing)
    ]


def test_rule_110_duplicates_run_out() -> None:
    data = np.array([[5, 0, 5, 0, 0, 0, 0, 1]], f32)
    vals = np.full((1, 8), 5, f32)
    found = run(nisa.nc_find_index8, dst=Out((1, 8), nl.uint16), data=data, vals=vals)
    assert found.tolist() == [[0, 2] + [0xFFFF] * 6]


def test_rule_110_each_partition_by_itself() -> None:
    data = np.random.default_rng(1).integers(0, 30, (7, 40)).astype(f32)
    vals = np.random.default_rng(2).integers(0, 40, (7, 8)).astype(f32)
    found = run(nisa.nc_find_index8, dst=Out((7, 8), nl.uint32), data=data, vals=vals)
    assert found.tolist() == [expected(d, v) for d, v in zip(data.tolist(), vals.tolist())]


def test_rule_110_compares_in_float32() -> None:
    """2^24 + 1 and 2^24 are one float32; a bfloat16 and its float32 value are equal; NaN equals nothing."""
    data = np.array([[1, 2, 3, 4, 5, 6, 7, (1 << 24) + 1]], np.int32)
    vals = np.array([[1 << 24, 7, 6, 5, 4, 3, 2, 1]], f32)
    found = run(nisa.nc_find_index8, dst=Out((1, 8), nl.uint32), data=data, vals=vals)
    assert found.tolist() == [[7, 6, 5, 4, 3, 2, 1, 0]]
    x = np.array([[np.nan, 1.5, 0.0, 3, 4, 5, 6, 7]], f32)
    y = np.array([[np.nan, -0.0, 1.5, 3, 4, 5, 6, 7]], bf16)
    found = run(nisa.nc_find_index8, dst=Out((1, 8), nl.uint32), data=x, vals=y)
    assert found.tolist() == [[MISSING, 2, 1, 3, 4, 5, 6, 7]]


def test_three_dimensions_are_flattened() -> None:
    data, vals = normal((3, 4, 5)), None
    flat = data.reshape(3, 20)
    vals = flat[:, [19, 3, 0, 7, 11, 12, 1, 2]].reshape(3, 2, 4)
    found = run(nisa.nc_find_index8, dst=Out((3, 8), nl.uint32), data=data, vals=vals)
    assert found.tolist() == [[19, 3, 0, 7, 11, 12, 1, 2]] * 3


def test_data_stays_as_it_is() -> None:
    @nki.jit
    def kernel(data, vals):
        tile, where = load(data), sbuf((1, 8), nl.uint32)
        nisa.nc_find_index8(dst=where, data=tile, vals=load(vals))
        return store(tile)

    data = np.arange(9, dtype=f32)[None]
    assert np.array_equal(nki.simulate(kernel)(data, data[:, :8]), data)


def test_rule_182_limits_and_dtypes() -> None:
    vals = np.ones((1, 8), f32)
    with pytest.raises(errors.LimitError, match="at least 8 are needed"):
        run(nisa.nc_find_index8, dst=Out((1, 8), nl.uint32), data=np.ones((1, 7), f32), vals=vals)
    with pytest.raises(errors.LimitError, match=f"at most {MOST}"):
        run(nisa.nc_find_index8, dst=Out((1, 8), nl.uint32), data=np.ones((1, MOST + 1), f32), vals=vals)
    with pytest.raises(errors.OperandDtypeError, match="`dst` cannot be int32"):
        run(nisa.nc_find_index8, dst=Out((1, 8), nl.int32), data=np.ones((1, 8), f32), vals=vals)
    with pytest.raises(errors.OperandShapeError, match="`vals` must have 8"):
        run(nisa.nc_find_index8, dst=Out((1, 8), nl.uint32), data=np.ones((1, 8), f32), vals=vals[:, :4])
    with pytest.raises(errors.OperandShapeError, match="`vals` has 4 dimensions"):
        run(
            nisa.nc_find_index8,
            dst=Out((1, 8), nl.uint32),
            data=np.ones((1, 8), f32),
            vals=vals.reshape(1, 2, 2, 2),
        )


def test_psum_and_cost() -> None:
    data = np.arange(500, dtype=f32).reshape(1, 500)
    arrays = {"data": data, "vals": data[:, 4:12]}
    found = run(nisa.nc_find_index8, dst=Out((1, 8), nl.uint32), data=Psum(data), vals=Psum(arrays["vals"]))
    assert found.tolist() == [list(range(4, 12))]
    assert interval(nisa.nc_find_index8, "trn2", dst=Out((1, 8), nl.uint32), **arrays) == 500
