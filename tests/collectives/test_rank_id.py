"""`rank_id`: a register with the number of the rank, usable as a dynamic address."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.collectives.single_rank import X, hbm, run, sbuf


def test_a_run_is_rank_0() -> None:
    def kernel(x):
        tile = sbuf((1, 1), nl.int32)
        nisa.register_store(tile, ncc.rank_id(name="mine"))
        out = hbm((1, 1), nl.int32)
        nisa.dma_copy(dst=out, src=tile)
        return out

    np.testing.assert_array_equal(run(kernel, X), [[0]])


def test_as_an_address() -> None:
    def kernel(x):
        out = hbm((1, 8))
        nisa.dma_copy(dst=out, src=x.ap([[8, 1], [1, 8]], scalar_offset=ncc.rank_id()))
        return out

    np.testing.assert_array_equal(run(kernel, X), X[:1])


def test_both_cores_are_one_rank() -> None:
    def kernel(x):
        me = nl.program_id(0)
        out = hbm((2, 1), nl.int32)
        tile = sbuf((1, 1), nl.int32)
        nisa.register_store(tile, ncc.rank_id())
        nisa.dma_copy(dst=out[me : me + 1, :], src=tile)
        return out

    np.testing.assert_array_equal(nki.simulate(nki.jit(kernel)[2], target="trn2")(X), [[0], [0]])


def test_outside_of_a_kernel() -> None:
    with pytest.raises(errors.OutsideKernelError, match=r"nki\.collectives\.rank_id was called outside"):
        ncc.rank_id()
