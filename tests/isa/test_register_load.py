"""register_load: every type a register is documented to hold, from SBUF and HBM, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.dynamic import everywhere, one
from tests.isa.tiles import load, psum, sbuf, store


@nki.jit
def through(x, in_sbuf):
    register = nisa.register_alloc()
    nisa.register_load(register, load(x) if in_sbuf else x)
    tile = sbuf((1, 1), nl.int32)
    nisa.register_store(tile, register)
    return store(tile)


@pytest.mark.parametrize("in_sbuf", [False, True])
@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("i4", -9, -9),
        ("u4", 2**32 - 2, -2),
        ("i2", -300, -300),
        ("u2", 65535, 65535),
        ("i1", -1, -1),
        ("u1", 255, 255),
        ("f4", 1.0, 0x3F800000),
        ("?", True, 1),
    ],
)
def test_rule_124_types(dtype, value, expected, in_sbuf):
    @nki.jit
    def kernel(x):
        return through(x, in_sbuf)

    assert everywhere(kernel, np.array([[value]], dtype)).tolist() == [[expected]]


def test_float32_is_loaded_as_bits_with_a_warning():
    found = through.check(np.ones((1, 1), np.float32), True)
    assert [d.severity for d in found if d.code == "register_load"] == ["warning"]
    assert "tensor_copy" in found[0].message


@pytest.mark.parametrize(
    ("make", "error", "word"),
    [
        (lambda: sbuf((1, 2), nl.int32), errors.OperandShapeError, "2 elements"),
        (lambda: sbuf((2, 1), nl.int32), errors.OperandShapeError, "one value"),
        (lambda: sbuf((1, 1), nl.bfloat16), errors.OperandDtypeError, "bfloat16"),
        (lambda: psum((1, 1), nl.int32), errors.MemoryError_, "must live in"),
    ],
)
def test_refused(make, error, word):
    @nki.jit
    def kernel(x):
        nisa.register_load(nisa.register_alloc(), make())
        return x

    with pytest.raises(error, match=word):
        nki.simulate(kernel)(one(0))


def test_unwritten_memory_is_reported():
    @nki.jit
    def kernel(x):
        nisa.register_load(nisa.register_alloc(), sbuf((1, 1), nl.int32))
        return x

    with pytest.raises(errors.UninitializedReadError):
        nki.simulate(kernel)(one(0))
