"""`nisa.sequence_bounds` against the documented loop over neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.single import Out, f32, interval, run

EXAMPLE = [0, 1, 1, 2, 2, 2, 0, 3, 3]


def bounds(ids: list[int]) -> list[list[int]]:
    """Rule 106: walk from each element to the ends of its run."""
    n, starts, ends = len(ids), [], []
    for i, value in enumerate(ids):
        low = high = i
        while low > 0 and ids[low - 1] == value:
            low -= 1
        while high + 1 < n and ids[high + 1] == value:
            high += 1
        starts.append(low if value else n)
        ends.append(high + 1 if value else -1)
    return [starts, ends]


@pytest.mark.parametrize("dtype", [f32, np.int32])
@pytest.mark.parametrize("out", [nl.float32, nl.int32])
def test_documented_example(dtype: Any, out: Any) -> None:
    ids = np.array([EXAMPLE], dtype)
    found = run(nisa.sequence_bounds, dst=Out((1, 2, 9), out), segment_ids=ids)
    assert found.tolist() == [[[9, 1, 1, 3, 3, 3, 9, 7, 7], [-1, 3, 3, 6, 6, 6, -1, 9, 9]]]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40))
def test_rule_106_runs_of_equal_neighbours(ids: list[int]) -> None:
    """A value that comes again later begins a new run."""
    out = Out((1, 2, len(ids)), nl.int32)
    assert run(nisa.sequence_bounds, dst=out, segment_ids=np.array([ids], np.int32)).tolist() == [bounds(ids)]


def test_integers_beyond_float32() -> None:
    ids = [2**24, 2**24 + 1, 2**24 + 1]
    found = run(nisa.sequence_bounds, dst=Out((1, 2, 3), nl.int32), segment_ids=np.array([ids], np.int32))
    assert found.tolist() == [[[0, 1, 1], [1, 3, 3]]]


def test_the_shape_of_dst_and_views() -> None:
    def inside(dst: Any, ids: Any) -> None:
        nisa.memset(dst=dst, value=9.0)
        nisa.sequence_bounds(dst=dst[0:1, 1:19], segment_ids=ids[1:2, ::2])

    ids = np.zeros((2, 18), f32)
    ids[1, ::2] = EXAMPLE
    starts, ends = bounds(EXAMPLE)
    assert run(inside, dst=Out((1, 20)), ids=ids).tolist() == [[9, *starts, *ends, 9]]


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"segment_ids": np.ones((2, 4), f32)}, errors.OperandShapeError, r"\[1, 4\] is needed"),
        ({"dst": Out((1, 4))}, errors.OperandShapeError, r"\[1, 2, 4\] is needed"),
        ({"dst": Out((2, 4))}, errors.OperandShapeError, r"\[1, 2, 4\] is needed"),
        ({"segment_ids": np.ones((1, 4), np.uint32)}, errors.OperandDtypeError, "float32, int32"),
        ({"dst": Out((1, 2, 4), nl.bfloat16)}, errors.OperandDtypeError, "float32, int32"),
    ],
)
def test_refused(changes: dict[str, Any], error: type[Exception], words: str) -> None:
    given = {"dst": Out((1, 2, 4)), "segment_ids": np.ones((1, 4), f32), **changes}
    with pytest.raises(error, match=words) as raised:
        run(nisa.sequence_bounds, **given)
    assert raised.value.remedy  # type: ignore[attr-defined]


def test_cost() -> None:
    given = {"dst": Out((1, 2, 1000)), "segment_ids": np.ones((1, 1000), f32)}
    assert interval(nisa.sequence_bounds, "trn1", **given) == 150 + 1000
