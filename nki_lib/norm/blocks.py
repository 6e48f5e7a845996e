"""Steps that the normalising kernels share: blocks of rows in SBUF, sums along rows, weights in every partition.

Letters used in every docstring here:
  R  rows    H  their width    m  rows of a tile, up to 128    g  tiles of a block
A block is a tile [m, g, H]: row i of the block lies in partition i // g, so each partition holds g rows that lie side
by side in memory, and one long run of bytes is moved for it. Where a row is too long for SBUF to hold several, it is
treated in parts of columns (low, high), which are loaded again each time they are needed: then g is 1.
"""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import column, fetch, spans

BLOCK_BYTES = 8192  # of a partition's share of a block: long runs for the DMA, short first and last steps
ROW_BYTES = 32768  # the longest row that is kept whole
PART = 2048  # columns of a part of a longer one


def parts(width: int, itemsize: int) -> list[Any]:
    """The columns as pairs (low, high): one pair if rows of elements of this size are short enough."""
    return spans(width, width if width * itemsize <= ROW_BYTES else PART)


def largest(*tensors: Any) -> int:
    """Bytes of an element of the tensor with the widest type; some may be None."""
    return max(t.dtype.itemsize for t in tensors if t is not None)


def blocks(rows: int, width: int, itemsize: int) -> list[Any]:
    """The rows as triples (start, m, g). The first and the last are one tile high: less to wait for."""
    side = nl.tile_size.pmax
    most = max(1, BLOCK_BYTES // (width * itemsize))
    result, start = [], 0
    while start < rows:
        left = (rows - start) // side
        g = 1 if start == 0 or left <= 2 else min(most, left - 2)
        m = min(side, rows - start)
        result.append((start, m, g))
        start += m * g
    return result


def rows_of(matrix: Any, block: Any, part: Any) -> Any:
    """Rows of a block and columns of a part, as a view [m, g, n]. Dimensions: matrix [R, H] in HBM."""
    start, m, g = block
    return matrix[start : start + m * g, part[0] : part[1]].reshape_dim(0, (m, g))


class Rows:
    """The rows of a block in SBUF, by parts.

    Dimensions: matrix [R, H] in HBM; parts [m, g, n]. With `added` [R, H], they are sums with its rows, which are
    stored in `sums` [R, H] when they are made.
    """

    def __init__(
        self, matrix: Any, block: Any, columns: list[Any], added: Any = None, sums: Any = None
    ) -> None:
        self.matrix = matrix
        self.block = block
        self.columns = columns
        self.added = added
        self.sums = sums
        self.made = set()
        self.held = {}

    def part(self, part: Any) -> Any:
        """One of the parts; loaded anew each time if there are several."""
        if part in self.held:
            return self.held[part]
        if self.added is None:
            tile = self.load(self.matrix, part)
        elif part in self.made:
            tile = self.load(self.sums, part)
        else:
            left, right = self.load(self.matrix, part), self.load(self.added, part)
            tile = nl.ndarray(left.shape, dtype=self.matrix.dtype, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=tile, data1=left, data2=right, op=nl.add)
            nisa.dma_copy(dst=rows_of(self.sums, self.block, part), src=tile)
            self.made.add(part)
        if len(self.columns) == 1:
            self.held[part] = tile
        return tile

    def load(self, matrix: Any, part: Any) -> Any:
        """The same rows and columns of any matrix."""
        source = rows_of(matrix, self.block, part)
        tile = nl.ndarray(source.shape, dtype=matrix.dtype, buffer=nl.sbuf)
        fetch(dst=tile, src=source)
        return tile


class Shared:
    """A vector of HBM, plus `offset`, the same in every partition, by parts. Dimensions: vector [H] or None."""

    def __init__(self, vector: Any, columns: list[Any], offset: float = 0.0) -> None:
        self.vector = vector
        self.columns = columns
        self.offset = offset
        self.held = {}

    def part(self, part: Any, m: int) -> Any:
        """One of the parts [m, n]; None if there is no vector. The only one is loaded once, when first asked for."""
        if self.vector is None:
            return None
        tile = self.held[part] if part in self.held else self.load(part)
        if len(self.columns) == 1:
            self.held[part] = tile
        return tile[:m, :]

    def load(self, part: Any) -> Any:
        """A part [128, n] in the vector's type, or float32 if there is something to add."""
        side = nl.tile_size.pmax
        row = self.vector[part[0] : part[1]]
        tile = nl.ndarray((side, row.shape[0]), dtype=row.dtype, buffer=nl.sbuf)
        fetch(dst=tile, src=row.expand_dim(0).broadcast(0, side))
        if self.offset == 0.0:
            return tile
        shifted = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=shifted, data=tile, op0=nl.add, operand0=self.offset)
        return shifted


class Late:
    """Calls made one late: each engine finds work of the next tile while another finishes the last one."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.waiting = []

    def call(self, *arguments: Any) -> None:
        """Make the call before this one."""
        self.finish()
        self.waiting.append(arguments)

    def finish(self) -> None:
        """Make the last call."""
        while self.waiting:
            self.function(*self.waiting.pop(0))


def filled(value: float) -> Any:
    """A column of one value in every partition: on trn1 a bias of the Scalar engine must be one. -> [128, 1]."""
    tile = column(nl.tile_size.pmax)
    nisa.memset(dst=tile, value=value)
    return tile


def row_sum(dst: Any, data: Any, op: Any, bias: Any, part: Any, columns: list[Any]) -> None:
    """dst = the sum of op(data + bias) along each row, on the Scalar engine, after the last of the columns' parts.

    Dimensions: dst [m, 1], data [m, n], the columns `part` of the rows, bias [m, 1] or None.
    """
    thrown_away = nl.ndarray((data.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(
        dst=thrown_away.broadcast(1, data.shape[1]),
        op=op,
        data=data,
        bias=bias,
        reduce_op=nl.add,
        reduce_res=dst if part == columns[-1] else None,
        reduce_cmd=nisa.reduce_cmd.reset_reduce if part == columns[0] else nisa.reduce_cmd.reduce,
    )


def row_sums(dst: Any, source: Any, i: int, op: Any, bias: Any = None) -> None:
    """The same of whole rows, those of the i-th tile of a block. Dimensions: dst [m, 1], source, Rows."""
    for part in source.columns:
        row_sum(dst, source.part(part)[:, i, :], op, bias, part, source.columns)
