"""register_store: into every type, SBUF and HBM, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.dynamic import everywhere, one
from tests.isa.tiles import sbuf, store


@pytest.mark.parametrize("memory", ["sbuf", "hbm"])
@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("int32", -2), ("uint32", 2**32 - 2), ("int16", -2), ("uint16", 65534), ("int8", -2), ("uint8", 254)],
)
def test_integers_take_the_low_bits(dtype, expected, memory):
    @nki.jit
    def kernel(n):
        register = nisa.register_alloc()
        nisa.register_load(register, n)
        if memory == "sbuf":
            tile = sbuf((1, 1), dtype)
            nisa.register_store(tile, register)
            return store(tile)
        out = nl.ndarray((1, 1), dtype=dtype, buffer=nl.shared_hbm)
        nisa.register_store(out, register)
        return out

    assert everywhere(kernel, one(-2)).tolist() == [[expected]]
    assert everywhere(kernel, one(3)).tolist() == [[3]]


def test_float32_takes_the_bits():
    @nki.jit
    def kernel(x):
        register, tile = nisa.register_alloc(), sbuf((1, 1), nl.float32)
        nisa.register_load(register, x)
        nisa.register_store(tile, register)
        return store(tile)

    assert everywhere(kernel, np.array([[-2.5]], np.float32)).tolist() == [[-2.5]]


@pytest.mark.parametrize(
    ("call", "error", "word"),
    [
        (lambda r: nisa.register_store(sbuf((1, 2), nl.int32), r), errors.OperandShapeError, "2 elements"),
        (
            lambda r: nisa.register_store(sbuf((1, 1), nl.int32), 3),
            errors.ArgumentError,
            "must be a register",
        ),
        (lambda r: nisa.register_store(sbuf((1, 1), nl.float16), r), errors.OperandDtypeError, "float16"),
    ],
)
def test_refused(call, error, word):
    @nki.jit
    def kernel(x):
        call(nisa.register_alloc(1))
        return x

    with pytest.raises(error, match=word):
        nki.simulate(kernel)(one(0))
