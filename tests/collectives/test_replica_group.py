"""`ReplicaGroup`: what it accepts, as an argument of kernels, and the ranks that a run has (semantics rule 137)."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import nki
import nki.collectives as ncc
from nki import errors
from nki.objects import NKIObject
from tests.collectives.single_rank import ALONE, X, hbm, refused, run


def test_it_is_a_dataclass_and_a_kernel_object() -> None:
    group = ncc.ReplicaGroup([(0, np.int32(1)), range(2, 4)])
    assert group.replica_groups == [[0, 1], [2, 3]]
    assert dataclasses.is_dataclass(group) and isinstance(group, NKIObject)
    assert group == ncc.ReplicaGroup([[0, 1], [2, 3]]) != ncc.ReplicaGroup([[0, 2], [1, 3]])
    assert hash(group) == hash(ncc.ReplicaGroup([[0, 1], [2, 3]]))
    assert repr(group) == "ReplicaGroup(replica_groups=[[0, 1], [2, 3]])"


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        ([[0, 1], [1, 2]], "rank 1 stands in it twice"),
        ([[0, 0]], "rank 0 stands in it twice"),
        ([[0, 1], [2]], "differ in length"),
        ([], "no ranks"),
        ([[]], "no ranks"),
        ([0, 1], "no list of lists"),
        ([["0"]], "no list of lists"),
        ([[-1]], "no list of lists"),
        ([[True]], "no list of lists"),
        (None, "no ranks"),
    ],
)
def test_what_cannot_be(groups: Any, text: str) -> None:
    with pytest.raises(errors.ArgumentError, match=text) as caught:
        ncc.ReplicaGroup(groups)
    assert caught.value.span is not None and caught.value.span.file == __file__


def reduced(x, group):
    out = hbm(x.shape)
    ncc.all_reduce([x], [out], group, np.add)
    return out


def test_it_may_be_an_argument_of_a_kernel() -> None:
    np.testing.assert_array_equal(run(reduced, X, ALONE), X)


@pytest.mark.parametrize("groups", [[[0, 1]], [[0], [1]], [[1]]])
def test_other_ranks_come_later(groups: list[list[int]]) -> None:
    kernel = nki.jit(reduced)
    with pytest.raises(errors.MultiRankError, match="more than one rank") as caught:
        nki.simulate(kernel, target="trn2")(X, ncc.ReplicaGroup(groups))
    assert caught.value.code == "multi-rank" and isinstance(caught.value, NotImplementedError)
    assert "ReplicaGroup([[0]])" in str(caught.value.remedy)


def test_plain_lists_are_refused() -> None:
    def kernel(x):
        ncc.all_reduce([x], [x], [[0]], np.add)
        return x

    refused(kernel, errors.ArgumentError, "`replica_group`: expected a ReplicaGroup, got list")


def test_both_cores_of_a_launch_are_one_rank() -> None:
    """A rank is a logical core: what both issue is one exchange, here twice the same copy."""

    def kernel(x):
        out = hbm(x.shape)
        ncc.all_reduce([x], [out], ncc.ReplicaGroup([[0]]), np.add)
        return out

    np.testing.assert_array_equal(nki.simulate(nki.jit(kernel)[2], target="trn2")(X), X)
