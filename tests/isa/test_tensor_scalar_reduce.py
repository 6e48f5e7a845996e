"""`nisa.tensor_scalar_reduce` against explicit loops, and the accumulator registers of the Vector engine."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.single import Out, Psum, bf16, diagnose, f32, interval, run

COLUMN = Out((2, 1))
X = np.array([[1, 2, 3], [4, 5, 6]], f32)
BASE = {
    "dst": Out((2, 3)),
    "reduce_res": COLUMN,
    "data": X,
    "op0": nl.multiply,
    "operand0": 2.0,
    "reduce_op": nl.add,
}


def test_result_and_fold() -> None:
    dst, fold = run(nisa.tensor_scalar_reduce, **BASE)
    assert dst.tolist() == [[2, 4, 6], [8, 10, 12]] and fold.tolist() == [[12], [30]]


@pytest.mark.parametrize("name", ["add", "multiply", "max", "min", "maximum", "minimum"])
@given(values=st.lists(st.integers(-6, 6), min_size=1, max_size=5))
def test_operators(name: str, values: list[int]) -> None:
    """Rules 74 and 189."""
    python = {"add": lambda x, y: x + y, "multiply": lambda x, y: x * y, "max": max, "min": min}
    x = np.array([values], f32)
    arguments = {"op0": nl.add, "operand0": 1.0, "reduce_op": getattr(nl, name)}
    _, fold = run(nisa.tensor_scalar_reduce, dst=Out(x.shape), reduce_res=Out((1, 1)), data=x, **arguments)
    assert fold.tolist() == [[reduce(python[name[:8].replace("imum", "")], [v + 1 for v in values])]]


def test_the_fold_sees_float32() -> None:
    """Rule 177: 257 is not rounded before it is folded."""
    x = np.array([[256.0, 0.0]], bf16)
    dst, fold = run(
        nisa.tensor_scalar_reduce,
        dst=Out((1, 2), nl.bfloat16),
        reduce_res=Out((1, 1)),
        data=x,
        op0=nl.add,
        operand0=1.0,
        reduce_op=nl.add,
    )
    assert dst.astype(f32).tolist() == [[256, 1]] and fold.tolist() == [[258]]


def test_chain_through_the_registers() -> None:
    """Rule 75: without `reduce_res` the registers keep the value for the next instruction."""

    def chain(dst: object, reduce_res: object, data: object) -> None:
        common = {"dst": dst, "data": data, "op0": nl.multiply, "operand0": 1.0, "reduce_op": nl.add}
        nisa.tensor_scalar_reduce(**common)
        nisa.tensor_scalar_reduce(reduce_cmd=nisa.reduce_cmd.reduce, **common)
        nisa.tensor_scalar_reduce(reduce_cmd=nisa.reduce_cmd.reduce, reduce_res=reduce_res, **common)

    _, fold = run(chain, dst=Out((2, 3)), reduce_res=COLUMN, data=X)
    assert fold.tolist() == [[18], [45]]


def test_negate_leaves_the_registers() -> None:
    """Rule 75."""

    def chain(dst: object, first: object, second: object, data: object) -> None:
        common = {"dst": dst, "data": data, "op0": nl.add, "operand0": 0.0, "reduce_op": nl.maximum}
        nisa.tensor_scalar_reduce(reduce_res=first, reduce_res_negate=True, **common)
        nisa.tensor_scalar_reduce(reduce_res=second, reduce_cmd=nisa.reduce_cmd.reduce, **common)

    _, first, second = run(chain, dst=Out((2, 3)), first=COLUMN, second=COLUMN, data=X)
    assert first.tolist() == [[-3], [-6]] and second.tolist() == [[3], [6]]


@pytest.mark.parametrize("start", [10.0, np.array([[10], [20]], f32)])
def test_load_reduce(start: object) -> None:
    """Rule 74."""
    load = nisa.reduce_cmd.load_reduce
    _, fold = run(nisa.tensor_scalar_reduce, **BASE, reduce_cmd=load, reduce_init=start)
    assert fold.tolist() == ([[22], [40]] if isinstance(start, float) else [[22], [50]])


def test_several_free_axes_and_psum() -> None:
    """Rule 186: all free axes are folded."""
    x = np.arange(12, dtype=f32).reshape(2, 2, 3)
    _, fold = run(
        nisa.tensor_scalar_reduce, **{**BASE, "dst": Out((2, 6), psum=True), "data": Psum(x), "operand0": 1.0}
    )
    assert fold.tolist() == [[15], [51]]


def test_unary() -> None:
    """Rule 89."""
    arguments = {**BASE, "data": -X, "op0": nl.abs}
    assert run(nisa.tensor_scalar_reduce, **{**arguments, "operand0": None})[1].tolist() == [[6], [15]]
    with pytest.raises(errors.NkiValidationError, match="must be None or 0"):
        run(nisa.tensor_scalar_reduce, **arguments)


@pytest.mark.parametrize("command", ["idle", "reset"])
def test_commands(command: str) -> None:
    """Rule 74."""
    with pytest.raises(errors.RuleError, match="rule 74"):
        run(nisa.tensor_scalar_reduce, **BASE, reduce_cmd=nisa.reduce_cmd[command])


def test_command_is_no_number() -> None:
    """Rule 144."""
    with pytest.raises(errors.ArgumentError, match="reduce_cmd"):
        run(nisa.tensor_scalar_reduce, **BASE, reduce_cmd=3)


def test_start_value_faults() -> None:
    """Rules 74 and 176."""
    load = nisa.reduce_cmd.load_reduce
    with pytest.raises(errors.ArgumentError, match="`reduce_init` is missing"):
        run(nisa.tensor_scalar_reduce, **BASE, reduce_cmd=load)
    with pytest.raises(errors.OperandDtypeError, match="float32"):
        run(nisa.tensor_scalar_reduce, **BASE, reduce_cmd=load, reduce_init=np.ones((2, 1), bf16))
    (found,) = diagnose(nisa.tensor_scalar_reduce, **BASE, reduce_init=1.0)
    assert found.severity == "warning" and "load_reduce" in found.message


@pytest.mark.parametrize("op", ["subtract", "logical_or", "bitwise_or", "equal"])
def test_reduction_operators(op: str) -> None:
    """Rule 190."""
    with pytest.raises(errors.OperatorError, match=r"nl\.add, nl\.multiply"):
        run(nisa.tensor_scalar_reduce, **{**BASE, "reduce_op": getattr(nl, op)})


def test_bit_operators_are_refused() -> None:
    """Rule 190."""
    with pytest.raises(errors.OperatorError, match="arithmetic"):
        run(nisa.tensor_scalar_reduce, **{**BASE, "op0": nl.bitwise_or})


def test_reverse0_is_a_note() -> None:
    """Rule 190."""
    arguments = {**BASE, "op0": nl.subtract, "reverse0": True}
    assert run(nisa.tensor_scalar_reduce, **arguments)[0].tolist() == [[1, 0, -1], [-2, -3, -4]]
    assert [d.severity for d in diagnose(nisa.tensor_scalar_reduce, **arguments)] == ["note"]


def test_cost() -> None:
    """max(64, N), and 64 more to read the registers out."""
    x = np.ones((128, 512), f32)
    arguments = {**BASE, "dst": Out(x.shape), "data": x}
    assert interval(nisa.tensor_scalar_reduce, "trn2", **{**arguments, "reduce_res": Out((128, 1))}) == 576
    del arguments["reduce_res"]
    assert interval(nisa.tensor_scalar_reduce, "trn2", **arguments) == 512
