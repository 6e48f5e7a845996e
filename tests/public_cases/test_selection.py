"""Masks, searches, shuffles and activations: values that were dropped, doubled or clobbered."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from tests.public_cases.steps import FP32_MIN, bf16, down, exact, f32, run, tile, up

MISSING = 0xFFFFFFFF


@nki.jit
def find(d, v):
    o = tile((1, 8), nl.uint32)
    nisa.nc_find_index8(dst=o, data=up(d), vals=up(v))
    return down(o)


def test_pc_27_missing_values_and_duplicates():
    d, v = [[9, 3, 9, 1, 9, 2, 0, 7]], [[9, 9, 9, 8, 1, 2, 0, 7]]
    exact(run(find, np.array(d, f32), np.array(v, f32)), [[0, 2, 4, MISSING, 3, 5, 6, 7]])


def test_pc_29_a_range_keeps_minus_infinity():
    @nki.jit
    def kernel(x, lo, hi):
        d, m = tile(x.shape), tile((x.shape[0], 1))
        nisa.range_select(dst=d, on_true_tile=up(x), comp_op0=nl.greater_equal, comp_op1=nl.less,
                          bound0=up(lo), bound1=up(hi), reduce_res=m, reduce_op=nl.maximum,
                          on_false_value=FP32_MIN)  # fmt: skip
        return down(d), down(m)

    d, m = run(kernel, np.array([[-9, -5, -7, -1]], f32), np.array([[0]], f32), np.array([[3]], f32))
    exact(m, [[-5]])
    exact(d, [[-9, -5, -7, FP32_MIN]])


def test_pc_31_a_causal_mask_keeps_the_diagonal():
    @nki.jit
    def kernel(x):
        o = tile(x.shape)
        nisa.affine_select(dst=o, pattern=[[-1, 4]], channel_multiplier=1, on_true_tile=up(x),
                           on_false_value=FP32_MIN, cmp_op=nl.greater_equal)  # fmt: skip
        return down(o)

    row, column = np.indices((4, 4))
    exact(run(kernel, np.ones((4, 4), f32)), np.where(column <= row, 1.0, FP32_MIN))


def test_pc_33_255_in_a_shuffle_leaves_the_row_alone():
    @nki.jit
    def kernel(x):
        t, o = up(x), tile(x.shape)
        nisa.memset(dst=o, value=5.0)
        nisa.nc_stream_shuffle(dst=o, src=t, shuffle_mask=[255] + [0] * 31)
        return down(o)

    x = np.arange(32, dtype=f32).reshape(32, 1) + 1
    exact(run(kernel, x), np.where(x == 1, 5, 1))


def activated(op, **more):
    """A kernel that applies an activation with a bias column and a scale of 2."""

    @nki.jit
    def kernel(x, b):
        o = tile(x.shape)
        nisa.activation(dst=o, op=op, data=up(x), bias=up(b), scale=2.0, **more)
        return down(o)

    return kernel


def test_pc_35_copy_has_a_bias_too():
    found = run(activated(nl.copy), np.ones((2, 3), f32), np.array([[10], [20]], f32))
    exact(found, [[12] * 3, [22] * 3])


def test_pc_37_a_sum_inside_the_destination():
    @nki.jit
    def kernel(x):
        t = tile((1, 8))
        nisa.activation(dst=t, op=nl.copy, data=up(x), reduce_op=nl.add, reduce_res=t[:, 0:1],
                        reduce_cmd=nisa.reduce_cmd.reset_reduce)  # fmt: skip
        return down(t)

    exact(run(kernel, np.full((1, 8), 2, f32)), [[16, 2, 2, 2, 2, 2, 2, 2]])


# --- neighbours ---------------------------------------------------------------------------------------------


def test_search_and_replace_go_opposite_ways():
    """The search hands the first match to slot 0, the replacement to slot 7."""

    @nki.jit
    def kernel(d, v):
        o, i = tile(d.shape), tile((1, 8), nl.uint32)
        nisa.nc_match_replace8(dst=o, data=up(d), vals=up(v), imm=-1.0, dst_idx=i)
        return down(o), down(i)

    d = np.array([[1, 2, 3, 4] + [8] * 7], f32)
    v = np.array([[3] + [8] * 7], f32)
    o, i = run(kernel, d, v)
    exact(i, [[2, 10, 9, 8, 7, 6, 5, 4]])
    exact(o, [[1, 2, -1, 4] + [-1] * 7])
    exact(run(find, d, v), [[2, 4, 5, 6, 7, 8, 9, 10]])


def test_duplicates_run_out():
    d, v = np.zeros((1, 8), f32), np.full((1, 8), 4, f32)
    d[0, [1, 5]] = 4
    exact(run(find, d, v), [[1, 5] + [MISSING] * 6])


def test_top_sixteen_of_equal_values():
    @nki.jit
    def kernel(x):
        t, both = up(x), tile((1, 16))
        nisa.max8(dst=both[:, 0:8], src=t)
        nisa.nc_match_replace8(dst=t, data=t, vals=both[:, 0:8], imm=FP32_MIN)
        nisa.max8(dst=both[:, 8:16], src=t)
        return down(both)

    x = np.array([[3, 3, 3] + [1] * 9 + [2] * 8], f32)
    exact(run(kernel, x), -np.sort(-x)[:, :16])


@pytest.mark.parametrize("dtype", [f32, bf16])
def test_a_predicate_of_any_nonzero_value(dtype):
    @nki.jit
    def kernel(x, y, p):
        o = up(y)
        nisa.tensor_copy_predicated(dst=o, src=up(x), predicate=up(p))
        return down(o)

    x, y = np.array([[1, 2, 3]], dtype), np.array([[7, 8, 9]], dtype)
    exact(run(kernel, x, y, np.array([[0, 1, 200]], np.uint8)), [[7, 2, 3]])


def test_a_shuffle_in_place_reads_first():
    @nki.jit
    def kernel(x):
        t = up(x)
        nisa.nc_stream_shuffle(dst=t, src=t, shuffle_mask=[31 - i for i in range(32)])
        return down(t)

    x = np.arange(64, dtype=f32).reshape(32, 2)
    exact(run(kernel, x), x[::-1])


@pytest.mark.parametrize("op", [nl.relu, nl.square, nl.abs, nl.sign, nl.copy])
def test_every_exact_activation_scales_and_then_adds(op):
    model = {"relu": lambda v: np.maximum(v, 0), "copy": lambda v: v}.get(op.__name__)
    x, b = np.array([[-3, -1, 0, 2], [5, -7, 1, 0]], f32), np.array([[3], [-1]], f32)
    argument = 2 * x + b
    expected = model(argument) if model else getattr(np, op.__name__)(argument)
    exact(run(activated(op), x, b), expected)


def test_registers_are_zeroed_only_on_command():
    """The default command is idle: what was summed up before stays."""

    @nki.jit
    def kernel(x):
        t, scratch, total = up(x), tile(x.shape), tile((1, 1))
        nisa.activation(
            dst=scratch, op=nl.copy, data=t, reduce_op=nl.add, reduce_cmd=nisa.reduce_cmd.reset_reduce
        )
        nisa.activation(dst=scratch, op=nl.copy, data=t)
        nisa.activation(dst=scratch, op=nl.copy, data=t, reduce_op=nl.add, reduce_res=total,
                        reduce_cmd=nisa.reduce_cmd.reduce)  # fmt: skip
        return down(total)

    exact(run(kernel, np.full((1, 4), 3, f32)), [[24]])


def test_a_maximum_over_negative_rows_is_negative():
    @nki.jit
    def kernel(x):
        m = tile((2, 1))
        nisa.tensor_reduce(dst=m, data=up(x), op=nl.maximum, axis=1)
        return down(m)

    exact(run(kernel, np.array([[-9, -5], [-2, -3]], f32)), [[-5], [-2]])
