"""floor, ceil, trunc, mod and fmod against NumPy, for every magnitude."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki
import nki.language as nl
from tests.language.run import bf16, f32, kernel_of, run

EDGES = np.array(
    [
        [
            0.0,
            0.5,
            1.5,
            2.5,
            -0.5,
            -1.5,
            -2.5,
            3.2,
            -3.7,
            3.7,
            -3.2,
            1e-30,
            -1e-30,
            0.99999994,
            -0.99999994,
            8388607.5,
        ]
    ]
    + [
        [
            2**23 + 1,
            2**24 + 2,
            2**30,
            2**31,
            -(2.0**31),
            1e20,
            -1e30,
            3e38,
            np.inf,
            -np.inf,
            np.nan,
            7,
            -7,
            1,
            -1,
            2,
        ]
    ],
    f32,
)

KERNELS = {name: nki.simulate(kernel_of(getattr(nl, name))) for name in ("floor", "ceil", "trunc")}


@pytest.mark.parametrize("name", KERNELS)
def test_edges(name):
    np.testing.assert_array_equal(run(getattr(nl, name), EDGES), getattr(np, name)(EDGES))


@given(values=st.lists(st.floats(width=32), min_size=16, max_size=16))
def test_any_number(values):
    x = np.array([values], f32)
    for name, kernel in KERNELS.items():
        np.testing.assert_array_equal(kernel((x,)), getattr(np, name)(x))


def test_types():
    x = np.array([[2.5, -2.5]], bf16)
    assert run(nl.floor, x).dtype == bf16
    assert run(lambda x: nl.floor(x, dtype=nl.int32), x).tolist() == [[2, -3]]
    ints = np.array([[2**24 + 1]], np.int32)
    np.testing.assert_array_equal(run(nl.trunc, ints), ints)


SMALL = st.integers(-4000, 4000).map(lambda n: n / 8)


@pytest.mark.parametrize("name", ["mod", "fmod"])
@given(x=st.lists(SMALL, min_size=8, max_size=8), y=st.lists(SMALL.filter(bool), min_size=8, max_size=8))
def test_remainder_of_tiles(name, x, y):
    a, b = np.array([x], f32), np.array([y], f32)
    np.testing.assert_array_equal(run(getattr(nl, name), a, b), getattr(np, name)(a, b))


@pytest.mark.parametrize("name", ["mod", "fmod"])
@pytest.mark.parametrize("y", [7, -7, 0.75, 49])
def test_remainder_by_a_number(name, y):
    x = np.arange(-100, 100, dtype=f32).reshape(1, 200) / 2
    function, expected = getattr(nl, name), getattr(np, name)
    np.testing.assert_array_equal(run(lambda x: function(x, y), x), expected(x, f32(y)))
    where = x[x != 0][None]
    np.testing.assert_array_equal(run(lambda x: function(y, x), where), expected(f32(y), where))


def test_remainder_of_integers():
    x = np.array([[-7, 7, 100, 49]], np.int32)
    result = run(lambda x: nl.mod(x, 7), x)
    assert result.dtype == np.int32 and result.tolist() == [[0, 0, 2, 0]]
