"""activation against float32 NumPy and Python's `math`, one element at a time."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.isa.activation_functions import ACTIVATIONS
from nki.target import get_target
from tests.isa.tiles import load, run, sbuf, staged, store, whole_numbers

BF16 = ml_dtypes.bfloat16
CMD = nisa.reduce_cmd


@nki.jit
def scaled_exp(x, bias, scale):
    o = sbuf(x.shape)
    nisa.activation(dst=o, op=nl.exp, data=load(x), bias=load(bias), scale=load(scale))
    return store(o)


# ---- op(data * scale + bias) ---------------------------------------------------------------------------------------


def test_rule_70_scale_and_bias_columns():
    x, b, s = whole_numbers((3, 5)) / 4, whole_numbers((3, 1), seed=1), whole_numbers((3, 1), seed=2)
    expected = [[math.exp(x[p, f] * s[p, 0] + b[p, 0]) for f in range(5)] for p in range(3)]
    np.testing.assert_allclose(run(scaled_exp, x, b, s), expected, rtol=1e-6)


def test_rule_70_bias_with_copy():
    @nki.jit
    def kernel(x, b):
        o = sbuf(x.shape)
        nisa.activation(dst=o, op=nl.copy, data=load(x), bias=load(b), scale=2.0)
        return store(o)

    out = run(kernel, np.ones((2, 3), np.float32), np.array([[10.0], [20.0]], np.float32))
    assert out.tolist() == [[12.0] * 3, [22.0] * 3]


@given(
    scale=st.sampled_from([1.0, 0.0, -2.0, 3]),
    bias=st.sampled_from([None, 0.0, 1.5, -3]),
    op=st.sampled_from(["copy", "square", "relu", "abs"]),
    free=st.sampled_from([(1,), (5,), (2, 3)]),
)
def test_rule_70_numbers(scale, bias, op, free):
    @nki.jit
    def kernel(x):
        o = sbuf(x.shape)
        nisa.activation(dst=o, op=getattr(nl, op), data=load(x), scale=scale, bias=bias)
        return store(o)

    function = {"copy": lambda v: v, "square": lambda v: v * v, "relu": lambda v: max(v, 0.0), "abs": abs}[op]
    x = whole_numbers((4, *free))
    expected = np.vectorize(lambda v: function(v * scale + (bias or 0.0)))(x.astype(np.float64))
    np.testing.assert_array_equal(run(kernel, x), expected)


@pytest.mark.parametrize("dtype", [BF16, np.float16, np.int32, np.int8])
def test_rule_2_float32_inside_one_rounding_outside(dtype):
    @nki.jit
    def kernel(x):
        o = sbuf(x.shape, nl.bfloat16)
        nisa.activation(dst=o, op=nl.square, data=load(x), scale=0.7, bias=0.3)
        return store(o)

    x = whole_numbers((4, 6)).astype(dtype)
    inner = x.astype(np.float32) * np.float32(0.7) + np.float32(0.3)
    np.testing.assert_array_equal(run(kernel, x), (inner * inner).astype(BF16))


def test_rule_88_copy_goes_through_float32():
    @nki.jit
    def kernel(x):
        o = sbuf(x.shape, nl.int32)
        nisa.activation(dst=o, op=nl.copy, data=load(x))
        return store(o)

    assert run(kernel, np.array([[2**24 + 1, 7]], np.int32), target="trn1").tolist() == [[2**24, 7]]


def test_rule_84_every_function():
    @nki.jit
    def kernel(x, name):
        o = sbuf(x.shape)
        nisa.activation(dst=o, op=getattr(nl, name), data=load(x))
        return store(o)

    x = np.array([[0.25, 0.5, 1.0, 1.5]], np.float32)
    for name, row in ACTIVATIONS.items():
        out = np.empty_like(x)
        row.function(x.copy(), out)
        np.testing.assert_array_equal(run(kernel, x, name), out, err_msg=name)


def test_columns_may_lie_inside_dst():
    @nki.jit
    def kernel(x, m):
        t = load(m)
        nisa.activation(dst=t, op=nl.copy, data=load(x), scale=-1.0, bias=t)
        return store(t)

    x, m = whole_numbers((4, 1)), whole_numbers((4, 1), seed=1)
    np.testing.assert_array_equal(run(kernel, x, m), m - x)


def test_bias_of_any_dtype():
    @nki.jit
    def kernel(x, b):
        o = sbuf(x.shape)
        nisa.activation(dst=o, op=nl.copy, data=load(x), bias=load(b))
        return store(o)

    x = whole_numbers((4, 5))
    for dtype in (BF16, np.int32, np.uint8):
        b = np.array([[1], [2], [3], [4]], dtype)
        np.testing.assert_array_equal(run(kernel, x, b), x + b.astype(np.float32))


# ---- what is refused -----------------------------------------------------------------------------------------------


@nki.jit
def general(x, options):
    o = sbuf(x.shape)
    nisa.activation(dst=o, data=load(x), **{"op": nl.exp, **options})
    return store(o)


ONES = np.ones((4, 4), np.float32)


def test_rule_70_number_as_bias_from_trn2():
    with pytest.raises(errors.RuleError) as caught:
        run(general, ONES, {"bias": 1.0}, target="trn1")
    assert "1.0 on trn1" in str(caught.value) and "nisa.memset" in str(caught.value)
    np.testing.assert_allclose(run(general, ONES, {"bias": 1.0}), math.exp(2), rtol=1e-6)


def test_rule_70_reciprocal_without_bias_on_trn1():
    @nki.jit
    def kernel(x):
        t, o = load(x), sbuf(x.shape)
        nisa.activation(dst=o, op=nl.reciprocal, data=t, bias=t[:, 0:1])
        return store(o)

    with pytest.raises(errors.RuleError, match="reciprocal takes no bias on trn1"):
        run(kernel, ONES, target="trn1")
    assert (run(kernel, ONES) == 0.5).all()


def test_rule_70_bias_is_one_column():
    @nki.jit
    def kernel(x):
        t, o = load(x), sbuf(x.shape)
        nisa.activation(dst=o, op=nl.exp, data=t, bias=t[:, 0:2])

    with pytest.raises(errors.OperandShapeError, match="`bias` must have 1 element per partition, it has 2"):
        run(kernel, ONES)


def test_rule_176_dtypes_of_scale_and_bias():
    @nki.jit
    def scale(x):
        t, o = load(x), sbuf(x.shape)
        nisa.activation(dst=o, op=nl.exp, data=t, scale=t[:, 0:1])

    @nki.jit
    def bias(x):
        t, o = load(x), sbuf(x.shape)
        nisa.activation(dst=o, op=nl.exp, data=t, bias=t.view(nl.tfloat32)[:, 0:1])

    with pytest.raises(errors.OperandDtypeError, match="`scale` cannot be bfloat16"):
        run(scale, ONES.astype(BF16))
    with pytest.raises(errors.OperandDtypeError, match="`bias` cannot be tfloat32"):
        run(bias, ONES)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"reduce_op": nl.maximum, "reduce_cmd": CMD.reset_reduce}, errors.OperatorError, "nl.maximum"),
        ({"reduce_cmd": CMD.reset_reduce}, errors.RuleError, "pass reduce_op=nl.add"),
        ({"reduce_op": nl.add, "reduce_cmd": CMD.load_reduce}, errors.RuleError, "idle, reset, reduce"),
        ({"scale": None}, errors.ArgumentError, "`scale` must be a tensor or a number"),
        ({"op": nl.power}, errors.OperatorError, "power"),
        ({"reduce_cmd": 3}, errors.ArgumentError, "nisa.reduce_cmd"),
    ],
)
def test_rules_72_144_186_arguments(options, error, text):
    with pytest.raises(error, match=text):
        run(general, ONES, options)


def test_rule_71_reduction_that_reduces_nothing_is_reported():
    @nki.jit
    def kernel(x):
        o, r = sbuf(x.shape), sbuf((4, 1))
        nisa.activation(dst=o, op=nl.exp, data=load(x), reduce_op=nl.add, reduce_res=r)
        return store(r)

    (found,) = kernel.check(ONES, target="trn2")
    assert found.severity == "warning" and "reset_reduce" in found.message


def test_cost():
    (plain,) = staged(general, "activation", np.ones((4, 1000), np.float32), {})
    (short,) = staged(general, "activation", ONES, {"op": nl.copy})
    target = get_target("trn2")
    (phase,) = plain.cost(target)
    assert (phase.interval, phase.table) == (1000, ACTIVATIONS["exp"].table)
    (phase,) = short.cost(target)
    assert (phase.interval, phase.table) == (64, None)
