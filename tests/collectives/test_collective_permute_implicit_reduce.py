"""`collective_permute_implicit_reduce`: op(src0, src1), then a ring of one rank."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki.collectives as ncc
import nki.language as nl
from nki import errors
from tests.collectives.single_rank import ALONE, X, hbm, load, refused, run, store

Y = X[::-1].copy()
OPS = [(nl.add, np.add), (nl.minimum, np.minimum), (nl.maximum, np.maximum)]


@pytest.mark.parametrize(("op", "oracle"), OPS)
def test_one_rank(op, oracle) -> None:
    def kernel(x, y):
        out = hbm(x.shape)
        ncc.collective_permute_implicit_reduce([[x]], [[y]], [[out]], ALONE, op)
        return out

    np.testing.assert_array_equal(run(kernel, X, Y), oracle(X, Y))


def test_narrow_floats_are_rounded_once() -> None:
    def kernel(x, y):
        out = hbm(x.shape, x.dtype)
        ncc.collective_permute_implicit_reduce([[x]], [[y]], [[out]], ALONE, nl.add)
        return out

    x, y = (np.random.default_rng(i).standard_normal((3, 5)).astype(ml_dtypes.bfloat16) for i in (0, 1))
    wanted = (x.astype(np.float32) + y.astype(np.float32)).astype(ml_dtypes.bfloat16)
    assert run(kernel, x, y).tobytes() == wanted.tobytes()


def test_integers_are_exact_and_wrap() -> None:
    def kernel(x, y):
        out = hbm(x.shape, x.dtype)
        ncc.collective_permute_implicit_reduce([[x]], [[y]], [[out]], ALONE, nl.add)
        return out

    x, y = np.array([2**24 + 1, 2**32 - 1], np.uint32), np.array([1, 2], np.uint32)
    np.testing.assert_array_equal(run(kernel, x, y), np.array([2**24 + 2, 1], np.uint32))


def test_channels_move_at_the_same_time() -> None:
    """What a channel receives is not what another one sends."""

    def kernel(x, y):
        a, b = load(x), load(y)
        ncc.collective_permute_implicit_reduce(
            [[a], [b]], [[b], [b]], [[b], [a]], ALONE, nl.add, channel_ids=[0, 1]
        )
        return store(a), store(b)

    a, b = run(kernel, X, Y)
    np.testing.assert_array_equal(b, X + Y)
    np.testing.assert_array_equal(a, Y + Y)


def test_lists_go_together() -> None:
    def kernel(x):
        ncc.collective_permute_implicit_reduce([[x]], [[x], [x]], [[hbm(x.shape)]], ALONE, nl.add)
        return x

    refused(kernel, errors.ArgumentError, "one tensor for each other")


def test_numbers_only() -> None:
    def kernel(x):
        flags = hbm((4,), nl.bool_)
        ncc.collective_permute_implicit_reduce([[flags]], [[flags]], [[flags]], ALONE, nl.add)
        return x

    refused(kernel, errors.OperandDtypeError, "cannot be bool")
