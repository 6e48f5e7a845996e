"""nl.add and its relatives: values, result types, broadcasting, engines (semantics rules 20-22, 156, 157)."""

from __future__ import annotations

import numpy as np
import pytest

import nki.language as nl
from nki import errors
from tests.language.run import bf16, f32, kernel_of, mnemonics, run

X = np.array([[1.0, -2.5, 3.0, 0.5], [4.0, 0.0, -1.0, 2.0]], f32)
Y = np.array([[2.0, -2.5, -4.0, 0.25], [4.0, 1.0, -1.0, 0.5]], f32)
ARITHMETIC = ["add", "subtract", "multiply", "maximum", "minimum"]
COMPARISONS = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]
LOGICAL = ["logical_and", "logical_or", "logical_xor"]
BITWISE = ["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift"]


def numpy_of(name):
    return getattr(np, name)


@pytest.mark.parametrize("name", ARITHMETIC + COMPARISONS + LOGICAL)
def test_float32(name):
    function, expected = getattr(nl, name), numpy_of(name)
    for x, y in ((X, Y), (X, Y[:, :1]), (X[:, :1], Y)):
        np.testing.assert_array_equal(run(function, x, y), expected(x, y).astype(f32))
    np.testing.assert_array_equal(run(lambda x: function(x, 0.5), X), expected(X, f32(0.5)).astype(f32))
    np.testing.assert_array_equal(run(lambda x: function(0.5, x), X), expected(f32(0.5), X).astype(f32))
    assert function.nki_token == name and function.__name__ == name


@pytest.mark.parametrize("name", BITWISE)
def test_bits(name):
    x = np.array([[1, 7, 255, 4096]], np.int32)
    y = np.array([[3, 2, 4, 1]], np.int32)
    function, expected = getattr(nl, name), numpy_of(name)
    np.testing.assert_array_equal(run(function, x, y), expected(x, y))
    np.testing.assert_array_equal(run(lambda x: function(x, 3), x), expected(x, 3))
    np.testing.assert_array_equal(run(lambda x: function(3, x), y), expected(3, y))


def test_right_shift_moves_zeros_in():
    """Rule 9: the operator table calls it logical."""
    x = np.array([[-8, 16]], np.int32)
    np.testing.assert_array_equal(run(lambda x: nl.right_shift(x, 1), x), [[0x7FFFFFFC, 8]])


def test_integers_are_exact():
    """Rule 13."""
    x = np.array([[2**24 + 1, -(2**30) - 7]], np.int32)
    y = np.array([[1, 3]], np.int32)
    np.testing.assert_array_equal(run(nl.add, x, y), x + y)
    np.testing.assert_array_equal(run(lambda x: nl.add(x, 2), x), x + 2)


def test_signed_operand_of_larger_magnitude():
    x, y = np.array([[-5.0, 1.0, 2.0]], f32), np.array([[3.0, -1.0, -3.0]], f32)
    np.testing.assert_array_equal(run(nl.abs_max, x, y, target="trn3"), [[-5.0, -1.0, -3.0]])
    np.testing.assert_array_equal(run(nl.abs_min, x, y, target="trn3"), [[3.0, -1.0, 2.0]])
    column = np.array([[3.0]], f32)
    np.testing.assert_array_equal(run(nl.abs_max, x, column, target="trn3"), [[-5.0, 3.0, 3.0]])
    with pytest.raises(errors.TargetError):
        run(nl.abs_max, x, y, target="trn2")


def test_power():
    x, y = np.array([[2.0, 3.0]], f32), np.array([[3.0, 2.0]], f32)
    np.testing.assert_allclose(run(nl.power, x, y), [[8.0, 9.0]])
    np.testing.assert_allclose(run(lambda x: nl.power(x, 0.5), x), np.sqrt(x))
    np.testing.assert_allclose(run(nl.power, x, y, buffer=nl.psum), [[8.0, 9.0]])


