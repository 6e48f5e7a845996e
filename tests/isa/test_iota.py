"""`nisa.iota` against explicit loops."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.single import Out, bf16, f32, interval, run


def affine(partitions: int, pattern: list[list[int]], offset: int, multiplier: int) -> list[list[int]]:
    """The documented loops; values as unbounded integers."""
    steps = [step for step, _ in pattern]
    places = list(product(*(range(count) for _, count in pattern)))
    return [
        [offset + p * multiplier + sum(s * i for s, i in zip(steps, place)) for place in places]
        for p in range(partitions)
    ]


@given(
    pattern=st.lists(st.tuples(st.integers(-50, 50), st.integers(1, 4)).map(list), min_size=1, max_size=4),
    offset=st.integers(-1000, 1000),
    multiplier=st.integers(-10, 10),
)
def test_patterns(pattern: list[list[int]], offset: int, multiplier: int) -> None:
    """Rule 103."""
    expected = affine(3, pattern, offset, multiplier)
    out = Out((3, len(expected[0])), nl.int32)
    found = run(nisa.iota, dst=out, pattern=pattern, offset=offset, channel_multiplier=multiplier)
    assert found.tolist() == expected


def test_defaults_and_shape() -> None:
    """Rule 103: the shape of `dst` does not matter."""
    found = run(nisa.iota, dst=Out((2, 3, 4), nl.int32), pattern=[[1, 12]])
    assert found.tolist() == [np.arange(12).reshape(3, 4).tolist()] * 2


def test_column_of_partition_numbers() -> None:
    found = run(nisa.iota, dst=Out((128, 1), nl.uint32), pattern=[[0, 1]], offset=0, channel_multiplier=2)
    assert found[:, 0].tolist() == list(range(0, 256, 2))


def test_partitions_count_from_the_tile() -> None:
    """Rule 103: channel 0 is the first partition of `dst`."""

    def lower(dst: object) -> None:
        nisa.memset(dst=dst, value=0)
        nisa.iota(dst=dst[32:34], pattern=[[1, 2]], channel_multiplier=10)

    assert run(lower, dst=Out((64, 2), nl.int32))[32:35].tolist() == [[0, 1], [10, 11], [0, 0]]


def test_types() -> None:
    """Rules 3 and 103: narrow integers saturate, floats round once, a uint32 tile takes the bits."""
    pattern = {"pattern": [[100, 4]], "offset": -100}
    assert run(nisa.iota, dst=Out((1, 4), nl.int8), **pattern).tolist() == [[-100, 0, 100, 127]]
    assert run(nisa.iota, dst=Out((1, 4), nl.uint8), **pattern).tolist() == [[0, 0, 100, 200]]
    assert run(nisa.iota, dst=Out((1, 4)), **pattern).tolist() == [[-100, 0, 100, 200]]
    large = run(nisa.iota, dst=Out((1, 2), nl.bfloat16), pattern=[[1, 2]], offset=256)
    assert large.astype(f32).tolist() == np.array([[256, 257]], f32).astype(bf16).astype(f32).tolist()
    exact = run(nisa.iota, dst=Out((1, 2), nl.uint32), pattern=[[1, 2]], offset=2**24)
    assert exact.tolist() == [[2**24, 2**24 + 1]]


def test_pattern_must_fit() -> None:
    """Rule 103."""
    with pytest.raises(errors.OperandShapeError, match="gives 6 values"):
        run(nisa.iota, dst=Out((2, 5), nl.int32), pattern=[[1, 2], [1, 3]])
    with pytest.raises(errors.OperandShapeError, match="one to 4 levels"):
        run(nisa.iota, dst=Out((2, 2), nl.int32), pattern=[[1, 1]] * 4 + [[1, 2]])
    with pytest.raises(errors.ArgumentError, match="pairs"):
        run(nisa.iota, dst=Out((2, 2), nl.int32), pattern=[1, 2])


def test_sbuf_only() -> None:
    """Rule 103."""
    with pytest.raises(errors.MemoryError_, match="sbuf"):
        run(nisa.iota, dst=Out((2, 2), psum=True), pattern=[[1, 2]])


def test_cost() -> None:
    assert interval(nisa.iota, "trn2", dst=Out((128, 512), nl.int32), pattern=[[1, 512]]) == 662
