"""The accumulator registers of the Scalar engine, through activation, against explicit sums."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.target import get_target
from tests.isa.tiles import load, run, sbuf, staged, store, whole_numbers

BF16 = ml_dtypes.bfloat16
CMD = nisa.reduce_cmd


@nki.jit
def row_sums(x, out_dtype):
    o, r = sbuf(x.shape, out_dtype), sbuf((x.shape[0], 1))
    nisa.activation(
        dst=o, op=nl.exp, data=load(x), reduce_op=nl.add, reduce_res=r, reduce_cmd=CMD.reset_reduce
    )
    return store(o), store(r)


def test_rule_72_reset_reduce():
    x = whole_numbers((4, 6)) / 2
    _, r = run(row_sums, x, nl.float32)
    np.testing.assert_allclose(r[:, 0], [sum(math.exp(v) for v in row) for row in x], rtol=1e-6)


def test_rule_177_sum_of_the_float32_results():
    x = whole_numbers((2, 64)) / 8
    o, r = run(row_sums, x, nl.bfloat16)
    exact = [sum(math.exp(v) for v in row) for row in x.tolist()]
    rounded = o.astype(np.float64).sum(axis=1)
    np.testing.assert_allclose(r[:, 0], exact, rtol=1e-6)
    assert not np.allclose(rounded, exact, rtol=1e-6)


def test_rules_71_72_75_chain():
    @nki.jit
    def kernel(x):
        t, o = load(x), sbuf(x.shape)
        a, b, c, d = (sbuf((x.shape[0], 1)) for _ in range(4))
        nisa.activation(dst=o, op=nl.copy, data=t, reduce_op=nl.add, reduce_cmd=CMD.reset_reduce)
        nisa.activation(dst=o, op=nl.exp, data=t)  # idle: the registers stay
        nisa.activation(dst=o, op=nl.copy, data=t, reduce_res=a)
        nisa.activation(dst=o, op=nl.square, data=t, reduce_op=nl.add, reduce_res=b, reduce_cmd=CMD.reduce)
        nisa.activation(dst=o, op=nl.copy, data=t, reduce_res=c, reduce_cmd=CMD.reset)
        nisa.activation(dst=o, op=nl.copy, data=t, reduce_op=nl.add, reduce_res=d, reduce_cmd=CMD.reduce)
        return store(a), store(b), store(c), store(d)

    x = whole_numbers((3, 5))
    a, b, c, d = run(kernel, x)
    total = x.sum(axis=1, keepdims=True)
    np.testing.assert_array_equal(a, total)
    np.testing.assert_array_equal(b, total + (x * x).sum(axis=1, keepdims=True))
    np.testing.assert_array_equal(c, np.zeros((3, 1)))
    np.testing.assert_array_equal(d, total)


def test_rule_186_all_free_axes_are_reduced():
    x = whole_numbers((3, 2, 4)) / 2
    _, r = run(row_sums, x, nl.float32)
    np.testing.assert_allclose(r[:, 0], np.exp(x.astype(np.float64)).sum(axis=(1, 2)), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_rule_46_result_inside_dst(dtype):
    @nki.jit
    def kernel(x):
        t = sbuf(x.shape, x.dtype)
        nisa.activation(
            dst=t,
            op=nl.copy,
            data=load(x),
            reduce_op=nl.add,
            reduce_res=t[:, 0:1],
            reduce_cmd=CMD.reset_reduce,
        )
        return store(t)

    assert run(kernel, np.full((1, 8), 2, dtype)).tolist() == [[16.0, *[2.0] * 7]]


def test_rule_72_registers_belong_to_partitions():
    @nki.jit
    def kernel(x):
        t, o, r = load(x), sbuf(x.shape), sbuf((64, 1))
        for start in (0, 32):
            rows = t[start : start + 32, :]
            nisa.activation(
                o[start : start + 32, :], nl.copy, rows, reduce_op=nl.add, reduce_cmd=CMD.reset_reduce
            )
        nisa.activation(dst=o, op=nl.copy, data=t, reduce_res=r)
        return store(r)

    x = whole_numbers((64, 3))
    np.testing.assert_array_equal(run(kernel, x), x.sum(axis=1, keepdims=True))


def test_cost_of_reading_the_registers_out():
    (summed,) = staged(row_sums, "activation", whole_numbers((4, 4)), nl.float32)
    assert [phase.interval for phase in summed.cost(get_target("trn2"))] == [64, 64]
    assert summed.engine is nisa.engine.scalar
