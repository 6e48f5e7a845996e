"""`all_gather_v`: blocks of a size that the metadata say while running (semantics rule 138)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.collectives.single_rank import ALONE, hbm, load, noted, refused, run

FLAT = np.arange(32, dtype=np.float32)
META = np.array([[5], [3], [77]], np.uint32)


def gather(x, meta, known=False):
    out = hbm((16,))
    nisa.dma_copy(dst=out, src=x[0:16])
    ncc.all_gather_v([x], [out], ALONE, meta, recv_counts_known=known)
    return out


@pytest.mark.parametrize("known", [False, True])
def test_the_block_comes_first_and_the_rest_stays(known: bool) -> None:
    meta = META.copy()
    found = nki.simulate(nki.jit(gather), target="trn2")(FLAT, meta, known)
    wanted = FLAT[:16].copy()
    wanted[:5] = FLAT[3:8]
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(meta[:, 0], [5, 3, 77 if known else 5])


def test_metadata_in_sbuf() -> None:
    def kernel(x, meta):
        rows = load(meta)
        out = hbm((16,))
        ncc.all_gather_v([x], [out], ALONE, rows)
        seen = hbm((1, 3, 1), nl.uint32)
        nisa.dma_copy(dst=seen, src=rows)
        return out, seen

    out, seen = run(kernel, FLAT, META.reshape(1, 3, 1))
    np.testing.assert_array_equal(out[:5], FLAT[3:8])
    assert np.isnan(out[5:]).all()
    np.testing.assert_array_equal(seen.ravel(), [5, 3, 5])


@pytest.mark.parametrize("rows", [[30, 5, 0], [33, 0, 0], [17, 0, 0], [2**31, 2**31, 0]])
def test_metadata_are_checked_while_running(rows: list[int]) -> None:
    meta = np.array(rows, np.uint32).reshape(3, 1)
    with pytest.raises(errors.BoundsError, match="the metadata reach beyond") as caught:
        nki.simulate(nki.jit(gather), target="trn2")(FLAT, meta)
    assert caught.value.span is not None and caught.value.span.file == __file__


@pytest.mark.parametrize("shape", [(4, 1), (3, 2), (1, 3, 1), (3,)])
def test_shape_of_the_metadata(shape: tuple[int, ...]) -> None:
    refused(gather, errors.OperandShapeError, "a row of one number a rank", FLAT, np.zeros(shape, np.uint32))


def test_metadata_are_contiguous() -> None:
    def kernel(x, meta):
        return gather(x, meta[:, 0:1])

    refused(kernel, errors.OperandShapeError, "side by side", FLAT, np.zeros((3, 2), np.uint32))


def test_metadata_are_uint32() -> None:
    refused(gather, errors.OperandDtypeError, "cannot be int32", FLAT, np.zeros((3, 1), np.int32))


def test_the_first_rows_are_read() -> None:
    def kernel(x):
        out, meta = hbm((16,)), hbm((3, 1), nl.uint32)
        ncc.all_gather_v([x], [out], ALONE, meta)
        return out

    with pytest.raises(errors.UninitializedReadError, match="metadata_tensor"):
        nki.jit(kernel).ir(FLAT, target="trn2")


def test_no_places_of_ones_own() -> None:
    def kernel(x, meta: Any):
        ncc.all_gather_v([x], [hbm((16,))], ALONE, meta, has_rdispls=True)
        return x

    refused(kernel, errors.RuleError, "not supported by all_gather_v", FLAT, np.zeros((4, 1), np.uint32))


def test_one_tensor() -> None:
    def kernel(x, meta: Any):
        ncc.all_gather_v([x, x], [hbm((16,)), hbm((16,))], ALONE, meta)
        return x

    refused(kernel, errors.LimitError, "exactly one tensor", FLAT, META)


def test_groups_of_the_chip_are_noted() -> None:
    assert noted(gather, FLAT, META) == [
        ("note", "all_gather_v: the chip has it for lists of 4 ranks with two cores each")
    ]
