"""`reduce_scatter`: one rank keeps all; the source must be divisible (semantics rule 137)."""

from __future__ import annotations

import numpy as np
import pytest

import nki.collectives as ncc
import nki.language as nl
from nki import errors
from nki.ir.program import Access, Buffer
from nki.target import get_target
from tests.collectives.single_rank import ALONE, X, hbm, load, node, refused, run, sbuf, store


@pytest.mark.parametrize("chip", [False, True])
def test_one_rank(chip: bool) -> None:
    def kernel(x):
        src, out = (load(x), sbuf(x.shape)) if chip else (x, hbm(x.shape))
        ncc.reduce_scatter([src], [out], replica_group=ALONE, collective_dim=0, op=nl.maximum)
        return store(out) if chip else out

    np.testing.assert_array_equal(run(kernel, X), X)


@pytest.mark.parametrize("chip", [False, True])
def test_dimension(chip: bool) -> None:
    def kernel(x):
        src, out = (load(x), sbuf(x.shape)) if chip else (x, hbm(x.shape))
        ncc.reduce_scatter([src], [out], ALONE, 1, nl.add)
        return x

    refused(kernel, errors.ArgumentError, "blocks lie along dimension 0")


def test_shape_of_the_result() -> None:
    group = ((0, 1),)
    dst = Access.whole(Buffer("dst", (2, 8), nl.float32, nl.shared_hbm))
    for rows, fits in ((4, True), (2, False), (5, False)):
        src = Access.whole(Buffer("src", (rows, 8), nl.float32, nl.shared_hbm))
        made = node(ncc.reduce_scatter, srcs=(src,), dsts=(dst,), replica_group=group, collective_dim=0)
        fault = made.sizes_agree(get_target("trn2"))
        assert (fault is None) == fits
    assert "multiple of 2" in fault.allowed
