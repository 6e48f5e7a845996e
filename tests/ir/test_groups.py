"""Accumulation groups: which elements of a tensor the next accumulating write adds to (semantics rules 60-63)."""

from __future__ import annotations

import numpy as np

from nki.dtypes import bfloat16, float32
from nki.enums import MemoryRegion
from nki.ir import Access, Buffer
from nki.ir.groups import AccumulationGroups

ACC = Buffer("acc", (4, 8), float32, MemoryRegion.psum)
WHOLE = Access.whole(ACC)
LEFT = Access(ACC, float32, 0, (4, 4), (8, 1))
RIGHT = Access(ACC, float32, 4, (4, 4), (8, 1))


def test_a_group_opens_with_the_first_write_and_is_kept_by_element() -> None:
    groups = AccumulationGroups()
    assert not groups.active
    assert groups.state(WHOLE) == "fresh"
    groups.wrote(LEFT)
    assert groups.active
    assert [groups.state(a) for a in (LEFT, RIGHT, WHOLE)] == ["written", "fresh", "mixed"]
    assert np.array_equal(groups.snapshot(WHOLE), np.tile([True] * 4 + [False] * 4, (4, 1)))


def test_another_write_ends_the_group_of_its_elements() -> None:
    groups = AccumulationGroups()
    groups.wrote(WHOLE)
    groups.ended(RIGHT)
    assert [groups.state(a) for a in (LEFT, RIGHT, WHOLE)] == ["written", "fresh", "mixed"]


def test_a_write_elsewhere_opens_nothing() -> None:
    groups = AccumulationGroups()
    groups.ended(LEFT)
    assert not groups.active


def test_windows_of_another_dtype() -> None:
    """A float32 tensor written as bfloat16: half an element belongs to the group, then all of it."""
    groups = AccumulationGroups()
    low = Access(ACC, bfloat16, 0, (4, 8), (16, 2))
    high = Access(ACC, bfloat16, 1, (4, 8), (16, 2))
    groups.wrote(LEFT)
    groups.wrote(low)
    assert [groups.state(a) for a in (LEFT, RIGHT, low, high)] == ["written", "mixed", "written", "mixed"]
    assert np.array_equal(groups.snapshot(WHOLE), np.tile([True] * 4 + [False] * 4, (4, 1)))
    groups.wrote(high)
    assert groups.state(WHOLE) == "written"
