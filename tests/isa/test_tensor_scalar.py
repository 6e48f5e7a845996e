"""`nisa.tensor_scalar` against torch, Python integers and hand-worked examples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.single import Out, Psum, bf16, diagnose, f32, interval, normal, run, same, staged


def test_number_and_column() -> None:
    torch = pytest.importorskip("torch")
    x, column = normal((4, 6)), normal((4, 1), seed=1)
    found = run(
        nisa.tensor_scalar,
        dst=Out((4, 6)),
        data=x,
        op0=nl.multiply,
        operand0=column,
        op1=nl.add,
        operand1=2.5,
    )
    same(found, (torch.tensor(x) * torch.tensor(column) + 2.5).numpy())


def test_reversed() -> None:
    x = np.array([[1, 2, 3]], f32)
    found = run(nisa.tensor_scalar, dst=Out((1, 3)), data=x, op0=nl.subtract, operand0=1.0, reverse0=True)
    assert found.tolist() == [[0, -1, -2]]
    found = run(
        nisa.tensor_scalar,
        dst=Out((1, 3)),
        data=x,
        op0=nl.multiply,
        operand0=2.0,
        op1=nl.greater,
        operand1=4.0,
        reverse1=True,
    )
    assert found.tolist() == [[1, 0, 0]]


def test_between_operators_it_stays_float32() -> None:
    """Rule 2: one rounding, at the end."""
    x = np.array([[256.0]], bf16)
    found = run(
        nisa.tensor_scalar,
        dst=Out((1, 1), nl.bfloat16),
        data=x,
        op0=nl.add,
        operand0=1.0,
        op1=nl.subtract,
        operand1=256.0,
    )
    assert found.astype(f32).tolist() == [[1]]


def test_columns_of_any_rank_and_psum() -> None:
    """Rules 45 and 52."""
    x, column = normal((3, 2, 4)), normal((3, 1), seed=1)
    found = run(
        nisa.tensor_scalar, dst=Out((3, 8), psum=True), data=Psum(x), op0=nl.maximum, operand0=Psum(column)
    )
    same(found, np.maximum(x.reshape(3, 8), column))


def test_in_place_with_its_own_column() -> None:
    """Rule 46."""

    def normalise(dst: object, data: object) -> None:
        nisa.tensor_copy(dst=dst, src=data)
        nisa.tensor_scalar(
            dst=dst, data=dst, op0=nl.subtract, operand0=dst[:, 0:1], op1=nl.multiply, operand1=dst[:, 1:2]
        )

    x = np.array([[1, 2, 3], [4, 5, 6]], f32)
    assert run(normalise, dst=Out((2, 3)), data=x).tolist() == [[0, 2, 4], [0, 5, 10]]


@pytest.mark.parametrize("zero", [None, 0, 0.0])
def test_unary_operators(zero: float | None) -> None:
    """Rule 89."""
    x = np.array([[-4, 4, 16]], f32)
    for op, expected in (
        (nl.abs, [4, 4, 16]),
        (nl.reciprocal, [-0.25, 0.25, 0.0625]),
        (nl.square, [16, 16, 256]),
    ):
        assert run(nisa.tensor_scalar, dst=Out((1, 3)), data=x, op0=op, operand0=zero).tolist() == [expected]
    assert run(nisa.tensor_scalar, dst=Out((1, 3)), data=x, op0=nl.relu, operand0=zero).tolist() == [
        [0, 4, 16]
    ]
    with pytest.raises(errors.NkiValidationError, match="must be None or 0"):
        run(nisa.tensor_scalar, dst=Out((1, 3)), data=x, op0=nl.abs, operand0=1.0)


def test_rsqrt_and_power_run_on_gpsimd() -> None:
    """Rules 89, 90 and 92."""
    x = np.array([[4, 16]], f32)
    assert run(nisa.tensor_scalar, dst=Out((1, 2)), data=x, op0=nl.rsqrt, operand0=0.0).tolist() == [
        [0.5, 0.25]
    ]
    node = staged(nisa.tensor_scalar, dst=Out((1, 2)), data=x, op0=nl.power, operand0=-0.5)
    assert node.engine is nisa.engine.gpsimd
    added = run(
        nisa.tensor_scalar, dst=Out((1, 2)), data=x - 1, op0=nl.add, operand0=1.0, op1=nl.power, operand1=-0.5
    )
    assert added.tolist() == [[0.5, 0.25]]
    with pytest.raises(errors.EngineError, match="PSUM"):
        run(nisa.tensor_scalar, dst=Out((1, 2)), data=Psum(x), op0=nl.rsqrt, operand0=None)
    with pytest.raises(errors.EngineError, match="rsqrt and power only"):
        run(nisa.tensor_scalar, dst=Out((1, 2)), data=x, op0=nl.add, operand0=1.0, engine=nisa.engine.gpsimd)


@pytest.mark.parametrize("op", ["square", "relu", "abs_max", "abs_min"])
def test_operators_of_trn3(op: str) -> None:
    """Rule 89."""
    x, operand = np.ones((1, 2), f32), 0
    run(nisa.tensor_scalar, target="trn3", dst=Out((1, 2)), data=x, op0=getattr(nl, op), operand0=operand)
    with pytest.raises(errors.TargetError, match="trn3"):
        run(nisa.tensor_scalar, target="trn2", dst=Out((1, 2)), data=x, op0=getattr(nl, op), operand0=operand)


@given(value=st.integers(0, 2**8 - 1), mask=st.integers(0, 2**8 - 1), shift=st.integers(0, 7))
def test_bit_operators(value: int, mask: int, shift: int) -> None:
    """Rule 9."""
    x = np.array([[value]], np.uint8)
    found = run(
        nisa.tensor_scalar,
        dst=Out((1, 1), nl.uint8),
        data=x,
        op0=nl.bitwise_and,
        operand0=mask,
        op1=nl.left_shift,
        operand1=shift,
    )
    assert found.tolist() == [[(value & mask) << shift & 255]]


def test_bit_operators_on_signed_and_by_column() -> None:
    """Rule 9: the pattern of the element's width."""
    x, column = np.array([[-1, 0], [6, -2]], np.int16), np.array([[1], [15]], np.int16)
    found = run(nisa.tensor_scalar, dst=Out((2, 2), nl.int16), data=x, op0=nl.right_shift, operand0=column)
    assert found.tolist() == [[32767, 0], [0, 1]]
    found = run(nisa.tensor_scalar, dst=Out((2, 2), nl.int16), data=x, op0=nl.invert, operand0=None)
    assert found.tolist() == [[0, -1], [-7, 1]]
    found = run(nisa.tensor_scalar, dst=Out((2, 2), nl.int16), data=x, op0=nl.bitwise_xor, operand0=-1)
    assert found.tolist() == [[0, -1], [-7, 1]]


