"""What a dynamic address waits for: everything it may touch, and the tile that holds its index."""

from __future__ import annotations

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from nki.passes.dependencies import dependencies
from tests.isa.dynamic import column, one
from tests.isa.tiles import load, sbuf, store


def edges(kernel, *arrays):
    """The instructions of a program, and for each the positions of those it waits for."""
    program = kernel.ir(*arrays, target="trn2")
    (core,) = dependencies(program)
    return list(program.instructions()), [{found.on for found in waits} for waits in core]


def test_a_moved_window_waits_for_all_it_may_touch():
    @nki.jit
    def kernel(x, n):
        tile, index, part = sbuf((4, 8)), load(n), sbuf((4, 2))
        nisa.memset(dst=tile[:, 0:4], value=0.0)
        nisa.memset(dst=tile[:, 4:8], value=1.0)
        nisa.tensor_copy(dst=part, src=tile[:, nl.ds(index, 2)])
        nisa.memset(dst=tile[:, 6:8], value=2.0)
        return store(part)

    nodes, waits = edges(kernel, np.zeros((4, 8), np.float32), one(0))
    names = [node.mnemonic for node in nodes]
    assert names[:5] == ["dma_copy", "memset", "memset", "tensor_copy", "memset"]
    assert waits[3] >= {0, 1, 2} and 3 in waits[4]


def test_a_scatter_is_seen_by_whoever_reads_the_tensor():
    @nki.jit
    def kernel(out, values, rows):
        tile, index = load(values), load(rows)
        nisa.dma_copy(dst=out.vector_select(0, index), src=tile)
        other = load(out[6:8])
        return store(other)

    nodes, waits = edges(kernel, np.zeros((8, 4), np.float32), np.ones((2, 4), np.float32), column(6, 7))
    scatter = next(i for i, node in enumerate(nodes) if node.is_dynamic)
    assert waits[scatter] >= {0, 1} and scatter in waits[scatter + 1]
