"""NKI_PRECISE_FP=0 (rule 173, decision D8): narrow floats are stored as float32, bits that matter stay."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors

BF16 = ml_dtypes.bfloat16


@nki.jit
def sums(a):
    """1/3 is added up in bfloat16, which loses most of it."""
    out = nl.ndarray(a.shape, nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, nl.bfloat16)
    total = nl.zeros(a.shape, nl.bfloat16)
    nisa.dma_copy(dst=tile, src=a)
    nisa.tensor_scalar(tile, tile, nl.multiply, 1 / 3)
    for _ in range(300):
        nisa.tensor_tensor(total, total, tile, nl.add)
    nl.store(out, total)
    return out


def test_nothing_is_rounded_on_the_way(monkeypatch):
    a = np.ones((4, 8), BF16)
    rough = sums(a)
    text = str(sums.ir(a))
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    assert np.allclose(sums(a), 100, rtol=1e-5) and not np.allclose(rough, 100, rtol=0.03)
    assert str(sums.ir(a)) == text, "the program and its time stay"
    assert nki.profile(sums)(a).latency_us > 0
    monkeypatch.setenv("NKI_PRECISE_FP", "1")
    assert (sums(a) == rough).all()


@pytest.mark.parametrize("kind", [BF16, np.float16, ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2])
def test_arguments_and_results_keep_their_type(kind, monkeypatch):
    monkeypatch.setenv("NKI_PRECISE_FP", "0")

    @nki.jit
    def kernel(a, b):
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        tile = nl.load(a)
        nl.store(out, nl.multiply(tile, 2.0))
        nl.store(b, tile)
        return out, b

    a, b = np.arange(8).reshape(2, 4).astype(kind), np.zeros((2, 4), kind)
    out, same = kernel(a, b)
    assert same is b and (b == a).all()
    assert out.dtype == a.dtype and (out == (a.astype(np.float32) * 2).astype(kind)).all()


def test_bits_that_are_seen_as_another_type_stay(monkeypatch):
    @nki.jit
    def kernel(a):
        out = nl.ndarray(a.shape, nl.uint16, buffer=nl.shared_hbm)
        tile = nl.ndarray(a.shape, nl.bfloat16)
        moved = nl.ndarray(a.shape, nl.bfloat16)
        nisa.dma_copy(dst=tile, src=a)
        nisa.tensor_copy(moved, tile)
        nisa.dma_copy(dst=out, src=moved.view(nl.uint16))
        return out

    a = np.linspace(0, 3, 8, dtype=np.float32).reshape(2, 4).astype(BF16)
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    assert (kernel(a) == a.view(np.uint16)).all()


def test_tiles_placed_over_each_other_stay(monkeypatch):
    @nki.jit
    def kernel(a):
        out = nl.ndarray(a.shape, nl.bfloat16, buffer=nl.shared_hbm)
        first = nl.ndarray(a.shape, nl.bfloat16, address=(0, 0))
        apart = nl.ndarray(a.shape, nl.bfloat16, address=(0, 1024))
        beside = nl.ndarray(a.shape, nl.bfloat16, address=(0, 1024 + 8))
        nisa.dma_copy(dst=first, src=a)
        second = nl.ndarray(a.shape, nl.bfloat16, address=(0, 0))
        nisa.dma_copy(dst=second, src=a)
        nisa.tensor_copy(apart, second)
        nisa.memset(beside, 1.0)
        nisa.tensor_tensor(apart, apart, beside, nl.add)
        nisa.dma_copy(dst=out, src=apart)
        return out

    a = np.arange(8).reshape(2, 4).astype(BF16)
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    assert (kernel(a) == a + 1).all()


def test_loops_constants_and_cores(monkeypatch):
    @nki.jit
    def kernel(a):
        out = nl.ndarray((2, *a.shape), nl.float32, buffer=nl.shared_hbm)
        total = nl.load(a)
        third = nl.load(nl.shared_constant(np.full((2, 4), 0.375, BF16)))

        def body(i):
            nisa.tensor_tensor(total, total, third, nl.add)

        nl.fori_loop(0, 1000, body)
        nl.store(out[nl.program_id(0)], total)
        return out

    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    assert (kernel[2](np.zeros((2, 4), BF16)) == 375).all()


def test_eager_mode_is_refused(monkeypatch):
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    with pytest.raises(errors.ArgumentError, match="eager mode cannot be combined"):
        nki.simulate(sums, eager=True)(np.ones((4, 8), BF16))
