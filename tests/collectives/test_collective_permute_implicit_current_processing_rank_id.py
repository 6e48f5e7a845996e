"""`collective_permute_implicit_current_processing_rank_id`: whose data a step of a ring works on (rule 139)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.collectives.ring import predecessor
from tests.collectives.single_rank import ALONE, X, hbm, refused, run, sbuf

current = ncc.collective_permute_implicit_current_processing_rank_id


@pytest.mark.parametrize("step", [0, 1, 5])
def test_a_ring_of_one(step: int) -> None:
    def kernel(x):
        tile = sbuf((1, 1), nl.int32)
        nisa.register_store(tile, current(iteration_id=step, replica_group=ALONE, channel_id=0))
        out = hbm((1, 1), nl.int32)
        nisa.dma_copy(dst=out, src=tile)
        return out

    np.testing.assert_array_equal(run(kernel, X), [[0]])


def test_predecessors_come_one_after_the_other() -> None:
    """By hand: in step i the data of the rank i places before in the list, around the ring."""
    groups = ((0, 3, 1, 2), (4, 5, 6, 7))
    assert [predecessor(groups, 0, step) for step in range(6)] == [0, 2, 1, 3, 0, 2]
    assert [predecessor(groups, 6, step) for step in range(4)] == [6, 5, 4, 7]


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"iteration_id": -1}, errors.ArgumentError, "counted from 0"),
        ({"channel_id": -1}, errors.ArgumentError, "counted from 0"),
        ({"channel_id": 4}, errors.LimitError, "up to 4 channels"),
        ({"replica_group": ncc.ReplicaGroup([[0, 1]])}, errors.MultiRankError, "more than one rank"),
        ({"num_channels": 1}, errors.UnknownKeywordError, "num_channels"),
    ],
)
def test_refused(arguments: dict[str, Any], kind: type[Exception], text: str) -> None:
    def kernel(x):
        current(**{"iteration_id": 0, "replica_group": ALONE, **arguments})
        return x

    refused(kernel, kind, text)


def test_all_channels_of_a_ring() -> None:
    def kernel(x):
        for channel in range(4):
            current(0, ALONE, channel)
        return x

    program = nki.jit(kernel).ir(X, target="trn2")
    assert len(list(program.instructions())) == 4
