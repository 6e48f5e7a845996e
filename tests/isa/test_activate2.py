"""`nisa.activate2` against the documented pseudocode, written out in Python."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.single import Out, Psum, bf16, diagnose, f32, interval, normal, run, same
from tests.isa.tiles import load, sbuf, store

CMD = nisa.reduce_cmd
PYTHON = {"multiply": operator.mul, "add": operator.add, "subtract": operator.sub}
PAIRS = [
    ("multiply", "add"),
    ("multiply", "subtract"),
    ("multiply", "bypass"),
    ("add", "bypass"),
    ("subtract", "bypass"),
    ("bypass", "bypass"),
]
X = np.array([[1, -2, 3], [-4, 5, 0]], f32)


def stage(x: float, op0: str, op1: str, reverse0: bool, reverse1: bool) -> float:
    for op, immediate, reverse in ((op0, 3.0, reverse0), (op1, 0.5, reverse1)):
        if op != "bypass":
            x = PYTHON[op](immediate, x) if reverse else PYTHON[op](x, immediate)
    return x


def activated(**more: object) -> object:
    arguments = {"dst": Out((2, 3)), "op": nl.copy, "data": X, "imm0": 3.0, "imm1": 0.5}
    arguments.update({"op0": nl.multiply, "op1": nl.add, **more})
    return run(nisa.activate2, target="trn3", **arguments)


def test_published_example() -> None:
    x = normal((16, 32))
    found = activated(dst=Out(x.shape), data=x, op=nl.gelu, imm0=2.0)
    wide = x.astype(np.float64) * 2 + 0.5
    golden = [[v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in row] for row in wide.tolist()]
    np.testing.assert_allclose(found, golden, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("op0", "op1"), PAIRS)
def test_rule_187_pairs_and_order(op0: str, op1: str) -> None:
    for reverse0 in {False, op0 != "bypass"}:
        for reverse1 in {False, op1 != "bypass"}:
            ops = {"op0": getattr(nl, op0), "op1": getattr(nl, op1)}
            found = activated(op=nl.square, reverse0=reverse0, reverse1=reverse1, **ops)
            golden = [[stage(v, op0, op1, reverse0, reverse1) ** 2 for v in row] for row in X.tolist()]
            assert found.tolist() == golden


def test_rule_187_other_pairs_are_refused() -> None:
    for op0, op1 in (("add", "multiply"), ("bypass", "add"), ("subtract", "add"), ("maximum", "bypass")):
        with pytest.raises(errors.OperatorError, match="one of six pairs"):
            activated(op0=getattr(nl, op0), op1=getattr(nl, op1))
    with pytest.raises(errors.OperatorError, match="`op0`"):
        activated(op0=nl.exp)


def test_rule_187_immediates_are_mandatory() -> None:
    assert activated(op0=nl.bypass, op1=nl.bypass, imm0=None, imm1=None).tolist() == X.tolist()
    with pytest.raises(errors.ArgumentError, match="`imm1` is missing"):
        activated(imm1=None)
    with pytest.raises(errors.ArgumentError, match="misses its argument `imm1`"):
        run(nisa.activate2, dst=Out((2, 3)), op=nl.copy, data=X, imm0=1.0, op0=nl.add, op1=nl.bypass)


def test_reversing_nothing_is_refused() -> None:
    with pytest.raises(errors.RuleError, match=r"`reverse1` is True, but `op1` is nl\.bypass"):
        activated(op1=nl.bypass, reverse1=True)
    with pytest.raises(errors.RuleError, match="`reverse0` is True"):
        activated(op0=nl.bypass, op1=nl.bypass, reverse0=True)


def test_columns_and_their_dtypes() -> None:
    """Rule 176: two columns have one dtype."""
    a, b = np.array([[2], [3]], f32), np.array([[10], [20]], f32)
    assert activated(imm0=a, imm1=b).tolist() == [[12, 6, 16], [8, 35, 20]]
    assert activated(imm0=a.astype(bf16), imm1=b.astype(bf16)).tolist() == [[12, 6, 16], [8, 35, 20]]
    with pytest.raises(errors.OperandDtypeError, match="one dtype"):
        activated(imm0=a, imm1=b.astype(bf16))
    assert activated(imm0=a, imm1=10.0)[0].tolist() == [12, 6, 16]


def test_rule_187_prelu() -> None:
    no_stage = {"op": nl.prelu, "op0": nl.bypass, "op1": nl.bypass}
    assert activated(**no_stage).tolist() == [[1, 0, 3], [0, 5, 0]]
    assert activated(**no_stage, relu_param=0.25).tolist() == [[1, -0.5, 3], [-1, 5, 0]]
    slopes = np.array([[0.5], [2]], f32)
    assert activated(**no_stage, relu_param=slopes).tolist() == [[1, -1, 3], [-8, 5, 0]]


@pytest.mark.parametrize(
    ("name", "golden"),
    [
        ("add", [2, 1]),
        ("maximum", [3, 5]),
        ("minimum", [-2, -4]),
        ("abs_max", [3, 5]),
        ("abs_min", [1, 0]),
    ],
)
def test_rule_187_reductions(name: str, golden: list[float]) -> None:
    _, total = activated(
        op0=nl.bypass,
        op1=nl.bypass,
        reduce_op=getattr(nl, name),
        reduce_res=Out((2, 1)),
        reduce_cmd=CMD.reset_reduce,
    )
    assert total[:, 0].tolist() == golden


def test_rules_72_75_registers_are_those_of_activation() -> None:
    @nki.jit
    def kernel(x):
        tile, out = load(x), sbuf(x.shape)
        a, b, c = (sbuf((2, 1)) for _ in range(3))
        stages = {"imm0": 2.0, "imm1": None, "op0": nl.multiply, "op1": nl.bypass}
        nisa.activation(out, nl.copy, tile, reduce_op=nl.add, reduce_cmd=CMD.reset_reduce)
        nisa.activate2(out, nl.copy, tile, **stages, reduce_op=nl.add, reduce_res=a, reduce_cmd=CMD.reduce)
        nisa.activate2(out, nl.copy, tile, **stages, reduce_op=nl.minimum, reduce_res=b, reduce_cmd=CMD.reset)
        nisa.activate2(out, nl.copy, tile, **stages)  # idle: the registers stay
        nisa.activate2(
            out, nl.copy, tile, **stages, reduce_op=nl.minimum, reduce_res=c, reduce_cmd=CMD.reduce
        )
        return store(a), store(b), store(c)

    a, b, c = nki.simulate(kernel, target="trn3")(X)
    assert a.tolist() == [[6], [3]] and np.isposinf(b).all() and c.tolist() == [[-4], [-8]]


def test_rule_177_the_sum_is_of_float32() -> None:
    x = np.array([[1.001, 1.001]], f32)
    dst, total = activated(
        dst=Out((1, 2), nl.bfloat16),
        data=x,
        op0=nl.bypass,
        op1=nl.bypass,
        reduce_op=nl.add,
        reduce_res=Out((1, 1)),
        reduce_cmd=CMD.reset_reduce,
    )
    assert dst.astype(f32).tolist() == [[1, 1]] and total.tolist() == [[2 * float(f32(1.001))]]


def test_rule_74_commands() -> None:
    with pytest.raises(errors.RuleError, match="`reduce_cmd` is a command"):
        activated(reduce_cmd=CMD.load_reduce)
    with pytest.raises(errors.ArgumentError, match="a reduction needs its operator"):
        activated(reduce_cmd=CMD.reduce)
    with pytest.raises(errors.OperatorError, match="`reduce_op`"):
        activated(reduce_op=nl.multiply, reduce_cmd=CMD.reduce)
    found = diagnose(
        nisa.activate2,
        target="trn3",
        dst=Out((2, 3)),
        op=nl.copy,
        data=X,
        imm0=0.0,
        imm1=0.0,
        op0=nl.bypass,
        op1=nl.bypass,
        reduce_res=Out((2, 1)),
    )
    assert len(found) == 1 and "undefined" in found[0].message


def test_trn3_only() -> None:
    arguments = {"op": nl.copy, "data": X, "imm0": 0.0, "imm1": 0.0, "op0": nl.bypass, "op1": nl.bypass}
    for target in ("trn1", "trn2"):
        with pytest.raises(errors.TargetError, match="trn3 and later"):
            run(nisa.activate2, target=target, dst=Out((2, 3)), **arguments)


def test_in_place_shapes_and_psum() -> None:
    @nki.jit
    def kernel(x):
        tile = load(x)
        nisa.activate2(tile, nl.copy, tile, 2.0, 1.0, nl.multiply, nl.subtract)
        return store(tile)

    same(nki.simulate(kernel, target="trn3")(X), X * 2 - 1)
    x = normal((2, 3, 4), bf16)
    found = activated(dst=Out((2, 12), nl.bfloat16, psum=True), data=Psum(x))
    same(found, (x.astype(f32) * 3 + f32(0.5)).astype(bf16).reshape(2, 12))


def test_cost_is_that_of_activation() -> None:
    x = np.ones((2, 500), f32)
    stages = {"imm0": 0.0, "imm1": 0.0, "op0": nl.add, "op1": nl.bypass}
    assert interval(nisa.activate2, "trn3", dst=Out(x.shape), op=nl.exp, data=x, **stages) == 500
    read = {"reduce_op": nl.add, "reduce_res": Out((2, 1)), "reduce_cmd": CMD.reset_reduce}
    assert interval(nisa.activate2, "trn3", dst=Out(x.shape), op=nl.exp, data=x, **stages, **read) == 564
