"""`nisa.tensor_reduce` against torch and explicit loops."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.single import Out, Psum, bf16, f32, interval, normal, run, same

X = np.arange(48, dtype=f32).reshape(2, 2, 3, 4) % 7


@pytest.mark.parametrize("axis", [3, -1, (3,), [2, 3], (1, 2, 3), [-1, -2]])
@pytest.mark.parametrize("keepdims", [False, True])
def test_axes(axis: int | tuple[int, ...], keepdims: bool) -> None:
    """Rule 78."""
    axes = tuple(a % 4 for a in ((axis,) if isinstance(axis, int) else axis))
    expected = X.sum(axes, keepdims=keepdims, dtype=f32)
    shape = expected.shape if expected.ndim > 1 else (2, 1)
    found = run(nisa.tensor_reduce, dst=Out(shape), op=nl.add, data=X, axis=axis, keepdims=keepdims)
    same(found, expected.reshape(shape))


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "maximum", "minimum"])
@given(values=st.lists(st.integers(-8, 8), min_size=1, max_size=6))
def test_operators(name: str, values: list[int]) -> None:
    """Rules 12 and 188; small integers make every order exact."""
    python = {
        "add": lambda x, y: x + y,
        "subtract": lambda x, y: x - y,
        "multiply": lambda x, y: x * y,
        "maximum": max,
        "minimum": min,
    }
    x = np.array([values, values[::-1]], f32)
    found = run(nisa.tensor_reduce, dst=Out((2, 1)), op=getattr(nl, name), data=x, axis=1)
    assert found.tolist() == [[reduce(python[name], values)], [reduce(python[name], values[::-1])]]


def test_logical_and_bitwise() -> None:
    """Rules 9, 11 and 12."""
    x = np.array([[1, 1, 0], [1, 1, 1], [0, 0, 0]], f32)
    for op, expected in (
        (nl.logical_and, [0, 1, 0]),
        (nl.logical_or, [1, 1, 0]),
        (nl.logical_xor, [0, 1, 0]),
    ):
        found = run(nisa.tensor_reduce, dst=Out((3, 1)), op=op, data=x, axis=1)
        assert found[:, 0].tolist() == expected
    bits = np.array([[-1, 12, 10], [3, 5, 6]], np.int16)
    for op, expected in (
        (nl.bitwise_and, [8, 0]),
        (nl.bitwise_or, [-1, 7]),
        (nl.bitwise_xor, [-1 ^ 12 ^ 10, 0]),
    ):
        found = run(nisa.tensor_reduce, dst=Out((2, 1), nl.int16), op=op, data=bits, axis=1)
        assert found[:, 0].tolist() == expected


def test_max_is_maximum() -> None:
    """Rule 189."""
    x = normal((2, 5))
    same(run(nisa.tensor_reduce, dst=Out((2, 1)), op=nl.max, data=x, axis=1), x.max(1, keepdims=True))
    same(run(nisa.tensor_reduce, dst=Out((2, 1)), op=np.min, data=x, axis=1), x.min(1, keepdims=True))


def test_negate() -> None:
    """Rule 188."""
    torch = pytest.importorskip("torch")
    x = normal((4, 6), bf16)
    expected = -torch.tensor(x.astype(f32)).amax(1, keepdim=True)
    same(
        run(nisa.tensor_reduce, dst=Out((4, 1)), op=nl.maximum, data=x, axis=1, negate=True), expected.numpy()
    )


def test_sums_in_float32() -> None:
    """Rule 188: one rounding at the end."""
    x = np.ones((1, 300), bf16)
    assert run(nisa.tensor_reduce, dst=Out((1, 1)), op=nl.add, data=x, axis=1).tolist() == [[300]]
    large = np.array([[2**24, 1]], np.int32)
    assert run(nisa.tensor_reduce, dst=Out((1, 1), nl.int32), op=nl.add, data=large, axis=1).tolist() == [
        [2**24]
    ]


def test_strided_view_and_psum() -> None:
    """Rules 27 and 52."""

    def columns(dst: object, data: object) -> None:
        nisa.tensor_reduce(dst=dst, op=nl.add, data=data.ap([[6, 2], [1, 3], [3, 2]]), axis=2)

    x = np.arange(12, dtype=f32).reshape(2, 6)
    assert run(columns, dst=Out((2, 3), psum=True), data=Psum(x)).tolist() == [[3, 5, 7], [15, 17, 19]]


@pytest.mark.parametrize("axis", [0, (0, 1, 2, 3), 1, (1, 2), (1, 3), (3, 3), 4])
def test_wrong_axes(axis: int | tuple[int, ...]) -> None:
    """Rule 78: the last axes only, and never the partitions."""
    with pytest.raises(errors.OperandShapeError, match="last free axes"):
        run(nisa.tensor_reduce, dst=Out((2, 4)), op=nl.add, data=X, axis=axis)


def test_destination_must_fit() -> None:
    """Rule 78."""
    with pytest.raises(errors.OperandShapeError, match="the reduction gives 6"):
        run(nisa.tensor_reduce, dst=Out((2, 1)), op=nl.add, data=X, axis=3)


@pytest.mark.parametrize("op", ["abs_max", "power", "equal", "left_shift", "abs"])
def test_no_reduction_operator(op: str) -> None:
    """Rules 12 and 188."""
    with pytest.raises(errors.OperatorError, match="reduction"):
        run(nisa.tensor_reduce, dst=Out((2, 6)), op=getattr(nl, op), data=X, axis=3)


def test_bit_operator_faults() -> None:
    """Rules 9 and 188."""
    x = np.ones((2, 3), np.int16)
    with pytest.raises(errors.OperatorError, match="arithmetic"):
        run(nisa.tensor_reduce, dst=Out((2, 1), nl.int16), op=nl.bitwise_or, data=x, axis=1, negate=True)
    with pytest.raises(errors.OperandDtypeError, match="integers only"):
        run(nisa.tensor_reduce, dst=Out((2, 1)), op=nl.bitwise_or, data=x, axis=1)
    with pytest.raises(errors.OperandDtypeError, match="no width"):
        run(nisa.tensor_reduce, dst=Out((2, 1), nl.int32), op=nl.bitwise_or, data=x, axis=1)


def test_cost() -> None:
    def cycles(dtype: type, op: object) -> int:
        x = np.ones((128, 1024), dtype)
        return interval(nisa.tensor_reduce, "trn2", dst=Out((128, 1), np.dtype(dtype)), op=op, data=x, axis=1)

    assert cycles(f32, nl.add) == cycles(bf16, nl.minimum) == 1024
    assert cycles(bf16, nl.maximum) == 512