def test_bit_operator_faults() -> None:
    """Rules 9, 10 and 92."""
    x = np.ones((1, 2), np.int32)
    out = Out((1, 2), nl.int32)
    with pytest.raises(errors.ArgumentError, match="integers only"):
        run(nisa.tensor_scalar, dst=out, data=x, op0=nl.bitwise_and, operand0=1.0)
    with pytest.raises(errors.OperandDtypeError, match="integers only"):
        run(nisa.tensor_scalar, dst=Out((1, 2)), data=x, op0=nl.bitwise_and, operand0=1)
    with pytest.raises(errors.OperatorError, match="rule 10"):
        run(nisa.tensor_scalar, dst=out, data=x, op0=nl.bitwise_and, operand0=1, op1=nl.add, operand1=1)
    with pytest.raises(errors.EngineError, match="Vector"):
        run(nisa.tensor_scalar, dst=out, data=x, op0=nl.bitwise_and, operand0=1, engine=nisa.engine.scalar)


def test_integers_are_exact() -> None:
    """Rule 14: the address form."""
    x = np.array([[2**24 + 1, -(2**31)]], np.int32)
    assert run(nisa.tensor_scalar, dst=Out((1, 2), nl.int32), data=x, op0=nl.add, operand0=-1).tolist() == [
        [2**24, 2**31 - 1]
    ]
    column = np.array([[3]], np.int32)
    found = run(
        nisa.tensor_scalar,
        dst=Out((1, 2), nl.int32),
        data=x,
        op0=nl.multiply,
        operand0=column,
        op1=nl.add,
        operand1=1,
    )
    assert found.tolist() == [[3 * 2**24 + 4, -(2**31) + 1]]


