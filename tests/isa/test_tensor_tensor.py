"""`nisa.tensor_tensor` against torch, Python integers and explicit loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.single import Out, Psum, bf16, f32, interval, normal, run, same, staged

TORCH = {
    "add": "add",
    "subtract": "subtract",
    "multiply": "multiply",
    "maximum": "maximum",
    "minimum": "minimum",
    "equal": "eq",
    "not_equal": "ne",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "logical_and": "logical_and",
    "logical_or": "logical_or",
    "logical_xor": "logical_xor",
}
PYTHON_BITS = {
    "bitwise_and": lambda x, y: x & y,
    "bitwise_or": lambda x, y: x | y,
    "bitwise_xor": lambda x, y: x ^ y,
}


@pytest.mark.parametrize("name", sorted(TORCH))
def test_arithmetic(name: str) -> None:
    """Rules 2 and 11."""
    torch = pytest.importorskip("torch")
    x, y = normal((4, 6), seed=1), normal((4, 6), seed=2)
    x[:, 0] = y[:, 0]
    expected = getattr(torch, TORCH[name])(torch.tensor(x), torch.tensor(y)).to(torch.float32).numpy()
    same(run(nisa.tensor_tensor, dst=Out((4, 6)), data1=x, data2=y, op=getattr(nl, name)), expected)


def test_bfloat16_is_computed_in_float32() -> None:
    """Rule 2."""
    x, y = np.array([[2.5, -5.0]], bf16), np.array([[2.0, -2.0]], bf16)
    same(
        run(nisa.tensor_tensor, dst=Out((1, 2), nl.bfloat16), data1=x, data2=y, op=nl.add),
        np.array([[4.5, -7.0]], bf16),
    )
    assert run(nisa.tensor_tensor, dst=Out((1, 2)), data1=x, data2=y, op=nl.less).tolist() == [[0, 1]]


def test_power_runs_on_gpsimd() -> None:
    """Rules 89 and 90."""
    x, y = np.array([[2, 9, 4]], f32), np.array([[3, 0.5, -1]], f32)
    assert run(nisa.tensor_tensor, dst=Out((1, 3)), data1=x, data2=y, op=nl.power).tolist() == [[8, 3, 0.25]]
    assert (
        staged(nisa.tensor_tensor, dst=Out((1, 3)), data1=x, data2=y, op=nl.power).engine
        is nisa.engine.gpsimd
    )
    with pytest.raises(errors.EngineError, match="PSUM"):
        run(nisa.tensor_tensor, dst=Out((1, 3)), data1=Psum(x), data2=y, op=nl.power)


def test_abs_max_keeps_the_sign() -> None:
    """Rules 19 and 89: trn3 only; the second operand wins a tie."""
    x, y = np.array([[1, -3, 2]], f32), np.array([[-2, 1, -2]], f32)
    assert run(nisa.tensor_tensor, dst=Out((1, 3)), data1=x, data2=y, op=nl.abs_max).tolist() == [
        [-2, -3, -2]
    ]
    assert run(nisa.tensor_tensor, dst=Out((1, 3)), data1=x, data2=y, op=nl.abs_min).tolist() == [[1, 1, -2]]
    with pytest.raises(errors.TargetError, match="trn3 and later"):
        run(nisa.tensor_tensor, target="trn2", dst=Out((1, 3)), data1=x, data2=y, op=nl.abs_max)


@given(st.data())
def test_int32_is_exact_and_wraps(data: st.DataObject) -> None:
    """Rule 13."""
    integers = st.lists(st.integers(-(2**31), 2**31 - 1), min_size=3, max_size=3)
    x, y = data.draw(integers), data.draw(integers)
    for op, python in ((nl.add, int.__add__), (nl.subtract, int.__sub__), (nl.multiply, int.__mul__)):
        arrays = {"data1": np.array([x], np.int32), "data2": np.array([y], np.int32)}
        found = run(nisa.tensor_tensor, dst=Out((1, 3), nl.int32), op=op, **arrays)
        expected = [(python(a, b) + 2**31) % 2**32 - 2**31 for a, b in zip(x, y)]
        assert found.tolist() == [expected]


def test_int32_mixed_with_uint32() -> None:
    """Rule 13: by value, the low 32 bits are kept."""
    x, y = np.array([[-1, 5]], np.int32), np.array([[2**32 - 1, 7]], np.uint32)
    found = run(nisa.tensor_tensor, dst=Out((1, 2), nl.uint32), data1=x, data2=y, op=nl.add)
    assert found.tolist() == [[2**32 - 2, 12]]
    assert run(nisa.tensor_tensor, dst=Out((1, 2), nl.int32), data1=x, data2=y, op=nl.less).tolist() == [
        [1, 1]
    ]


def test_int32_on_vector_or_from_psum_is_float32() -> None:
    """Rule 13."""
    x, y = np.array([[2**24 + 1]], np.int32), np.array([[0]], np.int32)
    for arguments in ({"engine": nisa.engine.vector, "data1": x}, {"data1": Psum(x)}):
        found = run(nisa.tensor_tensor, dst=Out((1, 1), nl.int32), data2=y, op=nl.add, **arguments)
        assert found.tolist() == [[2**24]]
        node = staged(nisa.tensor_tensor, dst=Out((1, 1), nl.int32), data2=y, op=nl.add, **arguments)
        assert node.engine is nisa.engine.vector
    exact = staged(nisa.tensor_tensor, dst=Out((1, 1), nl.int32), data1=x, data2=y, op=nl.add)
    assert exact.engine is nisa.engine.gpsimd


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32])
@pytest.mark.parametrize("name", sorted(PYTHON_BITS))
def test_bit_operators(name: str, dtype: type) -> None:
    """Rule 9."""
    rng = np.random.default_rng(3)
    limits = np.iinfo(dtype)
    x, y = (rng.integers(limits.min, limits.max, (2, 5), dtype, endpoint=True) for _ in range(2))
    found = run(nisa.tensor_tensor, dst=Out((2, 5), np.dtype(dtype)), data1=x, data2=y, op=getattr(nl, name))
    expected = [[PYTHON_BITS[name](int(a), int(b)) for a, b in zip(*rows)] for rows in zip(x, y)]
    assert found.tolist() == expected


def test_right_shift_is_logical() -> None:
    """Rule 9: zeros move in, even for signed types."""
    x, y = np.array([[-8, -1, 16]], np.int32), np.array([[1, 31, 2]], np.int32)
    found = run(nisa.tensor_tensor, dst=Out((1, 3), nl.int32), data1=x, data2=y, op=nl.right_shift)
    assert found.tolist() == [[2**31 - 4, 1, 4]]


def test_bit_operators_refuse_floats_and_gpsimd() -> None:
    """Rules 9 and 92."""
    x = np.ones((1, 3), f32)
    with pytest.raises(errors.OperandDtypeError, match="integers only"):
        run(nisa.tensor_tensor, dst=Out((1, 3)), data1=x, data2=x, op=nl.bitwise_and)
    x = np.ones((1, 3), np.int32)
    with pytest.raises(errors.EngineError, match="Vector"):
        run(
            nisa.tensor_tensor,
            dst=Out((1, 3), nl.int32),
            data1=x,
            data2=x,
            op=nl.bitwise_and,
            engine=nisa.engine.gpsimd,
        )


def test_only_one_input_in_psum() -> None:
    """Rule 53."""
    x = np.ones((2, 2), f32)
    run(nisa.tensor_tensor, dst=Out((2, 2), psum=True), data1=x, data2=Psum(x), op=nl.add)
    with pytest.raises(errors.MemoryError_, match="cannot both live in psum"):
        run(nisa.tensor_tensor, dst=Out((2, 2)), data1=Psum(x), data2=Psum(x), op=nl.add)


def test_operators_have_two_operands() -> None:
    """Rule 190."""
    x = np.ones((2, 2), f32)
    with pytest.raises(errors.OperatorError, match="two operands"):
        run(nisa.tensor_tensor, dst=Out((2, 2)), data1=x, data2=x, op=nl.abs)
    with pytest.raises(errors.OperatorError):
        run(nisa.tensor_tensor, dst=Out((2, 2)), data1=x, data2=x, op="frobnicate")


def test_in_place_with_overlap() -> None:
    """Rule 46: all is read before anything is written."""

    def shifted(dst: object, data: object) -> None:
        nisa.tensor_copy(dst=dst, src=data)
        nisa.tensor_tensor(dst=dst[:, 1:5], data1=dst[:, 0:4], data2=data[:, 1:5], op=nl.maximum)

    x = np.array([[5, 4, 3, 2, 1]], f32)
    assert run(shifted, dst=Out((1, 5)), data=x).tolist() == [[5, 5, 4, 3, 2]]


def test_cost() -> None:
    def cycles(target: str, dtype: type, **arguments: object) -> int:
        x = np.ones((128, 512), dtype)
        arguments = {"data1": x, "data2": x, "op": nl.add, **arguments}
        return interval(nisa.tensor_tensor, target, dst=Out(x.shape, np.dtype(dtype)), **arguments)

    assert cycles("trn1", f32) == 1024
    assert cycles("trn1", f32, data1=Psum(np.ones((128, 512), f32))) == 512
    assert cycles("trn1", bf16) == 512
    assert cycles("trn1", bf16, op=nl.maximum) == 1024
    assert cycles("trn2", bf16) == 256
    assert cycles("trn2", bf16, op=nl.maximum) == 512
    assert cycles("trn2", f32, data1=Psum(np.ones((128, 512), f32))) == 512 + 60
    assert cycles("trn2", np.int32) == 150 + 1024
