"""iota and affine_select with an offset that the device reads from a register (semantics rule 103)."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.dynamic import everywhere, one
from tests.isa.tiles import load, sbuf, store, whole_numbers


def value(offset, p, i, j):
    """The affine value of the patterns below, in 32 bits."""
    return (offset + 10 * p - 3 * i + 2 * j + 2**31) % 2**32 - 2**31


@pytest.mark.parametrize("dtype", ["int32", "uint32", "float32", "bfloat16", "int8"])
def test_iota(dtype):
    @nki.jit
    def kernel(n):
        register, tile = nisa.register_alloc(), sbuf((4, 6), dtype)
        nisa.register_load(register, n)
        nisa.iota(tile, [[-3, 2], [2, 3]], offset=register, channel_multiplier=10)
        return store(tile)

    @nki.jit
    def fixed(n, number):
        tile = sbuf((4, 6), dtype)
        nisa.iota(tile, [[-3, 2], [2, 3]], offset=number, channel_multiplier=10)
        return store(tile)

    for n in (0, -7, 100, 2**31 - 5):
        out = everywhere(kernel, one(n))
        assert out.tobytes() == nki.simulate(fixed)(one(0), n).tobytes()
        if dtype == "int32":
            expected = [[value(n, p, i, j) for i in range(2) for j in range(3)] for p in range(4)]
            assert out.tolist() == expected


@pytest.mark.parametrize("dtype", ["f4", "i4", ml_dtypes.bfloat16])
@pytest.mark.parametrize("other", [False, True])
def test_affine_select(dtype, other):
    @nki.jit
    def kernel(x, n):
        register, tile = nisa.register_alloc(), load(x)
        nisa.register_load(register, n)
        out = sbuf((4, 6), nl.float16 if other else x.dtype)
        nisa.affine_select(out, [[-3, 2], [2, 3]], 10, tile, -9.0, nl.greater_equal, offset=register)
        return store(out)

    x = whole_numbers((4, 6), 0, 50).astype(dtype)
    for n in (0, -12, -1000, 1000):
        out = everywhere(kernel, x, one(n))
        for p in range(4):
            for i in range(2):
                for j in range(3):
                    kept = value(n, p, i, j) >= 0
                    assert float(out[p, 3 * i + j]) == (float(x[p, 3 * i + j]) if kept else -9.0)


def test_offsets_are_integers_or_registers():
    @nki.jit
    def kernel(n):
        nisa.iota(sbuf((4, 6)), [[1, 6]], offset=1.5)
        return n

    with pytest.raises(errors.ArgumentError, match="register or an integer"):
        nki.simulate(kernel)(one(0))
    assert np.int32(3) == 3