def test_a_float_operand_means_float32() -> None:
    """Rule 14."""
    x = np.array([[2**24 + 1]], np.int32)
    assert run(nisa.tensor_scalar, dst=Out((1, 1), nl.int32), data=x, op0=nl.add, operand0=0.0).tolist() == [
        [2**24]
    ]


def test_operand_tiles_should_be_float32() -> None:
    """Rule 176: a note, it runs."""
    x, column = np.ones((2, 2), bf16), np.full((2, 1), 2, bf16)
    arguments = {"dst": Out((2, 2)), "data": x, "op0": nl.multiply, "operand0": column}
    assert run(nisa.tensor_scalar, **arguments).tolist() == [[2, 2]] * 2
    assert [d.severity for d in diagnose(nisa.tensor_scalar, **arguments)] == ["note"]


def test_operands_go_with_operators() -> None:
    x = np.ones((2, 2), f32)
    with pytest.raises(errors.ArgumentError, match="missing"):
        run(nisa.tensor_scalar, dst=Out((2, 2)), data=x, op0=nl.add, operand0=None)
    with pytest.raises(errors.NkiValidationError, match="`op1` is not"):
        run(nisa.tensor_scalar, dst=Out((2, 2)), data=x, op0=nl.add, operand0=1.0, operand1=1.0)
    with pytest.raises(errors.OperandShapeError, match="1 element per partition"):
        run(nisa.tensor_scalar, dst=Out((2, 2)), data=x, op0=nl.add, operand0=x)


def test_scalar_engine() -> None:
    """Rule 92."""
    x = np.ones((2, 2), f32)
    multiply = {
        "dst": Out((2, 2)),
        "data": x,
        "op0": nl.multiply,
        "operand0": 3.0,
        "engine": nisa.engine.scalar,
    }
    assert (
        run(nisa.tensor_scalar, target="trn2", op1=nl.add, operand1=1.0, **multiply).tolist() == [[4, 4]] * 2
    )
    with pytest.raises(errors.EngineError, match="trn1 Scalar"):
        run(nisa.tensor_scalar, target="trn1", **multiply)
    with pytest.raises(errors.EngineError, match="multiply with add"):
        run(nisa.tensor_scalar, target="trn2", op1=nl.maximum, operand1=1.0, **multiply)
    run(nisa.tensor_scalar, target="trn3", op1=nl.maximum, operand1=1.0, **multiply)


def test_cost() -> None:
    def cycles(target: str, dtype: type, **arguments: object) -> int:
        x = np.ones((128, 1024), dtype)
        return interval(
            nisa.tensor_scalar,
            target,
            dst=Out(x.shape, np.dtype(dtype)),
            data=x,
            **{"op0": nl.add, "operand0": 1.0, **arguments},
        )

    assert cycles("trn1", f32) == cycles("trn1", bf16) == 1024
    assert cycles("trn1", f32, op1=nl.multiply, operand1=2.0) == 1024
    assert (cycles("trn2", f32), cycles("trn2", bf16)) == (512, 256)
    assert cycles("trn3", bf16, engine=nisa.engine.scalar) == 512
    assert cycles("trn2", f32, op0=nl.rsqrt, operand0=None) == 150 + 4096