def test_divide():
    np.testing.assert_allclose(run(nl.divide, X, np.abs(Y) + 1), X / (np.abs(Y) + 1), rtol=1e-6)
    np.testing.assert_allclose(run(nl.divide, X, X[:, :1]), X / X[:, :1], rtol=1e-6)
    np.testing.assert_allclose(run(lambda x: nl.divide(x, 3.0), X), X / 3, rtol=1e-6)
    np.testing.assert_allclose(run(lambda y: nl.divide(3.0, y), Y), 3 / Y, rtol=1e-6)
    quarter = run(nl.divide, np.array([[1]], np.int32), np.array([[4]], np.int32))
    assert quarter.dtype == f32 and quarter[0, 0] == 0.25
    with pytest.raises(errors.ArgumentError, match="number 0"):
        run(lambda x: nl.divide(x, 0), X)


def test_both_operands_in_psum():
    """Rule 53: one of them is copied out first."""
    np.testing.assert_array_equal(run(nl.add, X, Y, buffer=nl.psum), X + Y)
    np.testing.assert_array_equal(run(nl.subtract, X, Y[:, :1], buffer=nl.psum), X - Y[:, :1])


def test_broadcasting_of_free_dimensions():
    x = np.arange(24, dtype=f32).reshape(2, 3, 4)
    for y in (x[:, :1], x[:, :, :1], x[:, :1, :1]):
        np.testing.assert_array_equal(run(nl.subtract, x, y), x - y)
        np.testing.assert_array_equal(run(nl.subtract, y, x), y - x)
    np.testing.assert_array_equal(run(nl.add, x[:, :1], x[:, :, :1]), x[:, :1] + x[:, :, :1])
    half = x[:, :1, :1].astype(bf16)
    np.testing.assert_array_equal(run(nl.multiply, x, half), x * half.astype(f32))


def test_a_column_is_an_operand_of_tensor_scalar():
    arrays = (X, Y[:, :1])
    assert mnemonics(kernel_of(nl.add).ir(arrays)) == ["tensor_scalar"]
    assert mnemonics(kernel_of(nl.add).ir((X, Y))) == ["tensor_tensor"]


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        (bf16, bf16, bf16),
        (bf16, f32, f32),
        (np.float16, bf16, f32),
        (np.int32, bf16, bf16),
        (np.int8, np.uint8, np.int16),
        (np.int32, np.uint32, f32),
        (np.int8, np.int32, np.int32),
    ],
)
def test_result_type_of_two_tiles(x, y, expected):
    """Rule 22, where the new API is silent."""
    result = run(nl.add, np.ones((2, 3), x), np.full((2, 3), 2, y))
    assert result.dtype == expected and (result.astype(f32) == 3).all()
    assert (
        run(lambda x, y: nl.add(x, y, dtype=nl.float32), np.ones((2, 3), x), np.ones((2, 3), y)).dtype == f32
    )


def test_result_type_with_a_number():
    ints = np.array([[1, 2]], np.int32)
    assert run(lambda x: nl.multiply(x, 2), ints).dtype == np.int32
    assert run(lambda x: nl.multiply(x, 0.5), ints).tolist() == [[0.5, 1.0]]
    assert run(lambda x: nl.multiply(x, 0.5), ints.astype(bf16)).dtype == bf16
    assert run(lambda x: nl.less(x, 2), ints).dtype == np.int32, "comparisons keep the type (rule 21)"
    assert run(lambda x: nl.less(x, 1.5, dtype=nl.uint8), ints).dtype == np.uint8


def test_refusals():
    with pytest.raises(errors.ShapeError, match="do not fit together"):
        run(nl.add, np.ones((2, 3), f32), np.ones((2, 4), f32))
    with pytest.raises(errors.ShapeError, match="do not fit together"):
        run(nl.add, np.ones((2, 3), f32), np.ones((2, 3, 1), f32))
    with pytest.raises(errors.ShapeError, match="broadcast_to") as caught:
        run(nl.add, np.ones((4, 3), f32), np.ones((1, 3), f32))
    assert "nl.add" in str(caught.value)
    with pytest.raises(errors.ArgumentError, match="at least one"):
        run(lambda x: nl.add(1, 2), X)
    with pytest.raises(errors.ArgumentError, match="ndarray"):
        run(lambda x: nl.add(x, X), X)
