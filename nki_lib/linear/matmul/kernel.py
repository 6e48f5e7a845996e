"""A tiled matrix product of any size, and the steps of it that other kernels share.

Letters used in every docstring here:
  M  rows of the result, m of them in a tile, up to 128        K  the contracted axis
  N  columns of the result, n of them in a block, up to 512 for each bank of PSUM that a tile has

A block of the result, four banks of PSUM, is 512 rows high and 512 columns wide, or lower and wider if there are fewer
rows. It lies there while K goes by in panels of 512; the other four banks are the next block's. `loading.py` says how
the panels come in.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import spans
from nki_lib.linear.matmul.loading import Factor, Kept

TILES_PER_BLOCK = 4
FEW_ROWS = 64  # up to half of the array's columns, which would leave it at half its clock
LONG = 2048  # elements of a right factor that follow each other in memory and come at once


@nki.jit
def matmul(a: Any, b: Any, a_leading: bool, b_leading: bool) -> Any:
    """a b, summed in float32 and rounded once.

    Dimensions: a [M, K], or [K, M] if a_leading; b [N, K], or [K, N] if b_leading -> [M, N]. Whether the contracted
    axis leads in memory, not its mathematical place, is what the flags say: one that leads needs no transpose.

    Pseudocode:
        for each block of rows, for each block of columns:
            for each panel of K: load both factors, multiply, add in PSUM
            round and store its tiles
    """
    left, right = Kept(Factor(a, a_leading)), Factor(b, b_leading)
    out = nl.ndarray((left.width, right.width), dtype=a.dtype, buffer=nl.shared_hbm)
    for rows in row_blocks(left.width):
        for columns in column_blocks(rows, right):
            for start, stop, total in multiply_block(left, right, rows, columns):
                store_sum(out[start:stop, columns[0] : columns[1]], [total])
    return out


def row_blocks(rows: int) -> list[Any]:
    """The rows as pairs (start, stop), one for each block."""
    return spans(rows, TILES_PER_BLOCK * nl.tile_size.pmax)


def column_blocks(rows: Any, right: Any) -> list[Any]:
    """The columns as pairs (start, stop), one for each block of these rows.

    If there are few rows, the right factor sets the pace, and should come in long pieces: a block is then wider, as far
    as four banks of PSUM allow, unless the pieces run along K.
    """
    tiles = -(-(rows[1] - rows[0]) // nl.tile_size.pmax)
    return spans(
        right.width, nl.tile_size.psum_bank_fmax * (TILES_PER_BLOCK // tiles if right.leading else 1)
    )


def depth_panels(right: Any) -> list[Any]:
    """K as pairs (start, stop), one for each panel.

    Panels of 512; of a factor that the DMA engines transpose, whose pieces run along K, longer and longer ones, as the
    Tensor engine should not wait for a long one in the beginning.
    """
    step, panels, start = nl.tile_size.psum_bank_fmax, [], 0
    while start < right.depth:
        stop = min(start + step, right.depth)
        panels.append((start, stop))
        start, step = stop, min(2 * step, LONG) if right.by_dma else step
    return panels


def multiply_block(left: Any, right: Any, rows: Any, columns: Any) -> list[Any]:
    """One block of the product as tiles (start, stop, total [stop - start, n] in PSUM).

    Dimensions: left and right give panels, lists of slabs [up to 128 of K, rows] and [the same, n]; slabs of three axes
    [128, 2, rows] and [128, 2, n] are multiplied at double rate.
    """
    if rows[1] - rows[0] <= FEW_ROWS:
        return [(*rows, multiply_few_rows(left, right, rows, columns))]
    n, bank = columns[1] - columns[0], nl.tile_size.psum_bank_fmax
    tiles = []
    for start in range(rows[0], rows[1], nl.tile_size.pmax):
        stop = min(start + nl.tile_size.pmax, rows[1])
        tiles.append((start, stop, psum_tile(stop - start, n)))
    for depths in depth_panels(right):
        stationary, moving = left.panel(depths, rows), right.panel(depths, columns)
        for i in range(len(moving)):
            for start, stop, total in tiles:
                mine = stationary[i][..., start - rows[0] : stop - rows[0]]
                for first, last in spans(n, bank):
                    multiply(total[:, first:last], mine, moving[i][..., first:last])
    return tiles


def multiply_few_rows(left: Any, right: Any, rows: Any, columns: Any) -> Any:
    """One block of few rows: the right factor is stationary, so that it fills the array, and the result is turned.

    Dimensions: as in multiply_block; up to 64 rows m -> [m, n] in PSUM.

    Pseudocode:
        turned[128, i, m] += slab of right[128, 128 columns i]^T @ slab of left[128, m]
        total[m, 128 columns i] = turned[128, i, m]^T
    """
    m, n, side = rows[1] - rows[0], columns[1] - columns[0], nl.tile_size.pmax
    parts = spans(n, side)
    place = 1 << (m - 1).bit_length()  # a power of two: no part of a bank is cut
    turned = psum_tile(side, len(parts) * place).reshape_dim(1, (len(parts), place))
    for depths in depth_panels(right):
        moving, stationary = left.panel(depths, rows), right.panel(depths, columns)
        for i in range(len(moving)):
            for part, (first, last) in enumerate(parts):
                multiply(turned[: last - first, part, :m], stationary[i][..., first:last], moving[i])
    result = nl.ndarray((side, len(parts), m), dtype=nl.float32, buffer=nl.sbuf)
    total = psum_tile(m, n)
    full = n // side
    for start, stop, width in ((0, full, side), (full, len(parts), n - full * side)):
        if start < stop:
            nisa.tensor_copy(dst=result[:width, start:stop, :], src=turned[:width, start:stop, :m])
    for part, (first, last) in enumerate(parts):
        nisa.nc_transpose(dst=total[:, first:last], data=result[: last - first, part, :])
    return total


def psum_tile(partitions: int, count: int) -> Any:
    """A float32 tile of PSUM of which each 512 columns have a bank. Dimensions: -> [partitions, count]."""
    bank = nl.tile_size.psum_bank_fmax
    whole = count if count <= bank else -(-count // bank) * bank
    return nl.ndarray((partitions, whole), dtype=nl.float32, buffer=nl.psum)[:, :count]


def multiply(total: Any, stationary: Any, moving: Any) -> None:
    """total += stationary^T moving. Dimensions: total [m, n]; slabs [k, m] and [k, n], or [k, 2, m] and [k, 2, n]."""
    double = len(moving.shape) == 3
    mode = nisa.matmul_perf_mode.double_row if double else nisa.matmul_perf_mode.none
    nisa.nc_matmul(dst=total, stationary=stationary, moving=moving, perf_mode=mode)


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
