"""A tiled matrix product of any size, and the steps of it that other kernels share.

Letters used in every docstring here:
  M  rows of the result, m of them in a tile, up to 128        K  the contracted axis
  N  columns of the result, n of them in a block, up to 512: one PSUM bank

A block of the result, four tiles high and one bank wide, lives in four banks of PSUM while K goes by in panels of 512.
`loading.py` says how the panels come in.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.linear.matmul.loading import Factor, Kept

TILES_PER_BLOCK = 4


@nki.jit
def matmul(a: Any, b: Any, a_leading: bool, b_leading: bool) -> Any:
    """a b, summed in float32 and rounded once.

    Dimensions: a [M, K], or [K, M] if a_leading; b [N, K], or [K, N] if b_leading -> [M, N]. Whether the contracted
    axis
    leads in memory, not its mathematical place, is what the flags say: one that leads needs no transpose.

    Pseudocode:
        for each block of 512 rows, for each block of 512 columns:
            for each panel of 512 of K: load both factors, multiply, add in PSUM
            round and store its four tiles
    """
    left, right = Kept(Factor(a, a_leading)), Factor(b, b_leading)
    out = nl.ndarray((left.width, right.width), dtype=a.dtype, buffer=nl.shared_hbm)
    for rows in row_blocks(left.width):
        for columns in spans(right.width, nl.tile_size.psum_bank_fmax):
            for start, stop, total in multiply_block(left, right, rows, columns):
                store_sum(out[start:stop, columns[0] : columns[1]], [total])
    return out


def spans(count: int, step: int) -> list[Any]:
    """0 ... count - 1 as pairs (start, stop), up to `step` long."""
    return [(start, min(start + step, count)) for start in range(0, count, step)]


def row_blocks(rows: int) -> list[Any]:
    """The rows as pairs (start, stop), one for each block."""
    return spans(rows, TILES_PER_BLOCK * nl.tile_size.pmax)


def multiply_block(left: Any, right: Any, rows: Any, columns: Any) -> list[Any]:
    """One block of the product as tiles (start, stop, total [stop - start, n] in PSUM).

    Dimensions: left and right give panels, lists of slabs [up to 128 of K, rows] and [the same, n].
    """
    n = columns[1] - columns[0]
    tiles = []
    for start in range(rows[0], rows[1], nl.tile_size.pmax):
        stop = min(start + nl.tile_size.pmax, rows[1])
        tiles.append((start, stop, nl.ndarray((stop - start, n), dtype=nl.float32, buffer=nl.psum)))
    for depths in spans(left.depth, nl.tile_size.psum_bank_fmax):
        stationary, moving = left.panel(depths, rows), right.panel(depths, columns)
        for i in range(len(moving)):
            for start, stop, total in tiles:
                mine = stationary[i][:, start - rows[0] : stop - rows[0]]
                nisa.nc_matmul(dst=total, stationary=mine, moving=moving[i])
    return tiles


def store_sum(out: Any, terms: list[Any]) -> None:
    """out = the sum of the terms, rounded once. Dimensions: out [m, n] in HBM, terms [m, n], the first in PSUM."""
    result = nl.ndarray(out.shape, dtype=out.dtype, buffer=nl.sbuf)
    if len(terms) == 1:
        nisa.tensor_copy(dst=result, src=terms[0])
    else:
        nisa.tensor_tensor(dst=result, data1=add_up(terms[:-1]), data2=terms[-1], op=nl.add)
    nisa.dma_copy(dst=out, src=result)


def add_up(terms: list[Any]) -> Any:
    """The sum of the terms in float32; of one term, itself. Dimensions: [m, n] each."""
    total = terms[0]
    for term in terms[1:]:
        result = nl.ndarray(total.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=result, data1=total, data2=term, op=nl.add)
        total = result
    return total
