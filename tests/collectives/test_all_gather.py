"""`all_gather`: one rank's tensor is the joined one; the dimension of the blocks (semantics rule 137)."""

from __future__ import annotations

import numpy as np
import pytest

import nki.collectives as ncc
import nki.language as nl
from nki import errors
from nki.ir.program import Access, Buffer
from nki.target import get_target
from tests.collectives.single_rank import ALONE, X, hbm, load, node, refused, run, sbuf, store


def test_one_rank_in_hbm() -> None:
    def kernel(x, y):
        outs = [hbm(x.shape), hbm(y.shape, y.dtype)]
        ncc.all_gather(srcs=[x, y], dsts=outs, replica_group=ALONE, collective_dim=0)
        return tuple(outs)

    y = np.arange(5, dtype=np.uint8)
    first, second = run(kernel, X, y)
    np.testing.assert_array_equal(first, X)
    np.testing.assert_array_equal(second, y)


@pytest.mark.parametrize("dim", [0, 1])
def test_one_rank_in_sbuf(dim: int) -> None:
    def kernel(x):
        out = sbuf(x.shape)
        ncc.all_gather([load(x)], [out], ALONE, dim)
        return store(out)

    np.testing.assert_array_equal(run(kernel, X), X)


@pytest.mark.parametrize(("dim", "chip"), [(1, False), (-1, False), (2, True)])
def test_dimensions(dim: int, chip: bool) -> None:
    def kernel(x):
        src, out = (load(x), sbuf(x.shape)) if chip else (x, hbm(x.shape))
        ncc.all_gather([src], [out], ALONE, dim)
        return x

    refused(kernel, errors.ArgumentError, "blocks lie along dimension 0" + (" or 1" if chip else ""))


@pytest.mark.parametrize(("dim", "shape"), [(0, (16, 8)), (1, (4, 32))])
def test_shape_of_the_result(dim: int, shape: tuple[int, int]) -> None:
    """As many blocks as ranks, side by side."""
    src = Access.whole(Buffer("src", (4, 8), nl.float32, nl.sbuf))
    for wanted, fits in ((shape, True), ((4, 8), False), (shape[::-1], False)):
        dst = Access.whole(Buffer("dst", wanted, nl.float32, nl.sbuf))
        made = node(
            ncc.all_gather, srcs=(src,), dsts=(dst,), replica_group=((0, 1, 2, 3),), collective_dim=dim
        )
        assert (made.sizes_agree(get_target("trn2")) is None) == fits
