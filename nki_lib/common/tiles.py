"""Steps that kernels of several families share: loads, rows on partitions, transposes, columns of statistics."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl

LOWEST = -3.4028234663852886e38
"""Of float32; stands for a maximum of nothing but -inf, which could not be subtracted: exp(-inf - LOWEST) is 0."""


def spans(count: int, step: int) -> list[Any]:
    """0 ... count - 1 as pairs (start, stop), up to `step` long."""
    return [(start, min(start + step, count)) for start in range(0, count, step)]


def fetch(dst: Any, src: Any) -> None:
    """A load, started by the hardware's descriptor generator where there is one (trn2 and later).

    It keeps no engine busy, and it has a queue of its own: a store that waits for its values, started the usual way,
    never holds up the next load.
    """
    hardware = nisa.get_nc_version() > nisa.nc_version.gen2 and dst.dtype == src.dtype
    nisa.dma_copy(dst=dst, src=src, dge_mode=nisa.dge_mode.hwdge if hardware else nisa.dge_mode.unknown)


def load(source: Any) -> Any:
    """The same elements in SBUF, the first axis on the partitions."""
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    fetch(dst=tile, src=source)
    return tile


def load_row(row: Any, partitions: int) -> Any:
    """A vector [w] in HBM, the same in every partition. Dimensions: -> [partitions, w]."""
    tile = nl.ndarray((partitions, row.shape[0]), dtype=row.dtype, buffer=nl.sbuf)
    fetch(dst=tile, src=row.expand_dim(0).broadcast(0, partitions))
    return tile


def load_by_partition(rows: Any) -> Any:
    """rows[c, D] in HBM as [128, c/128, D]: row r in partition r % 128. The last block may be incomplete."""
    count, depth = rows.shape
    side = nl.tile_size.pmax
    full, rest = divmod(count, side)
    tile = nl.ndarray((min(side, count), full + (rest > 0), depth), dtype=rows.dtype, buffer=nl.sbuf)
    if full:
        blocks = rows[: full * side, :].reshape_dim(0, (full, side)).permute((1, 0, 2))
        fetch(dst=tile[:, :full, :], src=blocks)
    if rest:
        fetch(dst=tile[:rest, full, :], src=rows[full * side :, :])
    return tile


def transpose_blocks(tile: Any, count: int) -> list[Any]:
    """[128, c/128, D] -> parts [d, c], each through one PSUM bank."""
    blocks, depth = tile.shape[1:]
    side = nl.tile_size.pmax
    parts = []
    for low in range(0, depth, side):
        high = min(low + side, depth)
        in_psum = nl.ndarray((high - low, count), dtype=tile.dtype, buffer=nl.psum)
        part = nl.ndarray((high - low, count), dtype=tile.dtype, buffer=nl.sbuf)
        for block in range(blocks):
            first, stop = block * side, min((block + 1) * side, count)
            nisa.nc_transpose(dst=in_psum[:, first:stop], data=tile[: stop - first, block, low:high])
        nisa.tensor_copy(dst=part, src=in_psum)
        parts.append(part)
    return parts


def column_like(tile: Any) -> Any:
    """A new float32 column in SBUF with a row for each of the tile's. Dimensions: [m, f] -> [m, 1]."""
    return nl.ndarray((tile.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)


def column(m: int, g: int = 1) -> Any:
    """New float32 numbers in SBUF, one for each of g rows or lines of a partition. Dimensions: -> [m, g]."""
    return nl.ndarray((m, g), dtype=nl.float32, buffer=nl.sbuf)


def wide_like(tile: Any) -> Any:
    """New float32 space in SBUF. Dimensions: those of the tile."""
    return nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
