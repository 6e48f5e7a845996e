"""`all_to_all`: one rank keeps its block; HBM only (semantics rule 137)."""

from __future__ import annotations

import numpy as np

import nki.collectives as ncc
import nki.language as nl
from nki import errors
from nki.ir.program import Access, Buffer
from nki.target import get_target
from tests.collectives.single_rank import ALONE, X, hbm, load, node, refused, run, sbuf


def test_one_rank() -> None:
    def kernel(x, y):
        outs = [hbm(x.shape), hbm(y.shape, y.dtype)]
        ncc.all_to_all([x, y], outs, replica_group=ALONE, collective_dim=0)
        return tuple(outs)

    y = np.arange(3, dtype=np.int32)
    first, second = run(kernel, X, y)
    np.testing.assert_array_equal(first, X)
    np.testing.assert_array_equal(second, y)


def test_not_in_sbuf() -> None:
    def kernel(x):
        ncc.all_to_all([load(x)], [sbuf(x.shape)], ALONE, 0)
        return x

    refused(kernel, errors.MemoryError_, "must live in private_hbm or shared_hbm")


def test_dimension() -> None:
    def kernel(x):
        ncc.all_to_all([x], [hbm(x.shape)], ALONE, 1)
        return x

    refused(kernel, errors.ArgumentError, "blocks lie along dimension 0 in HBM")


def test_blocks_have_one_size() -> None:
    for rows, fits in ((4, True), (6, False)):
        src, dst = (
            Access.whole(Buffer(name, (rows, 2), nl.float32, nl.shared_hbm)) for name in ("src", "dst")
        )
        group = ((0, 1, 2, 3),)
        made = node(ncc.all_to_all, srcs=(src,), dsts=(dst,), replica_group=group, collective_dim=0)
        assert (made.sizes_agree(get_target("trn2")) is None) == fits
