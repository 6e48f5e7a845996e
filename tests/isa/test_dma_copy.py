"""dma_copy: values against explicit loops on stored bits, modes and engines, and descriptors counted by walking."""

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
from nki.target import get_target
from tests.isa.tiles import load, psum, run, sbuf, staged, store, whole_numbers

BF16 = ml_dtypes.bfloat16
DGE = nisa.dge_mode


@nki.jit
def copy(x, options):
    t = sbuf(x.shape, x.dtype)
    nisa.dma_copy(dst=t, src=x, **options)
    return store(t)


# ---- values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["u1", "i2", "i4", "f2", "f4", BF16, ml_dtypes.float8_e4m3, bool])
def test_rule_16_equal_dtypes_copy_bits(dtype):
    dtype = np.dtype(dtype)
    raw = np.random.default_rng(0).bytes(4 * 8 * dtype.itemsize)
    x = np.frombuffer(raw, dtype).reshape(4, 8) if dtype.kind != "b" else np.eye(4, 8, dtype=bool)
    y = run(copy, x, {})
    assert y.dtype == x.dtype and y.tobytes() == x.tobytes()


def test_rule_16_integers_beyond_float32():
    x = np.array([[16777217, -16777219, 2147483647]], np.int32)
    assert run(copy, x, {}).tolist() == x.tolist()


def test_rules_3_16_casts_go_through_float32():
    @nki.jit
    def kernel(x, y):
        a, b = sbuf(x.shape, nl.int32), sbuf(y.shape, nl.bfloat16)
        nisa.dma_copy(dst=a, src=x)
        nisa.dma_copy(dst=b, src=y)
        return store(a), store(b)

    x = np.array([[0.5, 1.5, 2.5, -0.5, -1.5, 3e9, np.nan]], np.float32)
    y = np.array([[16777217, 3]], np.int32)
    a, b = run(kernel, x, y)
    assert a.tolist() == [[0, 2, 2, 0, -2, 2147483647, 0]]
    np.testing.assert_array_equal(b, y.astype(np.float32).astype(BF16))


def test_rule_181_row_major_pairing():
    @nki.jit
    def kernel(x):
        t = sbuf((4, 6), x.dtype)
        nisa.dma_copy(dst=t, src=x)
        o = nl.ndarray((2, 3, 4), dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=o, src=t)
        return o

    x = np.arange(24, dtype=np.float32)
    out, expected = run(kernel, x), iter(x)
    for i in range(2):
        for j in range(3):
            for k in range(4):
                assert out[i, j, k] == next(expected)


@given(
    rows=st.integers(1, 8),
    columns=st.integers(1, 12),
    step=st.integers(1, 3),
    dtype=st.sampled_from([np.float32, BF16, np.uint8]),
)
def test_windows_with_steps(rows, columns, step, dtype):
    @nki.jit
    def kernel(x):
        t = sbuf((rows, columns), x.dtype)
        nisa.dma_copy(dst=t, src=x[:, ::step])
        o = nl.ndarray((columns, rows), dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=o.permute((1, 0)), src=t)
        return o

    x = whole_numbers((rows, columns * step), 0, 100).astype(dtype)
    out = run(kernel, x)
    for i in range(rows):
        for j in range(columns):
            assert out[j, i] == x[i, j * step]


def test_within_hbm_and_within_sbuf():
    @nki.jit
    def kernel(x):
        t, u = load(x), sbuf((8, 4), x.dtype)
        nisa.dma_copy(dst=u, src=t)
        o, p = (nl.ndarray((8, 4), dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(2))
        nisa.dma_copy(dst=o, src=x)
        nisa.dma_copy(dst=p, src=u)
        return o, p

    x = whole_numbers((8, 4))
    for out in run(kernel, x):
        np.testing.assert_array_equal(out, x)


def test_start_partitions_are_free():
    @nki.jit
    def kernel(x):
        t = load(x)
        return store(t[5:10, :])

    x = whole_numbers((16, 4))
    assert kernel.check(x, target="trn2") == []
    np.testing.assert_array_equal(run(kernel, x), x[5:10])


# ---- who makes the descriptors, who starts the DMA -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "options", "mode", "engine"),
    [
        ("trn1", {}, "none", "sync"),
        ("trn2", {}, "swdge", "gpsimd"),
        ("trn3", {}, "swdge", "gpsimd"),
        ("trn2", {"dge_mode": DGE.none}, "none", "sync"),
        ("trn2", {"dge_mode": DGE.swdge}, "swdge", "gpsimd"),
        ("trn2", {"dge_mode": DGE.hwdge}, "hwdge", "sync"),
        ("trn3", {"dge_mode": DGE.hwdge, "engine": nisa.engine.scalar}, "hwdge", "scalar"),
        ("trn3", {"dge_mode": DGE.hwdge, "engine": nisa.engine.sync}, "hwdge", "sync"),
    ],
)
def test_rule_97_modes_and_engines(target, options, mode, engine):
    x = whole_numbers((4, 4))
    instruction = staged(copy, "dma_copy", x, options, target=target)[0]
    assert (instruction.dge_mode.name, instruction.engine.name) == (mode, engine)
    assert instruction.cost(get_target(target))[0].transfer.dge is instruction.dge_mode
    np.testing.assert_array_equal(run(copy, x, options, target=target), x)


