"""Arguments that a kernel writes, its results, and what a failure leaves of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.nki.kernels import down, f32, scale, up

X = np.arange(8, dtype=f32).reshape(2, 4)


@nki.jit
def bump(x, y):
    for tensor in (x, y):
        tile = up(tensor)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        nisa.dma_copy(dst=tensor, src=tile)
    return y, down(up(x)), x


@pytest.mark.parametrize("eager", [False, True])
def test_mutated_arguments_come_back_as_themselves(eager: bool) -> None:
    x, y = X.copy(), np.asfortranarray(X)
    first, second, third = nki.simulate(bump, eager=eager)(x, y)
    assert first is y and third is x
    for array in (x, y, second):
        np.testing.assert_array_equal(array, X + 1)
    assert not np.shares_memory(second, x)


@pytest.mark.parametrize("eager", [False, True])
def test_views_of_the_caller_are_updated_in_place(eager: bool) -> None:
    base = np.zeros((4, 8), f32)
    nki.simulate(bump, eager=eager)(base[::2, ::2], base[1::2, 1::2].T[::-1])
    assert base.sum() == 16
    assert base[::2, ::2].all() and base[1::2, 1::2].all()


@pytest.mark.parametrize("eager", [False, True])
def test_failure_changes_nothing(eager: bool) -> None:
    @nki.jit
    def kernel(x):
        nisa.dma_copy(dst=x, src=nl.zeros(x.shape, dtype=x.dtype, buffer=nl.sbuf))
        raise ValueError("after the write")

    x = X.copy()
    with pytest.raises(ValueError, match="after the write"):
        nki.simulate(kernel, eager=eager)(x)
    np.testing.assert_array_equal(x, X)


@pytest.mark.parametrize("eager", [False, True])
def test_what_cannot_be_written_back_is_told_before_anything_is(eager: bool) -> None:
    x, y = X.copy(), X.copy()
    y.flags.writeable = False
    with pytest.raises(errors.ArgumentError, match="`y`"):
        nki.simulate(bump, eager=eager)(x, y)
    np.testing.assert_array_equal(x, X)


def test_results_of_two_calls_share_nothing() -> None:
    first = scale(X, 2.0)
    kept = first.copy()
    second = scale(X + 1, 2.0)
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, kept)
    first[...] = 0
    np.testing.assert_array_equal(scale(X, 2.0), kept)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (lambda x: None, type(None)),
        (lambda x: x, np.ndarray),
        (lambda x: (x,), tuple),
        (lambda x: [x, down(up(x))], tuple),
        (lambda x: (), tuple),
    ],
)
@pytest.mark.parametrize("eager", [False, True])
def test_forms_of_results(result: Any, expected: type, eager: bool) -> None:
    def kernel(x):
        return result(x)

    assert type(nki.simulate(kernel, eager=eager)(X)) is expected


@pytest.mark.parametrize("eager", [False, True])
def test_reshaped_result(eager: bool) -> None:
    def kernel(x):
        return down(up(x)).reshape((4, 2))

    np.testing.assert_array_equal(nki.simulate(kernel, eager=eager)(X), X.reshape(4, 2))


def test_one_output_under_two_shapes_is_refused() -> None:
    def kernel(x):
        result = down(up(x))
        return result, result.reshape((4, 2))

    with pytest.raises(errors.ReturnError, match="another shape"):
        nki.simulate(kernel)(X)
