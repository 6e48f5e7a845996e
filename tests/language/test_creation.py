"""Making tensors: shapes, memories, addresses, fills (semantics rules 24, 26, 48, 144, 168)."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.language as nl
from nki import errors
from tests.language.run import f32, run, stage


def make(*args, **kwargs):
    """The tensor that nl.ndarray makes inside a kernel."""
    found = []
    stage(lambda: found.append(nl.ndarray(*args, **kwargs)), target="trn2")
    return found[0]


def test_ndarray():
    t = make((128, 64), nl.float16)
    assert t.shape == (128, 64) and t.dtype == nl.float16 and t.buffer is nl.sbuf and t.strides == (64, 1)
    assert make([4, np.int64(8)], np.float32, nl.psum).shape == (4, 8)
    assert make((4, 8), nl.float32, name="acc").name == "acc"
    assert make([1], nl.int32).shape == (1, 1), "one element of one partition"
    assert make((300, 5), "bfloat16", nl.hbm).buffer is nl.private_hbm
    assert make((64, 32), nl.float32, nl.sbuf, "", (32, 128)).access.buffer.address == (32, 128)
    assert make((64, 32), nl.float32, nl.psum, address=(0, 2048)).access.buffer.placed


@pytest.mark.parametrize(
    ("args", "error", "words"),
    [
        (((4, 8), nl.float32, "sbuf"), errors.ArgumentError, "nl.sbuf"),
        (((4, 8), nl.float32, "hbm"), errors.ArgumentError, "nl.hbm"),
        (((4, 0), nl.float32), errors.ShapeError, "zero"),
        (((4, -8), nl.float32), errors.ShapeError, "negative"),
        ((4, nl.float32), errors.ArgumentError, "tuple"),
        (((4, 2.5), nl.float32), errors.ArgumentError, "float"),
        (((4, True), nl.float32), errors.ArgumentError, "bool"),
        (((), nl.float32, nl.hbm), errors.ShapeError, "dimensions"),
        (((64,), nl.float32), errors.ShapeError, "(64, 1)"),
        (((2, 2, 2, 2, 2, 2), nl.float32), errors.ShapeError, "1 to 5 dimensions"),
        (((256, 4), nl.float32), errors.PartitionLimitError, "256 exceeds maximum 128"),
        (((4, 8), "float64"), errors.DtypeError, "float64"),
        (((4, 8), nl.float32, nl.sbuf, (0, 0)), errors.ArgumentError, "name"),
        (((4, 8), nl.float32, nl.hbm, "", (0, 0)), errors.ArgumentError, "on-chip"),
        (((4, 8), nl.float32, nl.psum, "", (0, 1024)), errors.LimitError, "bank"),
        (((4, 8), nl.float32, nl.psum, "", (0, 16384)), errors.CapacityError, "16383"),
        (((4, 8), nl.float32, nl.sbuf, "", (125, 0)), errors.CapacityError, "partitions 125..128"),
        (((4, 8), nl.float32, nl.sbuf, "", (0, -4)), errors.CapacityError, "does not fit"),
        (((4, 8), nl.float32, nl.sbuf, "", 0), errors.ArgumentError, "pair"),
    ],
)
def test_refused(args, error, words):
    with pytest.raises(error) as caught:
        make(*args)
    assert words in str(caught.value) and caught.value.span.file == __file__


def test_outside_a_kernel():
    with pytest.raises(errors.OutsideKernelError, match=r"nl\.ndarray"):
        nl.ndarray((4, 8), nl.float32)


@pytest.mark.parametrize("buffer", [nl.sbuf, nl.psum])
def test_fills_on_chip(buffer):
    x = np.zeros((4, 8), f32)
    assert (run(lambda x: nl.full(x.shape, 2.5, x.dtype, buffer), x) == 2.5).all()
    assert (run(lambda x: nl.ones(x.shape, nl.int32, buffer), x) == 1).all()
    assert (run(lambda x: nl.zeros(x.shape, nl.bfloat16, buffer), x) == 0).all()
    assert (run(nl.zeros_like, x + 1) == 0).all()


@pytest.mark.parametrize("shape", [(7,), (3, 5), (128, 3), (130, 40), (300, 700), (2, 3, 129)])
def test_fills_in_hbm(shape):
    """By DMA from a filled tile: HBM has no memset."""

    @nki.jit
    def kernel(x):
        return nl.full(shape, 3, nl.float32, buffer=nl.shared_hbm)

    assert (nki.simulate(kernel)(np.zeros((1, 1), f32)) == 3).all()


def test_like():
    def check(x):
        z = nl.zeros_like(x, dtype=nl.int32, buffer=nl.psum)
        e = nl.empty_like(x)
        assert z.shape == e.shape == x.shape and z.dtype == nl.int32 and z.buffer is nl.psum
        assert e.dtype == x.dtype and e.buffer is nl.sbuf
        assert nl.empty_like(nl.ndarray((4, 4), nl.int8, nl.hbm)).buffer is nl.hbm
        assert nl.zeros_like(x, buffer=nl.psum).buffer is nl.psum
        return x

    run(check, np.zeros((4, 8), f32))


def test_a_float_does_not_fill_integers():
    with pytest.raises(errors.OperandDtypeError):
        run(lambda x: nl.full((4, 8), 1.5, nl.int32), np.zeros((4, 8), f32))