def test_rule_97_mode_is_shown_in_the_program():
    text = str(copy.ir(whole_numbers((4, 4)), {}, target="trn2"))
    assert "dge_mode=swdge" in text and "dge_mode=unknown" not in text


@pytest.mark.parametrize(
    ("target", "options", "error", "text"),
    [
        ("trn1", {"dge_mode": DGE.hwdge}, errors.TargetError, "hwdge on trn1"),
        ("trn2", {"engine": nisa.engine.scalar}, errors.EngineError, r"pass dge_mode=nisa\.dge_mode\.hwdge"),
        ("trn1", {"engine": nisa.engine.sync}, errors.EngineError, "dge_mode.unknown"),
        ("trn2", {"engine": nisa.engine.scalar, "dge_mode": DGE.swdge}, errors.EngineError, "dge_mode.swdge"),
        ("trn2", {"engine": nisa.engine.gpsimd, "dge_mode": DGE.hwdge}, errors.EngineError, "engine.gpsimd"),
        (
            "trn2",
            {"engine": nisa.engine.vector, "dge_mode": DGE.hwdge},
            errors.EngineError,
            "vector engine cannot",
        ),
        ("trn2", {"dge_mode": 2}, errors.ArgumentError, r"nisa\.dge_mode"),
        ("trn2", {"priority": 1}, errors.TargetError, "1 on trn2"),
        ("trn3", {"priority": 4}, errors.LimitError, "0 to 3 on trn3"),
    ],
)
def test_rules_97_102_144_refused(target, options, error, text):
    with pytest.raises(error, match=text):
        run(copy, np.ones((4, 4), np.float32), options, target=target)


def test_rule_102_priority_changes_no_value():
    x = whole_numbers((4, 4))
    np.testing.assert_array_equal(run(copy, x, {"priority": 3}, target="trn3"), x)


def test_rule_16_hwdge_converts_nothing():
    @nki.jit
    def kernel(x):
        nisa.dma_copy(dst=sbuf(x.shape, nl.bfloat16), src=x, dge_mode=DGE.hwdge)

    with pytest.raises(errors.OperandDtypeError) as caught:
        run(kernel, np.ones((4, 4), np.float32))
    assert "float32 to bfloat16" in str(caught.value) and ".view(dtype)" in str(caught.value)


def test_rule_16_packed_types():
    @nki.jit
    def moved(x):
        t = sbuf((4, 2), nl.float8_e4m3fn_x4)
        nisa.dma_copy(dst=t, src=x.view(nl.float8_e4m3fn_x4))
        return store(t.view(nl.uint8))

    @nki.jit
    def converted(x):
        nisa.dma_copy(dst=sbuf((4, 2), nl.float8_e4m3fn_x4), src=x)

    x = np.arange(32, dtype=np.uint8).reshape(4, 8)
    np.testing.assert_array_equal(run(moved, x, target="trn3"), x)
    with pytest.raises(errors.OperandDtypeError, match="float32 to float8_e4m3fn_x4"):
        run(converted, np.ones((4, 2), np.float32), target="trn3")


# ---- what is refused -----------------------------------------------------------------------------------------------


def test_rule_52_no_psum():
    @nki.jit
    def read(x):
        p = psum(x.shape)
        nisa.tensor_copy(dst=p, src=load(x))
        nisa.dma_copy(dst=nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm), src=p)

    @nki.jit
    def write(x):
        nisa.dma_copy(dst=psum(x.shape), src=x)

    for kernel, operand in ((read, "src"), (write, "dst")):
        with pytest.raises(errors.MemoryError_) as caught:
            run(kernel, np.ones((4, 4), np.float32))
        assert f"`{operand}` must live in" in str(caught.value) and "nisa.tensor_copy" in str(caught.value)


def test_rule_45_counts_agree():
    @nki.jit
    def kernel(x):
        nisa.dma_copy(dst=sbuf((4, 5)), src=x)

    with pytest.raises(errors.OperandShapeError, match=r"is 20 in `dst` but 16 in `src`"):
        run(kernel, np.ones((4, 4), np.float32))


def test_rule_143_misspelt_keyword():
    with pytest.raises(errors.UnknownKeywordError, match="unexpected keyword argument 'dge_mod'"):
        run(copy, np.ones((4, 4), np.float32), {"dge_mod": DGE.none})
