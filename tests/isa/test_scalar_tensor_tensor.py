"""`nisa.scalar_tensor_tensor` against torch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.single import Out, Psum, bf16, f32, interval, normal, run, same

OPERATORS = ("add", "maximum", "multiply", "subtract")  # of the same names in torch


@given(
    op0=st.sampled_from(OPERATORS),
    op1=st.sampled_from(OPERATORS),
    reverse=st.tuples(st.booleans(), st.booleans()),
)
def test_all_orders(op0: str, op1: str, reverse: tuple[bool, bool]) -> None:
    torch = pytest.importorskip("torch")
    x, column, y = normal((3, 5)), normal((3, 1), seed=1), normal((3, 5), seed=2)
    found = run(
        nisa.scalar_tensor_tensor,
        dst=Out((3, 5)),
        data=x,
        op0=getattr(nl, op0),
        operand0=column,
        op1=getattr(nl, op1),
        operand1=y,
        reverse0=reverse[0],
        reverse1=reverse[1],
    )
    pair = (torch.tensor(x), torch.tensor(column).expand(3, 5))
    middle = getattr(torch, op0)(*(pair[::-1] if reverse[0] else pair))
    pair = (middle, torch.tensor(y))
    same(found, getattr(torch, op1)(*(pair[::-1] if reverse[1] else pair)).numpy())


def test_number_and_one_rounding() -> None:
    """Rule 2: 257 does not fit bfloat16, but is never stored in it."""
    x, y = np.array([[256.0]], bf16), np.array([[256.0]], bf16)
    arguments = {"data": x, "op0": nl.add, "operand0": 1.0, "op1": nl.subtract, "operand1": y}
    assert run(nisa.scalar_tensor_tensor, dst=Out((1, 1), nl.bfloat16), **arguments).astype(f32).tolist() == [
        [1]
    ]


def test_in_place_on_the_second_tile() -> None:
    """Rule 46: the usual `acc = x * scale + acc`."""

    def accumulate(dst: object, data: object, operand1: object) -> None:
        nisa.tensor_copy(dst=dst, src=operand1)
        nisa.scalar_tensor_tensor(dst=dst, data=data, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=dst)

    x, y = normal((3, 5)), normal((3, 5), seed=2)
    same(run(accumulate, dst=Out((3, 5)), data=x, operand1=y), x * f32(2) + y)


def test_column_of_any_type() -> None:
    """Rule 176."""
    x, column = np.ones((2, 3), f32), np.array([[2], [-3]], np.int8)
    arguments = {"data": x, "op0": nl.multiply, "operand0": column, "op1": nl.add, "operand1": x}
    assert run(nisa.scalar_tensor_tensor, dst=Out((2, 3)), **arguments).tolist() == [[3] * 3, [-2] * 3]


def test_only_one_tile_in_psum() -> None:
    """Rule 53."""
    x = np.ones((2, 2), f32)
    arguments = {"dst": Out((2, 2)), "op0": nl.add, "operand0": Psum(np.ones((2, 1), f32)), "op1": nl.add}
    run(nisa.scalar_tensor_tensor, data=Psum(x), operand1=x, **arguments)
    with pytest.raises(errors.MemoryError_, match="cannot both live in psum"):
        run(nisa.scalar_tensor_tensor, data=Psum(x), operand1=Psum(x), **arguments)


def test_arithmetic_operators_only() -> None:
    """Rule 190."""
    x = np.ones((2, 2), np.int32)
    arguments = {"dst": Out((2, 2), nl.int32), "data": x, "operand0": 1, "operand1": x}
    with pytest.raises(errors.OperatorError, match="`op0`"):
        run(nisa.scalar_tensor_tensor, op0=nl.bitwise_and, op1=nl.add, **arguments)
    with pytest.raises(errors.OperatorError, match="`op1`"):
        run(nisa.scalar_tensor_tensor, op0=nl.add, op1=nl.bitwise_or, **arguments)
    with pytest.raises(errors.OperatorError, match="`op1`"):
        run(nisa.scalar_tensor_tensor, op0=nl.add, op1=nl.abs, **arguments)


def test_the_second_operand_is_a_tile() -> None:
    x = np.ones((2, 2), f32)
    arguments = {"dst": Out((2, 2)), "data": x, "op0": nl.add, "operand0": 1.0, "op1": nl.add}
    with pytest.raises(errors.ArgumentError, match="must be a tensor"):
        run(nisa.scalar_tensor_tensor, operand1=1.0, **arguments)
    with pytest.raises(errors.OperandShapeError, match="dimension F"):
        run(nisa.scalar_tensor_tensor, operand1=np.ones((2, 3), f32), **arguments)
    with pytest.raises(errors.ArgumentError, match="`operand0` is missing"):
        run(nisa.scalar_tensor_tensor, operand1=x, **{**arguments, "operand0": None})


def test_cost() -> None:
    def cycles(dtype: type, psum: bool = False, **operators: object) -> int:
        x = np.ones((128, 512), dtype)
        operators = {"op0": nl.subtract, "op1": nl.multiply, **operators}
        tile = Psum(x) if psum else x
        return interval(
            nisa.scalar_tensor_tensor,
            "trn2",
            dst=Out(x.shape),
            data=tile,
            operand0=1.0,
            operand1=x,
            **operators,
        )

    assert cycles(f32) == 512  # the fast modes of tensor_tensor
    assert cycles(bf16) == 256
    assert cycles(bf16, op0=nl.add) == 512
    assert cycles(f32, psum=True) == 512 + 60
