"""`nisa.tensor_scalar_cumulative` against explicit loops in float32."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.single import Out, Psum, bf16, diagnose, f32, interval, normal, run, same
from tests.isa.tiles import load, sbuf, store

CMD = nisa.reduce_cmd
FOLDS = {
    "add": (lambda x, r: x + r, 0.0),
    "subtract": (lambda x, r: x - r, 0.0),
    "multiply": (lambda x, r: x * r, 1.0),
    "maximum": (max, -np.inf),
    "minimum": (min, np.inf),
    "max": (max, -np.inf),
    "min": (min, np.inf),
}


def loop(op1: str, values: np.ndarray, start: float | None = None) -> np.ndarray:
    combine, identity = FOLDS[op1]
    out = np.empty_like(values)
    for row, result in zip(values, out):
        register = f32(identity if start is None else start)
        for i, x in enumerate(row):
            register = f32(combine(x, register))
            result[i] = register
    return out


def test_worked_examples() -> None:
    x = np.array([[1, 2, 3, 4]], f32)
    arguments = {"dst": Out((1, 4)), "src": x, "op0": nl.multiply, "imm0": 2.0}
    assert run(nisa.tensor_scalar_cumulative, op1=nl.add, **arguments).tolist() == [[2, 6, 12, 20]]
    assert run(nisa.tensor_scalar_cumulative, op1=nl.subtract, **arguments).tolist() == [[2, 2, 4, 4]]
    assert run(nisa.tensor_scalar_cumulative, op1=nl.multiply, **arguments).tolist() == [[2, 8, 48, 384]]


@pytest.mark.parametrize("op1", FOLDS)
@pytest.mark.parametrize("start", [None, 2.5])
def test_rule_79_bit_for_bit(op1: str, start: float | None) -> None:
    x = normal((5, 33))
    command = {} if start is None else {"reduce_cmd": CMD.load_reduce, "imm1": start}
    found = run(
        nisa.tensor_scalar_cumulative,
        dst=Out(x.shape),
        src=x,
        op0=nl.add,
        op1=getattr(nl, op1),
        imm0=0.25,
        **command,
    )
    same(found, loop(op1, x + f32(0.25), start))


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=9), st.sampled_from(["add", "subtract"]))
def test_rule_79_short_rows(values: list[int], op1: str) -> None:
    x = np.array([values], f32)
    found = run(
        nisa.tensor_scalar_cumulative, dst=Out(x.shape), src=x, op0=nl.add, op1=getattr(nl, op1), imm0=0.0
    )
    assert found.tolist() == loop(op1, x).tolist() and not np.signbit(found[found == 0]).any()


def test_rule_79_columns() -> None:
    x, imm0, imm1 = normal((4, 8)), normal((4, 1), seed=1), normal((4, 1), seed=2)
    found = run(
        nisa.tensor_scalar_cumulative,
        dst=Out(x.shape),
        src=x,
        op0=nl.subtract,
        op1=nl.maximum,
        imm0=imm0,
        imm1=imm1,
        reduce_cmd=CMD.load_reduce,
    )
    golden = np.maximum(np.maximum.accumulate(x - imm0, axis=1), imm1)
    same(found, golden)


def test_rules_2_79_carried_in_float32() -> None:
    """256 + 1 + 1 + ... in bfloat16 stays at 256; the register does not."""
    x = np.array([[256, 1, 1, 1, 1]], bf16)
    found = run(
        nisa.tensor_scalar_cumulative, dst=Out((1, 5), nl.bfloat16), src=x, op0=nl.add, op1=nl.add, imm0=0.0
    )
    assert found.astype(f32).tolist() == np.array([[256, 257, 258, 259, 260]], bf16).astype(f32).tolist()


@pytest.mark.parametrize("first", ["reset_reduce", "load_reduce"])
def test_rules_74_79_chain(first: str) -> None:
    """The published chain: a second tile goes on from the register."""

    @nki.jit
    def kernel(x):
        tile, a, b = load(x), sbuf(x.shape), sbuf(x.shape)
        start = 1.0 if first == "load_reduce" else None
        nisa.tensor_scalar_cumulative(a, tile, nl.add, nl.add, 0.0, start, reduce_cmd=CMD[first])
        nisa.tensor_scalar_cumulative(b, tile, nl.add, nl.add, 0.0, reduce_cmd=CMD.reduce)
        return store(b)

    x = np.ones((128, 64), f32)
    golden = np.cumsum(x, axis=1) + 64 + (first == "load_reduce")
    assert np.array_equal(nki.simulate(kernel)(x), golden)


def test_rule_74_registers_are_shared() -> None:
    """A running sum leaves in the registers what tensor_scalar_reduce goes on from."""

    @nki.jit
    def kernel(x):
        tile, out, total = load(x), sbuf(x.shape), sbuf((x.shape[0], 1))
        nisa.tensor_scalar_cumulative(out, tile, nl.add, nl.add, 0.0)
        nisa.tensor_scalar_reduce(out, tile, nl.add, 0.0, nl.add, total, reduce_cmd=CMD.reduce)
        return store(total)

    x = np.arange(8, dtype=f32).reshape(2, 4)
    assert nki.simulate(kernel)(x).tolist() == [[12], [44]]


def test_several_free_axes_are_one() -> None:
    x = normal((3, 2, 5))
    found = run(nisa.tensor_scalar_cumulative, dst=Out(x.shape), src=x, op0=nl.add, op1=nl.add, imm0=0.0)
    same(found.reshape(3, 10), loop("add", x.reshape(3, 10)))


def test_in_place() -> None:
    @nki.jit
    def kernel(x):
        tile = load(x)
        nisa.tensor_scalar_cumulative(tile, tile, nl.add, nl.multiply, 1.0)
        return store(tile)

    x = normal((2, 6))
    same(nki.simulate(kernel)(x), loop("multiply", x + f32(1)))


def test_rule_79_dtypes() -> None:
    arguments = {"op0": nl.add, "op1": nl.add, "imm0": 1.0}
    for dtype in (np.int8, np.uint16, np.float16, ml_dtypes.float8_e5m2):
        x = np.ones((1, 3), dtype)
        found = run(nisa.tensor_scalar_cumulative, dst=Out((1, 3), nl.int16), src=x, **arguments)
        assert found.tolist() == [[2, 4, 6]]
    for dtype in (np.int32, np.uint32):
        with pytest.raises(errors.OperandDtypeError, match="`src` cannot be"):
            run(nisa.tensor_scalar_cumulative, dst=Out((1, 3)), src=np.ones((1, 3), dtype), **arguments)
    with pytest.raises(errors.OperandDtypeError, match="`dst` cannot be int32"):
        run(nisa.tensor_scalar_cumulative, dst=Out((1, 3), nl.int32), src=np.ones((1, 3), f32), **arguments)


def test_rules_176_190_operands_and_operators() -> None:
    x = np.ones((1, 3), f32)
    arguments = {"dst": Out((1, 3)), "src": x}
    with pytest.raises(errors.OperandDtypeError, match="`imm0` cannot be bfloat16"):
        run(nisa.tensor_scalar_cumulative, op0=nl.add, op1=nl.add, imm0=np.ones((1, 1), bf16), **arguments)
    with pytest.raises(errors.OperatorError, match="`op1`"):
        run(nisa.tensor_scalar_cumulative, op0=nl.add, op1=nl.equal, imm0=1.0, **arguments)
    with pytest.raises(errors.OperatorError, match="`op0`"):
        run(nisa.tensor_scalar_cumulative, op0=nl.bitwise_and, op1=nl.add, imm0=1, **arguments)
    with pytest.raises(errors.ArgumentError, match="`imm0` is missing"):
        run(nisa.tensor_scalar_cumulative, op0=nl.add, op1=nl.add, imm0=None, **arguments)
    found = run(nisa.tensor_scalar_cumulative, op0=nl.abs, op1=nl.add, imm0=None, dst=Out((1, 3)), src=-x)
    assert found.tolist() == [[1, 2, 3]]


def test_rule_74_commands() -> None:
    x = np.ones((1, 3), f32)
    arguments = {"dst": Out((1, 3)), "src": x, "op0": nl.add, "op1": nl.add, "imm0": 0.0}
    for command in (CMD.idle, CMD.reset):
        with pytest.raises(errors.RuleError, match="`reduce_cmd` is a command"):
            run(nisa.tensor_scalar_cumulative, reduce_cmd=command, **arguments)
    with pytest.raises(errors.ArgumentError, match="`imm1` is missing"):
        run(nisa.tensor_scalar_cumulative, reduce_cmd=CMD.load_reduce, **arguments)
    found = diagnose(nisa.tensor_scalar_cumulative, imm1=1.0, **arguments)
    assert [d.severity for d in found] == ["warning"] and "imm1" in found[0].message


def test_psum_and_cost() -> None:
    x = normal((2, 500))
    arguments = {"op0": nl.add, "op1": nl.minimum, "imm0": 0.0}
    found = run(nisa.tensor_scalar_cumulative, dst=Out(x.shape, psum=True), src=Psum(x), **arguments)
    same(found, np.minimum.accumulate(x, axis=1))
    assert interval(nisa.tensor_scalar_cumulative, "trn2", dst=Out(x.shape), src=x, **arguments) == 500
