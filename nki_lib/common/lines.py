"""The lines of a matrix in HBM, many at a time, each inside one partition: its rows, or its columns, turned on the way.

Letters used in every docstring here:
  L  lines    W  their width    m  partitions of a block, up to 128    g  lines in each of them    f  part of a width
"""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import fetch, load_by_partition

BLOCK_BYTES = 8192  # of rows in one partition: long runs for the DMA, short first and last steps
COLUMN_BYTES = 1 << 9  # of a row from which columns are taken: the DMA is slow with shorter runs


class Lines:
    """Rows or columns as blocks [m, g, f]. A block is (start, m, g): m * g lines from `start` on.

    Row start + p * g + i lies in partition p at place i, so that a partition's rows are one run of bytes; of columns,
    start + i * 128 + p, as 128 of them are turned at once.
    """

    def __init__(self, matrix: Any, columns: bool = False) -> None:
        self.matrix, self.columns, self.dtype = matrix, columns, matrix.dtype
        self.width, self.count = matrix.shape if columns else (matrix.shape[1], matrix.shape[0])

    def blocks(self, width: int | None = None, most: int | None = None) -> list[Any]:
        """All lines, in blocks for parts of `width` elements, at most `most` lines in a partition.

        The first and the last are low: less to wait for.
        """
        side = nl.tile_size.pmax
        fitting = COLUMN_BYTES // side if self.columns else BLOCK_BYTES // (width or self.width)
        most = max(1, min(fitting // self.dtype.itemsize, fitting if most is None else most))
        result, start = [], 0
        while start < self.count:
            m, left = min(side, self.count - start), (self.count - start) // side
            low = left <= 2 or (start == 0 and not self.columns)
            g = min(most, max(left, 1)) if self.columns else 1 if low else min(most, left - 2)
            result.append((start, m, g))
            start += m * g
        return result

    def loaded(self, blocks: list[Any]) -> Any:
        """Pairs (block, its lines in SBUF); each is loaded, and turned, before the one before it is used."""
        following = self.load(blocks[0])
        for i, block in enumerate(blocks):
            tile = following
            if i + 1 < len(blocks):
                following = self.load(blocks[i + 1])
            yield block, tile

    def load(self, block: Any, first: int = 0, last: int | None = None) -> Any:
        """Elements first to last - 1 of the lines of a block. -> [m, g, f] in SBUF."""
        start, m, g = block
        last = self.width if last is None else last
        if not self.columns:
            tile = nl.ndarray((m, g, last - first), dtype=self.dtype, buffer=nl.sbuf)
            fetch(dst=tile, src=self._rows(block, first, last))
            return tile
        rows = load_by_partition(self.matrix[first:last, start : start + m * g])
        tile = nl.ndarray((m, g, last - first), dtype=self.dtype, buffer=nl.sbuf)
        for i in range(g):
            turn_in(tile[:, i, :], rows[:, :, i * m : (i + 1) * m])
        return tile

    def store(self, tile: Any, block: Any, first: int = 0, last: int | None = None) -> None:
        """The same elements, from SBUF. Dimensions: tile [m, g, f]."""
        start, m, g = block
        last = self.width if last is None else last
        if not self.columns:
            nisa.dma_copy(dst=self._rows(block, first, last), src=tile)
            return
        side = nl.tile_size.pmax
        full, rest = divmod(last - first, side)
        shape = (min(side, last - first), full + (rest > 0), m * g)
        rows = nl.ndarray(shape, dtype=self.dtype, buffer=nl.sbuf)
        for i in range(g):
            turn_out(rows[:, :, i * m : (i + 1) * m], tile[:, i, :])
        here = self.matrix[first:last, start : start + m * g]
        if full:
            target = here[: full * side, :].reshape_dim(0, (full, side)).permute((1, 0, 2))
            fetch(dst=target, src=rows[:, :full, :])
        if rest:
            fetch(dst=here[full * side :, :], src=rows[:rest, full, :])

    def _rows(self, block: Any, first: int, last: int) -> Any:
        start, m, g = block
        return self.matrix[start : start + m * g, first:last].reshape_dim(0, (m, g))


def turn_in(lines: Any, rows: Any) -> None:
    """lines[p, b * 128 + r] = rows[r, b, p]. Dimensions: lines [m, f], rows [128, f/128, m], incomplete at the end."""
    m, width = lines.shape
    side, bank = nl.tile_size.pmax, elements_of_a_bank(lines.dtype)
    for low in range(0, width, bank):
        high = min(low + bank, width)
        turned = nl.ndarray((m, high - low), dtype=lines.dtype, buffer=nl.psum)
        for first in range(low, high, side):
            last = min(first + side, high)
            nisa.nc_transpose(
                dst=turned[:, first - low : last - low], data=rows[: last - first, first // side, :]
            )
        # By the Scalar engine: the Vector engine turns out.
        nisa.activation(dst=lines[:, low:high], op=nl.copy, data=turned)


def turn_out(rows: Any, lines: Any) -> None:
    """rows[r, b, p] = lines[p, b * 128 + r]. Dimensions: as in `turn_in`."""
    m, width = lines.shape
    side = nl.tile_size.pmax
    most = max(1, elements_of_a_bank(lines.dtype) // m)
    full, rest = divmod(width, side)
    groups = [(b, min(b + most, full), side) for b in range(0, full, most)]
    for low, high, height in [*groups, *([(full, full + 1, rest)] if rest else [])]:
        turned = nl.ndarray((height, high - low, m), dtype=lines.dtype, buffer=nl.psum)
        for b in range(low, high):
            nisa.nc_transpose(dst=turned[:, b - low, :], data=lines[:, b * side : b * side + height])
        nisa.tensor_copy(dst=rows[:height, low:high, :], src=turned)


def elements_of_a_bank(dtype: Any) -> int:
    """How many of them a bank of PSUM holds in each partition."""
    return nl.tile_size.psum_bank_fmax * nl.float32.itemsize // dtype.itemsize
