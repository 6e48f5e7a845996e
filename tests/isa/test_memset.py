"""`nisa.memset` against plain constants."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.single import Out, bf16, diagnose, f32, interval, run

FLOATS = [nl.float32, nl.bfloat16, nl.float16, nl.float8_e4m3, nl.float8_e5m2, nl.float8_e4m3fn]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("value", [0, 1, -2, 0.1, float("-inf")])
def test_float_tiles_take_any_number(dtype: str, value: float) -> None:
    """Rules 5 and 24."""
    storage = {
        "float32": f32,
        "bfloat16": bf16,
        "float16": np.float16,
        "float8_e4m3": ml_dtypes.float8_e4m3,
        "float8_e5m2": ml_dtypes.float8_e5m2,
        "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    }[str(dtype)]
    found = run(nisa.memset, dst=Out((3, 5), dtype), value=value)
    expected = np.full((3, 5), f32(value).astype(storage).astype(f32))
    np.testing.assert_array_equal(found.astype(f32), expected)


@pytest.mark.parametrize("dtype", [nl.int8, nl.uint8, nl.int16, nl.uint16, nl.int32, nl.uint32])
@given(data=st.data())
def test_integers_are_exact(dtype: str, data: st.DataObject) -> None:
    limits = np.iinfo(str(dtype))
    value = data.draw(st.integers(int(limits.min), int(limits.max)))
    assert run(nisa.memset, dst=Out((2, 3), dtype), value=value).tolist() == [[value] * 3] * 2


def test_views_are_filled_alone() -> None:
    def inner(dst: object) -> None:
        nisa.memset(dst=dst, value=1.0)
        nisa.memset(dst=dst[:, 1:3], value=2.0)

    assert run(inner, dst=Out((2, 4))).tolist() == [[1, 2, 2, 1]] * 2


def test_bool_and_packed() -> None:
    """Rule 24."""
    assert run(nisa.memset, dst=Out((2, 2), nl.bool_), value=1).tolist() == [[True, True]] * 2
    assert not run(nisa.memset, dst=Out((2, 2), nl.float8_e4m3fn_x4), value=0).view(np.uint32).any()
    with pytest.raises(errors.OperandDtypeError, match="0 only"):
        run(nisa.memset, dst=Out((2, 2), nl.float8_e4m3fn_x4), value=1)


def test_no_float_for_integers() -> None:
    """Rule 24."""
    with pytest.raises(errors.OperandDtypeError, match="value=2"):
        run(nisa.memset, dst=Out((2, 2), nl.int32), value=2.0)


def test_too_wide_is_a_warning() -> None:
    found = diagnose(nisa.memset, dst=Out((2, 2), nl.uint8), value=300)
    assert [d.severity for d in found] == ["warning"] and "0 to 255" in found[0].message
    assert run(nisa.memset, dst=Out((1, 1), nl.uint32), value=-1).tolist() == [[2**32 - 1]]


def test_value_is_a_number() -> None:
    with pytest.raises(errors.ArgumentError, match="number"):
        run(nisa.memset, dst=Out((2, 2)), value="1")


@pytest.mark.parametrize("engine", [nisa.engine.scalar, nisa.engine.tensor])
def test_engines(engine: nisa.engine) -> None:
    """Rule 91."""
    with pytest.raises(errors.EngineError, match=engine.name):
        run(nisa.memset, dst=Out((2, 2)), value=0, engine=engine)


def test_gpsimd_has_no_psum() -> None:
    """Rule 52."""
    run(nisa.memset, dst=Out((2, 2)), value=0, engine=nisa.engine.gpsimd)
    with pytest.raises(errors.EngineError, match="PSUM"):
        run(nisa.memset, dst=Out((2, 2), psum=True), value=0, engine=nisa.engine.gpsimd)


def test_cost() -> None:
    assert interval(nisa.memset, "trn2", dst=Out((128, 1024)), value=0) == 1024
    assert interval(nisa.memset, "trn2", dst=Out((128, 1024), nl.bfloat16), value=0.0) == 512
    assert interval(nisa.memset, "trn2", dst=Out((128, 1024), nl.bfloat16), value=1.0) == 1024
    assert interval(nisa.memset, "trn2", dst=Out((128, 8)), value=0) == 64
