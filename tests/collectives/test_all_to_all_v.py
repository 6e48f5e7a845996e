"""`all_to_all_v`: blocks of a size, and with `has_rdispls` at a place, that the metadata say (semantics rule 138)."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.collectives as ncc
import nki.isa as nisa
from nki import errors
from tests.collectives.single_rank import ALONE, hbm, noted, refused

FLAT = np.arange(32, dtype=np.float32)


def exchange(x, meta, places=False, known=False):
    out = hbm((16,))
    nisa.dma_copy(dst=out, src=x[0:16])
    ncc.all_to_all_v(
        srcs=[x],
        dsts=[out],
        replica_group=ALONE,
        metadata_tensor=meta,
        recv_counts_known=known,
        has_rdispls=places,
    )
    return out


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("places", [False, True])
def test_one_rank_gets_its_own_block(places: bool, known: bool) -> None:
    meta = np.array([[4], [10], [77], [6]][: 4 if places else 3], np.uint32)
    found = nki.simulate(nki.jit(exchange), target="trn3")(FLAT, meta, places, known)
    wanted = FLAT[:16].copy()
    start = 6 if places else 0
    wanted[start : start + 4] = FLAT[10:14]
    np.testing.assert_array_equal(found, wanted)
    assert meta[2, 0] == (77 if known else 4)


def test_nothing_is_sent() -> None:
    meta = np.zeros((3, 1), np.uint32)
    np.testing.assert_array_equal(nki.simulate(nki.jit(exchange), target="trn2")(FLAT, meta), FLAT[:16])


def test_places_need_trn3() -> None:
    meta = np.zeros((4, 1), np.uint32)
    with pytest.raises(errors.TargetError, match="NeuronSwitch"):
        nki.jit(exchange).ir(FLAT, meta, places=True, target="trn2")


def test_places_are_checked_while_running() -> None:
    meta = np.array([[4], [10], [0], [13]], np.uint32)
    with pytest.raises(errors.BoundsError, match=r"beyond `dsts\[0\]`"):
        nki.simulate(nki.jit(exchange), target="trn3")(FLAT, meta, True)


def test_shape_of_the_metadata() -> None:
    refused(exchange, errors.OperandShapeError, "a row of one number", FLAT, np.zeros((4, 1), np.uint32))


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_groups_of_the_chip_are_noted(target: str) -> None:
    found = noted(exchange, FLAT, np.zeros((3, 1), np.uint32), target=target)
    assert found == [("note", "all_to_all_v: the chip has it for groups of several devices, in whole")]
