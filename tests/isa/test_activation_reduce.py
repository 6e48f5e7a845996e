"""activation_reduce against sums with explicit loops; what it shares with activation is tested there."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.target import get_target
from tests.isa.tiles import load, run, sbuf, staged, store, whole_numbers


@nki.jit
def exp_sum(x, bias, scale):
    o, r = sbuf(x.shape), sbuf((x.shape[0], 1))
    nisa.activation_reduce(
        dst=o, op=nl.exp, data=load(x), reduce_op=nl.add, reduce_res=r, bias=load(bias), scale=scale
    )
    return store(o), store(r)


@given(partitions=st.integers(1, 16), free=st.integers(1, 16), scale=st.sampled_from([0.5, 1.0, -1.0]))
def test_values_and_sums(partitions, free, scale):
    x, b = whole_numbers((partitions, free)) / 4, whole_numbers((partitions, 1), seed=1) / 2
    o, r = run(exp_sum, x, b, scale)
    expected = [[math.exp(v * scale + b[p, 0]) for v in row] for p, row in enumerate(x.tolist())]
    np.testing.assert_allclose(o, expected, rtol=1e-6)
    np.testing.assert_allclose(r[:, 0], [sum(row) for row in expected], rtol=1e-6)


def test_rule_186_always_resets():
    @nki.jit
    def kernel(x):
        t, o, r = load(x), sbuf(x.shape), sbuf((4, 1))
        for _ in range(3):
            nisa.activation_reduce(o, nl.copy, t, nl.add, r)
        return store(r)

    x = whole_numbers((4, 5))
    np.testing.assert_array_equal(run(kernel, x), x.sum(axis=1, keepdims=True))


def test_rule_75_none_keeps_the_sum_in_the_registers():
    @nki.jit
    def kernel(x):
        t, o, r = load(x), sbuf(x.shape), sbuf((4, 1))
        nisa.activation_reduce(o, nl.copy, t, nl.add, None)
        nisa.activation(o, nl.square, t, reduce_op=nl.add, reduce_res=r, reduce_cmd=nisa.reduce_cmd.reduce)
        return store(r)

    x = whole_numbers((4, 5))
    np.testing.assert_array_equal(run(kernel, x), (x + x * x).sum(axis=1, keepdims=True))


@pytest.mark.parametrize("dtype", [nl.float32, nl.bfloat16])
def test_rule_36_elementwise_result_thrown_away(dtype):
    @nki.jit
    def kernel(x):
        p, f = x.shape
        t, r, waste = load(x), sbuf((p, 1)), sbuf((p, 1), dtype)
        nisa.activation_reduce(waste.ap([[1, p], [0, f]]), nl.square, t, nl.add, r, scale=2.0)
        return store(r), store(waste)

    x = whole_numbers((4, 6))
    r, waste = run(kernel, x)
    np.testing.assert_array_equal(r, (4 * x * x).sum(axis=1, keepdims=True))
    np.testing.assert_array_equal(waste.astype(np.float32), 4 * x[:, 5:] ** 2)


def test_reduce_res_must_be_named():
    @nki.jit
    def kernel(x):
        nisa.activation_reduce(sbuf(x.shape), nl.copy, load(x), nl.add)

    with pytest.raises(errors.ArgumentError, match="misses its argument `reduce_res`"):
        run(kernel, np.ones((4, 4), np.float32))


def test_rule_186_sums_only():
    @nki.jit
    def kernel(x):
        nisa.activation_reduce(sbuf(x.shape), nl.copy, load(x), nl.maximum, sbuf((4, 1)))

    with pytest.raises(errors.OperatorError, match=r"nl\.add, the only reduction"):
        run(kernel, np.ones((4, 4), np.float32))


def test_cost_reads_the_registers_out():
    x, b = np.ones((4, 100), np.float32), np.ones((4, 1), np.float32)
    (instruction,) = staged(exp_sum, "activation_reduce", x, b, 1.0)
    phases = instruction.cost(get_target("trn2"))
    assert [(p.interval, p.kind) for p in phases] == [(100, "compute"), (64, "read_accumulator")]
