"""`nisa.tensor_copy` against bit patterns and ml_dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.single import Out, Psum, bf16, diagnose, f32, interval, run, staged


def test_float_to_integer_rounds_to_even_and_saturates() -> None:
    """Rules 3 and 15."""
    x = np.array([[0.5, 1.5, 2.5, -0.5, -1.5, 3e9, -3e9, np.nan]], f32)
    found = run(nisa.tensor_copy, dst=Out((1, 8), nl.int32), src=x)
    assert found.tolist() == [[0, 2, 2, 0, -2, 2147483647, -2147483648, 0]]


@pytest.mark.parametrize("engine", [nisa.engine.vector, nisa.engine.scalar, nisa.engine.gpsimd])
def test_equal_types_copy_bits(engine: nisa.engine) -> None:
    """Rule 15: integers beyond 2^24 and NaN payloads survive."""
    x = np.array([[16777217, -16777219, 2147483647]], np.int32)
    assert run(nisa.tensor_copy, dst=Out((1, 3), nl.int32), src=x, engine=engine).tolist() == x.tolist()
    nan = np.array([[0x7FC00001, 0xFFABCDEF, 0x7F800001]], np.uint32)
    found = run(nisa.tensor_copy, dst=Out((1, 3), nl.float32), src=nan.view(f32), engine=engine)
    assert found.view(np.uint32).tolist() == nan.tolist()


def test_rank_may_differ() -> None:
    """Rule 45: elements per partition count, not axes."""
    x = np.arange(48, dtype=f32).reshape(2, 24)
    found = run(nisa.tensor_copy, dst=Out((2, 2, 3, 4), nl.bfloat16), src=x)
    assert found.shape == (2, 2, 3, 4) and found.reshape(2, 24).astype(f32).tolist() == x.tolist()


def test_psum_both_ways() -> None:
    """Rule 52: Vector reaches both memories."""
    x = np.arange(8, dtype=f32).reshape(2, 4)
    assert run(nisa.tensor_copy, dst=Out((2, 4), psum=True), src=Psum(x)).tolist() == x.tolist()


@pytest.mark.parametrize("dtype", [bf16, np.float16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn])
@given(values=st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_narrowing_is_one_rounding(dtype: type, values: list[float]) -> None:
    """Rule 5."""
    x = np.array([values], f32)
    with np.errstate(all="ignore"):
        expected = x.astype(dtype).astype(f32)
    found = run(nisa.tensor_copy, dst=Out(x.shape, np.dtype(dtype)), src=x)
    np.testing.assert_array_equal(found.astype(f32), expected)


def test_tfloat32_drops_mantissa_bits() -> None:
    """Rule 23."""
    x = np.array([[1 + 2.0**-10, 1 + 2.0**-11, 1 + 3 * 2.0**-11, -1 - 2.0**-12]], f32)
    found = run(nisa.tensor_copy, dst=Out((1, 4), nl.tfloat32), src=x)
    assert found.astype(f32).tolist() == [[1 + 2.0**-10, 1, 1 + 2.0**-9, -1]]


def test_default_engine_is_vector() -> None:
    x = np.ones((4, 4), f32)
    assert staged(nisa.tensor_copy, dst=Out((4, 4)), src=x).engine is nisa.engine.vector


def test_gpsimd_reaches_no_psum() -> None:
    """Rule 52."""
    with pytest.raises(errors.EngineError, match="PSUM"):
        run(nisa.tensor_copy, dst=Out((4, 4)), src=Psum(np.ones((4, 4), f32)), engine=nisa.engine.gpsimd)


def test_trn1_scalar_engine_cannot() -> None:
    """Rule 15."""
    x = np.ones((4, 4), f32)
    with pytest.raises(errors.EngineError, match="activation"):
        run(nisa.tensor_copy, target="trn1", dst=Out((4, 4)), src=x, engine=nisa.engine.scalar)
    run(nisa.tensor_copy, target="trn2", dst=Out((4, 4)), src=x, engine=nisa.engine.scalar)


def test_sizes_must_agree() -> None:
    """Rule 45."""
    with pytest.raises(errors.OperandShapeError, match="dimension F"):
        run(nisa.tensor_copy, dst=Out((4, 4)), src=np.ones((4, 5), f32))


def test_packed_types_are_not_converted() -> None:
    """Rule 16."""
    with pytest.raises(errors.OperandDtypeError, match="packed"):
        run(nisa.tensor_copy, dst=Out((4, 4), nl.float8_e5m2_x4), src=np.ones((4, 4), f32))


def test_odd_start_partition_is_a_warning() -> None:
    """Rule 51."""

    def shifted(dst: object, src: object) -> None:
        nisa.tensor_copy(dst=dst, src=src[5:10])

    x = np.arange(40, dtype=f32).reshape(20, 2)
    assert run(shifted, dst=Out((5, 2)), src=x).tolist() == x[5:10].tolist()
    (found,) = [d for d in diagnose(shifted, dst=Out((5, 2)), src=x) if d.severity == "warning"]
    assert "partition" in found.message and "from partition 5" in found.message


def test_skipping_partitions_is_refused() -> None:
    """Rules 35 and 191."""

    def skipping(dst: object, src: object) -> None:
        nisa.tensor_copy(dst=dst, src=src.ap([[4, 4], [1, 2]]))

    with pytest.raises(errors.NkiError, match="partition"):
        run(skipping, dst=Out((4, 2)), src=np.ones((8, 2), f32))


def test_trn2_modes() -> None:
    """Performance modes of trainium2_arch.rst: 4x, 2x, none."""
    half, wide = np.ones((128, 2048), bf16), np.ones((128, 2048), f32)
    assert interval(nisa.tensor_copy, "trn1", dst=Out(half.shape, nl.bfloat16), src=half) == 2048
    assert interval(nisa.tensor_copy, "trn2", dst=Out(half.shape, nl.bfloat16), src=half) == 512
    assert interval(nisa.tensor_copy, "trn2", dst=Out(half.shape, nl.bfloat16), src=Psum(half)) == 1084
    both = interval(nisa.tensor_copy, "trn2", dst=Out(half.shape, nl.bfloat16, psum=True), src=Psum(half))
    assert both == 2108
    assert interval(nisa.tensor_copy, "trn2", dst=Out(wide.shape), src=Psum(wide)) == 2108
    gpsimd = interval(nisa.tensor_copy, "trn2", dst=Out(wide.shape), src=wide, engine=nisa.engine.gpsimd)
    assert gpsimd == 150 + 2048


@pytest.mark.parametrize(("dtype", "severity"), [(nl.float32, "note"), (nl.bfloat16, "warning")])
def test_dtype_keyword_of_published_kernels(dtype: str, severity: str) -> None:
    """Old kernels name the dtype of `dst` again: the keyword is dropped and reported, the tile decides."""

    @nki.jit
    def copy(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        same = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=same, src=nl.load(x), dtype=dtype)
        nisa.dma_copy(dst=out, src=same)
        return out

    x = np.arange(8, dtype=f32).reshape(2, 4) / 3
    assert np.array_equal(nki.simulate(copy)(x), x)
    assert [d.severity for d in copy.check(x) if d.code == "dtype-keyword"] == [severity]


def test_dtype_keyword_without_a_tile() -> None:
    @nki.jit
    def copy(x):
        nisa.tensor_copy(src=nl.load(x), dtype=nl.float32)

    with pytest.raises(errors.UnknownKeywordError, match="unexpected keyword argument 'dtype'"):
        nki.simulate(copy)(np.ones((2, 4), f32))
