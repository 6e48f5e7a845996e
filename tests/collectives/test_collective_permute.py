"""`collective_permute`: sending to oneself; the pairs (semantics rule 137)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki.collectives as ncc
import nki.language as nl
from nki import errors
from nki.ir.program import Access, Buffer
from nki.target import get_target
from tests.collectives.single_rank import X, hbm, load, node, refused, run, sbuf


def permute(pairs: Any) -> Any:
    def kernel(x):
        out = hbm(x.shape)
        ncc.collective_permute(srcs=[x], dsts=[out], source_target_pairs=pairs)
        return out

    return kernel


def test_one_rank_sends_to_itself() -> None:
    np.testing.assert_array_equal(run(permute([(0, 0)]), X), X)


@pytest.mark.parametrize("pairs", [[(0, 1), (1, 0)], [(1, 1)]])
def test_other_ranks_come_later(pairs: Any) -> None:
    refused(permute(pairs), errors.MultiRankError, "more than one rank")


@pytest.mark.parametrize("pairs", [[], [(0,)], 0, [0], [(0, 1, 2)]])
def test_pairs_are_pairs(pairs: Any) -> None:
    refused(permute(pairs), errors.ArgumentError, "source_target_pairs")


@pytest.mark.parametrize("pairs", [[(0, 1), (0, 2)], [(0, 1), (2, 1)]])
def test_a_rank_sends_once_and_receives_once(pairs: Any) -> None:
    refused(permute(pairs), errors.ArgumentError, "sends to one rank and receives from one rank")


def test_circles() -> None:
    """The runtime knows nothing but circles: said as a note, since it is not the kernel that is wrong."""
    tensor = Access.whole(Buffer("t", (4,), nl.float32, nl.shared_hbm))
    for pairs, closed in ((((0, 1), (1, 0)), True), (((0, 1), (1, 2)), False)):
        made = node(ncc.collective_permute, srcs=(tensor,), dsts=(tensor,), source_target_pairs=pairs)
        assert (made.pairs_form_circles(get_target("trn2")) is None) == closed


def test_one_tensor_in_hbm() -> None:
    def several(x):
        ncc.collective_permute([x, x], [hbm(x.shape), hbm(x.shape)], [(0, 0)])
        return x

    def on_chip(x):
        ncc.collective_permute([load(x)], [sbuf(x.shape)], [(0, 0)])
        return x

    def smaller(x):
        ncc.collective_permute([x], [hbm((2, 8))], [(0, 0)])
        return x

    refused(several, errors.LimitError, "exactly one tensor")
    refused(on_chip, errors.MemoryError_, "must live in private_hbm or shared_hbm")
    refused(smaller, errors.OperandShapeError, "the size of the source")
