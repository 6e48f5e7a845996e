"""Limits and messages: what is too large or misspelt is named, at the line of the user who wrote it."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.public_cases.steps import down, f32, fails, line_of, tile, up


def test_pc_45_more_than_128_partitions():
    @nki.jit
    def kernel(x):
        t = tile((256, 4))
        nisa.memset(dst=t, value=0.0)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)
        return down(t)

    error = fails(kernel, np.zeros((1, 1), f32))
    assert isinstance(error, (errors.PartitionLimitError, AssertionError))
    text = str(error)
    assert "partition dimension 256 exceeds maximum 128" in text
    assert error.span.frames[1].line == line_of(kernel, "tile((256, 4))")


def test_pc_51_a_misspelt_keyword_gets_a_proposal():
    @nki.jit
    def kernel(x):
        o = tile(x.shape)
        nisa.activation(dst=o, op=nl.exp, data=up(x), biass=1.0)
        return down(o)

    error = fails(kernel, np.zeros((1, 1), f32))
    assert isinstance(error, TypeError) and error.span.line == line_of(kernel, "nisa.activation")
    assert "unexpected keyword argument" in str(error)
    assert "biass" in str(error) and "did you mean `bias`" in str(error)


def inner(t):
    nisa.tensor_tensor(dst=t, data1=t, data2=tile((64, 4)), op=nl.add)


def test_pc_53_the_error_shows_the_lines_of_the_user():
    @nki.jit
    def kernel(x):
        t = up(x)
        for i in range(3):  # noqa: B007
            inner(t)
        return down(t)

    error = fails(kernel, np.zeros((128, 4), f32))
    frames = [(frame.function.split(".")[-1], frame.line) for frame in error.span.frames]
    assert frames == [
        ("inner", line_of(inner, "tensor_tensor")),
        ("kernel", line_of(kernel, "inner(t)")),
    ]
    assert {frame.file for frame in error.span.frames} == {__file__}
    assert "i=0" in str(error).replace(" = ", "="), str(error)


# --- neighbours ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "piece"),
    [
        (lambda t: nisa.tensor_copy(dst=t, scr=t), "`src`"),
        (lambda t: nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand=1.0), "`operand0`"),
        (lambda t: nisa.dma_copy(dest=t, src=t), "dst"),
        (lambda t: nl.ndarray((1, 1), dtype=nl.float32, bufer=nl.sbuf), "buffer"),
    ],
)
def test_other_misspelt_keywords(call, piece):
    @nki.jit
    def kernel(x):
        call(up(x))
        return x

    error = fails(kernel, np.zeros((1, 1), f32))
    assert isinstance(error, TypeError) and piece in str(error)


def test_a_missing_argument_is_named():
    @nki.jit
    def kernel(x):
        t = up(x)
        nisa.tensor_tensor(dst=t, data1=t, data2=t)
        return down(t)

    error = fails(kernel, np.zeros((1, 1), f32))
    assert isinstance(error, TypeError) and "op" in str(error)


def test_a_fault_in_the_third_pass_shows_its_number():
    @nki.jit
    def kernel(x):
        t = up(x)
        for i in range(4):
            nisa.tensor_copy(dst=t[:, i : i + 1], src=t[:, i + 1 : i + 2])
        return down(t)

    error = fails(kernel, np.zeros((4, 3), f32))
    assert isinstance(error, errors.BoundsError) and error.span.line == line_of(kernel, "nisa.tensor_copy")
    assert "i=2" in str(error).replace(" = ", "=")


def test_an_assertion_of_the_user_is_passed_on():
    @nki.jit
    def kernel(x):
        assert x.shape[0] % 2 == 0, f"rows must be even, not {x.shape[0]}"
        return down(up(x))

    error = fails(kernel, np.zeros((3, 1), f32))
    assert isinstance(error, AssertionError) and "rows must be even, not 3" in str(error)
    assert error.span.line == line_of(kernel, "assert x.shape")


@pytest.mark.parametrize(
    ("call", "kind", "piece"),
    [
        (lambda t: nisa.tensor_copy(dst=t, src=t, engine=2), TypeError, "engine"),
        (lambda t: nl.ndarray((1, 1), dtype=nl.float32, buffer="sbuf"), TypeError, "nl.sbuf"),
        (lambda t: nisa.tensor_tensor(dst=t, data1=t, data2=t, op="plus"), TypeError, "plus"),
        (lambda t: nisa.nc_transpose(dst=t, data=t, engine=nisa.engine.scalar), errors.EngineError, "scalar"),
        (lambda t: nisa.tensor_copy(dst=t, src=5.0), TypeError, "src"),
    ],
)
def test_arguments_of_the_wrong_kind(call, kind, piece):
    @nki.jit
    def kernel(x):
        call(up(x))
        return x

    error = fails(kernel, np.zeros((1, 1), f32))
    assert isinstance(error, kind) and piece in str(error)


def test_a_tile_has_no_truth_value():
    @nki.jit
    def kernel(x):
        t = up(x)
        if t:
            return down(t)
        return x

    error = fails(kernel, np.zeros((2, 2), f32))
    assert isinstance(error, (ValueError, TypeError)) and error.span.line == line_of(kernel, "if t:")


def test_hbm_is_no_operand_of_an_engine():
    @nki.jit
    def kernel(x):
        t = tile(x.shape)
        nisa.tensor_copy(dst=t, src=x)
        return down(t)

    error = fails(kernel, np.zeros((2, 2), f32))
    assert isinstance(error, errors.MemoryError_) and "nisa.dma_copy" in str(error)
