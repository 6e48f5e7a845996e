"""Shapes and strides: a window in another shape shows the same elements, or says that it needs a copy."""

from __future__ import annotations

import random
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interpreter.views import common_view, restride

Shape = tuple[int, ...]
STORAGE = np.arange(4096)


def show(shape: Shape, strides: Shape, start: int = 0) -> np.ndarray:
    """The elements of a window, by arithmetic."""
    index = np.full(shape, start)
    for axis, stride in enumerate(strides):
        index = index + (np.arange(shape[axis]) * stride).reshape(
            [-1 if i == axis else 1 for i in range(len(shape))]
        )
    return index


def window(rng: random.Random, shape: Shape) -> Shape:
    """Strides of a random window: dense, with gaps, permuted, repeated."""
    order = list(range(len(shape)))
    if rng.random() < 0.3:
        rng.shuffle(order)
    strides = [0] * len(shape)
    step = rng.choice((1, 1, 2))
    for axis in reversed(order):
        strides[axis] = 0 if rng.random() < 0.1 else step
        step *= shape[axis] * (1 if rng.random() < 0.8 else 2)
    return tuple(strides)


def shape_of(rng: random.Random, size: int) -> Shape:
    """A random shape with so many elements."""
    sizes = []
    while size > 1:
        divisor = rng.choice([n for n in range(2, size + 1) if size % n == 0])
        sizes.append(divisor)
        size //= divisor
    for _ in range(rng.randrange(3)):
        sizes.insert(rng.randint(0, len(sizes)), 1)
    return tuple(sizes) or (1,)


SIZES = st.sampled_from([1, 2, 6, 12, 16, 24, 30])


@given(st.integers(0, 1 << 32), SIZES)
def test_restride_shows_the_same_elements_or_nothing(seed: int, size: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        shape, wanted = shape_of(rng, size), shape_of(rng, size)
        strides = window(rng, shape)
        found = restride(shape, strides, wanted)
        elements = show(shape, strides).reshape(wanted)
        array = np.lib.stride_tricks.as_strided(STORAGE, shape, [s * STORAGE.itemsize for s in strides])
        viewed = array.reshape(wanted)
        possible = np.shares_memory(viewed, STORAGE)
        if found is None:
            assert not possible, f"{shape} {strides} as {wanted}"
        else:
            np.testing.assert_array_equal(show(wanted, found), elements)


@given(st.integers(0, 1 << 32), SIZES, st.booleans())
def test_windows_in_one_shape_pair_the_same_elements(seed: int, size: int, keep_first: bool) -> None:
    rng = random.Random(seed)
    for _ in range(10):
        rows = rng.choice((1, 3, 4))
        windows = []
        for _ in range(rng.randint(1, 3)):
            shape = (rows, *shape_of(rng, size)) if keep_first else shape_of(rng, rows * size)
            windows.append((shape, window(rng, shape)))
        shape, views = common_view(tuple(windows), keep_first)
        assert prod(shape) == rows * size
        if keep_first:
            assert shape[0] == rows and len(shape) >= 2
        for (own, strides), seen in zip(windows, views):
            if seen is not None:
                np.testing.assert_array_equal(show(shape, seen), show(own, strides).reshape(shape))


@pytest.mark.parametrize(
    ("windows", "keep_first", "shape"),
    [
        ([((128, 512), (512, 1)), ((128, 512), (512, 1))], False, (65536,)),
        ([((128, 512), (512, 1)), ((128, 512), (512, 1))], True, (128, 512)),
        ([((128, 4, 128), (512, 128, 1)), ((128, 512), (600, 1))], True, (128, 512)),
        ([((128, 4, 128), (1024, 256, 1)), ((128, 512), (512, 1))], True, (128, 4, 128)),
        ([((128, 1), (1, 1))], True, (128, 1)),
        ([((4, 6), (6, 1)), ((24,), (2,))], False, (24,)),
    ],
)
def test_as_few_axes_as_possible(windows: list[tuple[Shape, Shape]], keep_first: bool, shape: Shape) -> None:
    found, views = common_view(tuple(windows), keep_first)
    assert found == shape
    assert None not in views


def test_shapes_whose_borders_do_not_nest_need_a_copy() -> None:
    shape, views = common_view((((4, 6), (7, 1)), ((3, 8), (9, 1))), False)
    assert prod(shape) == 24
    assert None in views
