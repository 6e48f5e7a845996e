"""`nisa.tensor_tensor_scan` against explicit loops in float32."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.single import Out, Psum, bf16, f32, interval, normal, run, same

PYTHON = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "maximum": max,
    "minimum": min,
}


def scan(x, y, initial, op0, op1, reverse0=False, reverse1=False):
    """The recurrence, one float32 operation at a time."""
    result = np.empty(x.shape, f32)
    for p in range(x.shape[0]):
        state = f32(initial[p, 0] if isinstance(initial, np.ndarray) else initial)
        for i in range(x.shape[1]):
            a, b = (state, x[p, i]) if reverse0 else (x[p, i], state)
            middle = f32(PYTHON[op0](a, b))
            a, b = (y[p, i], middle) if reverse1 else (middle, y[p, i])
            state = result[p, i] = f32(PYTHON[op1](a, b))
    return result


names = st.sampled_from(sorted(PYTHON))


@given(op0=names, op1=names, reverse=st.tuples(st.booleans(), st.booleans()), column=st.booleans())
def test_all_orders(op0: str, op1: str, reverse: tuple[bool, bool], column: bool) -> None:
    """Rule 80."""
    x, y = normal((3, 9)), normal((3, 9), seed=1)
    initial = normal((3, 1), seed=2) if column else 0.5
    found = run(
        nisa.tensor_tensor_scan,
        dst=Out((3, 9)),
        data0=x,
        data1=y,
        initial=initial,
        op0=getattr(nl, op0),
        op1=getattr(nl, op1),
        reverse0=reverse[0],
        reverse1=reverse[1],
    )
    same(found, scan(x, y, initial, op0, op1, *reverse))


def test_running_sum() -> None:
    x, y = np.ones((1, 5), f32), np.array([[1, 2, 3, 4, 5]], f32)
    found = run(
        nisa.tensor_tensor_scan, dst=Out((1, 5)), data0=x, data1=y, initial=0, op0=nl.multiply, op1=nl.add
    )
    assert found.tolist() == [[1, 3, 6, 10, 15]]


def test_long_rows() -> None:
    """Longer than the blocks in which the machine transposes."""
    x, y = normal((2, 700)), normal((2, 700), seed=1)
    found = run(
        nisa.tensor_tensor_scan, dst=Out((2, 700)), data0=x, data1=y, initial=1.0, op0=nl.multiply, op1=nl.add
    )
    same(found, scan(x, y, 1.0, "multiply", "add"))


def test_the_state_is_float32() -> None:
    """Rule 80: a bfloat16 `dst` does not round what is carried on."""
    x, y = np.ones((1, 300), bf16), np.ones((1, 300), bf16)
    found = run(
        nisa.tensor_tensor_scan,
        dst=Out((1, 300), nl.bfloat16),
        data0=x,
        data1=y,
        initial=0.0,
        op0=nl.multiply,
        op1=nl.add,
    )
    same(found, np.arange(1, 301, dtype=f32).astype(bf16)[None])


def test_two_halves_by_the_last_column_in_place() -> None:
    """Rules 46 and 80: the second half starts from the last state of the first."""

    def halves(dst: object, data0: object, data1: object) -> None:
        nisa.tensor_copy(dst=dst, src=data1)
        common = {"op0": nl.multiply, "op1": nl.add}
        nisa.tensor_tensor_scan(
            dst=dst[:, 0:4], data0=data0[:, 0:4], data1=dst[:, 0:4], initial=0.0, **common
        )
        nisa.tensor_tensor_scan(
            dst=dst[:, 4:8], data0=data0[:, 4:8], data1=dst[:, 4:8], initial=dst[:, 3:4], **common
        )

    x, y = normal((2, 8)), normal((2, 8), seed=1)
    same(run(halves, dst=Out((2, 8)), data0=x, data1=y), scan(x, y, 0.0, "multiply", "add"))


def test_several_free_axes_run_row_major() -> None:
    """Rule 45."""
    x, y = normal((2, 2, 3)), normal((2, 2, 3), seed=1)
    found = run(
        nisa.tensor_tensor_scan,
        dst=Out((2, 6)),
        data0=x,
        data1=Psum(y),
        initial=1.0,
        op0=nl.multiply,
        op1=nl.add,
    )
    same(found, scan(x.reshape(2, 6), y.reshape(2, 6), 1.0, "multiply", "add"))


def test_only_one_tile_in_psum() -> None:
    """Rule 53."""
    x = np.ones((2, 2), f32)
    with pytest.raises(errors.MemoryError_, match="cannot both live in psum"):
        run(
            nisa.tensor_tensor_scan,
            dst=Out((2, 2)),
            data0=Psum(x),
            data1=Psum(x),
            initial=0.0,
            op0=nl.multiply,
            op1=nl.add,
        )


def test_binary_arithmetic_operators_only() -> None:
    """Rules 80 and 190."""
    x = np.ones((2, 2), np.int32)
    arguments = {"dst": Out((2, 2), nl.int32), "data0": x, "data1": x, "initial": 0.0}
    for op in (nl.bitwise_and, nl.abs):
        with pytest.raises(errors.OperatorError, match="`op0`"):
            run(nisa.tensor_tensor_scan, op0=op, op1=nl.add, **arguments)


def test_the_start_is_a_number_or_column() -> None:
    x = np.ones((2, 2), f32)
    arguments = {"dst": Out((2, 2)), "data0": x, "data1": x, "op0": nl.add, "op1": nl.add}
    with pytest.raises(errors.OperandShapeError, match="1 element per partition"):
        run(nisa.tensor_tensor_scan, initial=x, **arguments)
    with pytest.raises(errors.ArgumentError, match="`initial` must be a tensor or a number"):
        run(nisa.tensor_tensor_scan, initial=None, **arguments)


def test_cost() -> None:
    x = np.ones((128, 512), bf16)
    arguments = {
        "dst": Out(x.shape, nl.bfloat16),
        "data0": x,
        "data1": x,
        "initial": 0.0,
        "op0": nl.multiply,
        "op1": nl.add,
    }
    assert interval(nisa.tensor_tensor_scan, "trn2", **arguments) == 1024
