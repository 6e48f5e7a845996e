"""Rows of a table by their ids, and the sums of gradients that go back into the table.

Letters used in every docstring here:
  V  rows of the table, H their width      N  ids, up to 128 of them (m) on the partitions at a time, T such columns
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import load, load_row, spans

TILE_BYTES = 16384  # of a partition in one tile: long runs for the DMA, and several such tiles fit
NONE_EARLIER = 0.5  # below it a count of occurrences is 0


@nki.jit
def embedding(ids: Any, weight: Any, scale: float | None) -> Any:
    """The rows of the table that the ids name, times scale if there is one, in float32 and rounded once.

    Dimensions: ids [N] int32, weight [V, H] -> [N, H]. N is at most 128, or a multiple of 128.

    Pseudocode:
        load all ids, N / m consecutive ones on each partition
        for a few ids of every partition at a time:
            gather a row of the table for each partition and id; scale; store them as one run of rows
    """
    count, width = ids.shape[0], weight.shape[1]
    m = min(count, nl.tile_size.pmax)
    places = load(ids.reshape((m, count // m)))
    out = nl.ndarray((count, width), dtype=weight.dtype, buffer=nl.shared_hbm)
    rows = out.reshape((m, count // m, width))
    size = weight.dtype.itemsize
    for low, high in spans(width, TILE_BYTES // size):
        for first, last in spans(count // m, max(TILE_BYTES // ((high - low) * size), 1)):
            tile = nl.ndarray((m, last - first, high - low), dtype=weight.dtype, buffer=nl.sbuf)
            for t in range(first, last):
                source = named_rows(weight, places[:, t : t + 1], low, high)
                nisa.dma_copy(dst=tile[:, t - first, :], src=source)
            if scale is not None:
                nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=scale)
            nisa.dma_copy(dst=rows[:, first:last, low:high], src=tile)
    return out


@nki.jit
def embedding_backward(sums: Any, grad: Any, ids: Any, scale: float | None) -> None:
    """sums[ids[n]] += grad[n] * scale for all n, in float32; ids that are no row of the table are skipped.

    Dimensions: sums [V, H] float32, written in place; grad [N, H], ids [N] int32. N as in `embedding`.
    Equal ids of a tile of 128 meet in a product with the matrix that is 1 where two ids are equal, and the first of
    them takes their sum to the table. Tiles follow one another, so the order of every sum is fixed.

    Pseudocode:
        for each tile of m ids: same[i, j] = (id i equals id j); ids seen earlier in the tile are put out of range
        for each tile, for each block of columns:
            load grad; gather the rows of the table; add same^T grad; scatter them
    """
    count, width = grad.shape
    m = min(count, nl.tile_size.pmax)
    same, places = repetitions(ids, m, sums.shape[0], grad.dtype)
    for start in range(0, count, m):
        t = start // m
        for low, high in spans(width, TILE_BYTES // sums.dtype.itemsize):
            tile = load(grad[start : start + m, low:high])
            target = named_rows(sums, places[:, t : t + 1], low, high)
            held = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.memset(dst=held, value=0.0)  # rows that are skipped stay as they are
            nisa.dma_copy(dst=held, src=target, oob_mode=nisa.oob_mode.skip)
            for first, last in spans(high - low, nl.tile_size.psum_bank_fmax):
                total = nl.ndarray((m, last - first), dtype=nl.float32, buffer=nl.psum)
                nisa.nc_matmul(dst=total, stationary=same[t], moving=tile[:, first:last])
                part = held[:, first:last]
                factor = 1.0 if scale is None else scale
                nisa.scalar_tensor_tensor(
                    dst=part, data=total, op0=nl.multiply, operand0=factor, op1=nl.add, operand1=part
                )
            nisa.dma_copy(dst=target, src=held, oob_mode=nisa.oob_mode.skip)


def named_rows(table: Any, places: Any, low: int, high: int) -> Any:
    """Columns low to high - 1 of the rows at these places, as a view. Dimensions: table [V, H], places [m, 1]."""
    width = table.shape[1]
    pattern = [[width, places.shape[0]], [1, high - low]]
    return table.ap(pattern=pattern, offset=low, vector_offset=places)


def repetitions(ids: Any, m: int, rows: int, dtype: Any) -> tuple[list[Any], Any]:
    """Which ids of a tile are equal, [m, m] of ones and zeros for each; and where each id's sum goes, [m, T] int32.

    That is its row, or one from `rows` on, which does not exist, where the same id stands earlier in its tile.
    """
    count = ids.shape[0]
    across = in_float(load_row(ids, m))
    down = in_float(load(ids.reshape((count // m, m)).permute((1, 0))))
    before = earlier(m, dtype)
    seen = nl.ndarray((m, count // m), dtype=nl.float32, buffer=nl.sbuf)
    same = []
    for t in range(count // m):
        equal = nl.ndarray((m, m), dtype=dtype, buffer=nl.sbuf)
        mine = across[:, t * m : (t + 1) * m]
        nisa.tensor_scalar(dst=equal, data=mine, op0=nl.equal, operand0=down[:, t : t + 1])
        both = nl.ndarray((m, m), dtype=dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=both, data1=equal, data2=before, op=nl.multiply)
        nisa.tensor_reduce(dst=seen[:, t : t + 1], op=nl.add, data=both, axis=1)
        same.append(equal)
    nisa.tensor_scalar(
        dst=seen,
        data=seen,
        op0=nl.greater,
        operand0=NONE_EARLIER,
        op1=nl.multiply,
        operand1=float(rows),
    )
    places = nl.ndarray((m, count // m), dtype=nl.int32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=places, data1=seen, data2=down, op=nl.add)
    return same, places


def in_float(ids: Any) -> Any:
    """The ids in float32, which holds them exactly up to 2^24."""
    tile = nl.ndarray(ids.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=ids)
    return tile


def earlier(m: int, dtype: Any) -> Any:
    """1 where j < i, else 0. Dimensions: [m i, m j]."""
    distance = nl.ndarray((m, m), dtype=nl.int32, buffer=nl.sbuf)
    nisa.iota(dst=distance, pattern=[[1, m]], channel_multiplier=-1)
    tile = nl.ndarray((m, m), dtype=dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=tile, data=distance, op0=nl.less, operand0=0.0)
    return tile
