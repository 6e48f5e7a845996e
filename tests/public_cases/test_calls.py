"""Launches: stale programs, PyTorch tensors of all layouts, results that are inputs, types that NKI does not have."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.public_cases.steps import down, exact, f32, run, tile, up

torch = pytest.importorskip("torch")

SCALE = 2.0


@nki.jit
def scaled(x):
    o = tile(x.shape)
    nisa.tensor_scalar(dst=o, data=up(x), op0=nl.multiply, operand0=SCALE)
    return down(o)


def test_pc_61_a_global_that_changes_between_two_calls(monkeypatch):
    x = np.ones((1, 1), f32)
    exact(run(scaled, x), [[2]])
    monkeypatch.setattr("tests.public_cases.test_calls.SCALE", 5.0)
    monkeypatch.setitem(scaled.func.__globals__, "SCALE", 5.0)
    exact(run(scaled, x), [[5]])


@nki.jit
def twice(x):
    t = up(x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
    return down(t)


@torch.library.custom_op("nki_public_cases::twice", mutates_args=())
def op(x: torch.Tensor) -> torch.Tensor:
    return nki.simulate(twice)(x)


@op.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype)


def test_pc_67_transposed_and_expanded_tensors():
    x = torch.arange(12.0).reshape(3, 4)
    for tensor in (x.t(), torch.ones(1).expand(3, 4), x[:, 1:3]):
        assert torch.equal(op(tensor), 2 * tensor)


@nki.jit
def bump(x):
    t = up(x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)
    nisa.dma_copy(dst=x, src=t)
    return x


def test_pc_69_a_result_that_is_the_input():
    x = torch.zeros(2, 2)
    y = nki.simulate(bump)(x)
    assert torch.equal(x, torch.ones(2, 2)) and torch.equal(y, x)


def test_pc_69_as_an_operator_it_must_be_declared_mutating():
    from nki.torch import nki_op

    made = nki_op("nki_public_cases::bump", bump)
    x = torch.zeros(2, 2)
    with pytest.raises(errors.ArgumentError) as caught:
        made(x)
    assert "mutates_args" in str(caught.value) and "`x`" in str(caught.value)
    assert torch.equal(x, torch.zeros(2, 2)), "nothing was written"


def test_pc_71_an_empty_tensor_is_named():
    with pytest.raises(errors.NkiError) as caught:
        op(torch.empty(0, 8))
    assert "x" in str(caught.value) and "0" in str(caught.value)


def test_pc_71_a_library_operator_returns_an_empty_result():
    import nki_lib

    q = torch.randn(1, 2, 16, 8)[:0]
    assert nki_lib.flash_attention(q, q, q).shape == (0, 2, 16, 8)


@pytest.mark.parametrize("dtype", ["float64", "int64", "complex64"])
def test_pc_73_dtypes_that_nki_does_not_have(dtype):
    with pytest.raises(TypeError) as caught:
        op(torch.ones(2, 2, dtype=getattr(torch, dtype)))
    assert dtype in str(caught.value)


# --- neighbours ---------------------------------------------------------------------------------------------


def test_a_closure_that_changes_between_two_calls():
    factor = 2.0

    @nki.jit
    def kernel(x):
        o = tile(x.shape)
        nisa.tensor_scalar(dst=o, data=up(x), op0=nl.multiply, operand0=factor)
        return down(o)

    exact(run(kernel, np.ones((1, 1), f32)), [[2]])
    factor = 3.0
    exact(run(kernel, np.ones((1, 1), f32)), [[3]])


def test_values_of_equal_hash_are_different_programs():
    @nki.jit
    def kernel(x, n):
        o = tile(x.shape, nl.float32)
        nisa.memset(dst=o, value=2.0 if n is True else 3.0)
        return down(o)

    x = np.ones((1, 1), f32)
    exact(run(kernel, x, True), [[2]])
    exact(run(kernel, x, 1), [[3]])


def test_every_layout_of_numpy():
    x = np.arange(24, dtype=f32).reshape(4, 6)
    for array in (x.T, x[::-1], x[:, ::2], x[1:, ::-1], np.broadcast_to(x[0], (4, 6)), np.asfortranarray(x)):
        exact(run(twice, array), 2 * array)


def test_a_column_slice_is_updated_in_place_and_nothing_beside_it():
    x = np.zeros((4, 6), f32)
    nki.simulate(bump)(x[:, 1:3])
    exact(x[:, 1:3], np.ones((4, 2)))
    assert x.sum() == 8


def test_two_results_do_not_share_memory():
    @nki.jit
    def kernel(x):
        t = up(x)
        return down(t), down(t)

    a, b = nki.simulate(kernel)(torch.zeros(2, 2))
    a += 1
    assert torch.equal(b, torch.zeros(2, 2))


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint64, np.complex64])
def test_wide_arrays_are_not_narrowed(dtype):
    with pytest.raises(TypeError, match=np.dtype(dtype).name):
        nki.simulate(twice)(np.ones((2, 2), dtype))


def test_a_failing_call_leaves_the_input_alone():
    @nki.jit
    def kernel(x):
        nisa.dma_copy(dst=x, src=up(x))
        raise RuntimeError("no further")

    x = torch.zeros(2, 2)
    with pytest.raises(errors.UserError, match="no further"):
        nki.simulate(kernel)(x)
    assert torch.equal(x, torch.zeros(2, 2))


@pytest.mark.slow
def test_compiled_by_torch():
    compiled = torch.compile(lambda x: op(x) + 1, fullgraph=True, backend="eager")
    x = torch.arange(6.0).reshape(2, 3)
    assert torch.equal(compiled(x), 2 * x + 1)
