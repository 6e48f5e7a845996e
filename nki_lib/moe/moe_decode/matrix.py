"""Weights as the Tensor engine takes them: as they are, or widened on chip from a narrow format.

Letters:  R  rows of weights in memory, r of them in a piece    F  columns, f of them in a chunk
Rows lie along the contracted axis: a row holds one element of each column, or two in fp4 (`packed`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import spans
from nki_lib.moe.moe_decode.loading import load_rows
from nki_lib.moe.widening import multiply_scales, place_codes
from nki_lib.quantization.formats import BLOCK

PIECE_BYTES = 12288  # of a partition filled by one DMA: long runs, and several of them to an expert


@dataclass(frozen=True)
class Matrix:
    """Weights in HBM.

    elements [R, ...], F in each row. scales [R * packed / 32, ...] float8_e8m0fnu for MX, else None; spread, what
    repeats them, see `make_spread`. dtype: what the Tensor engine gets.
    """

    elements: Any
    dtype: Any
    scales: Any = None
    spread: Any = None

    @property
    def packed(self) -> int:
        """Elements in a byte."""
        return packed_in(self.elements.dtype)

    def load(self, low: int, high: int) -> Any:
        """Rows low to high - 1 as [128, slabs, F], in the order of `loading.slabs`."""
        stored = load_rows(self.elements[low:high], self.elements.dtype)
        if self.packed == 2:
            stored = widen_fp4(stored, self.dtype, high - low)
        elif stored.dtype == self.dtype:
            return stored
        tile = nl.ndarray(stored.shape, dtype=self.dtype, buffer=nl.sbuf)
        if self.scales is None:
            widen(tile, stored, high - low)
        else:
            self.scale_blocks(tile, stored, low, high)
        return tile

    def scale_blocks(self, tile: Any, stored: Any, low: int, high: int) -> None:
        """tile = elements times the scales of their blocks. Dimensions: tile, stored [128, slabs, F].

        The Tensor engine repeats the scale of a block on the partitions of its 32 elements, exactly.
        """
        side, width = nl.tile_size.pmax, tile.shape[2]
        scales = self.scales[low * self.packed // BLOCK : high * self.packed // BLOCK]
        narrow = load_rows(scales, self.spread.dtype)[:, 0, :]
        blocks = narrow.shape[0]
        for row, stop in spans(high - low, side):
            for first, last in spans(width, nl.tile_size.psum_bank_fmax):
                wide = nl.ndarray((stop - row, last - first), dtype=nl.float32, buffer=nl.psum)
                nisa.nc_matmul(
                    dst=wide, stationary=self.spread[:blocks, row:stop], moving=narrow[:, first:last]
                )
                for slab in range(row // side * self.packed, (row // side + 1) * self.packed):
                    place = (slice(0, stop - row), slab, slice(first, last))
                    multiply_scales(tile[place], stored[place], wide, self.packed)


def widen(tile: Any, stored: Any, rows: int) -> None:
    """tile = fp8 elements; Vector and Scalar engines take turns. Dimensions: tile, stored [128, slabs, F]."""
    for slab, (row, stop) in enumerate(spans(rows, nl.tile_size.pmax)):
        dst, src = (t[: stop - row, slab, :] for t in (tile, stored))
        if slab % 2:
            nisa.activation(dst=dst, op=nl.copy, data=src)
        else:
            nisa.tensor_copy(dst=dst, src=src, engine=nisa.engine.vector)


def widen_fp4(data: Any, dtype: Any, rows: int) -> Any:
    """Elements two in a byte as [128, 2 * blocks, F], low halves before high ones, times 2^-126.

    Dimensions: data uint8 [128, blocks, F]; `rows` of them are there.
    """
    side, blocks, width = data.shape
    word = nl.uint32 if dtype == nl.float32 else nl.uint16
    result = nl.ndarray((side, 2 * blocks, width), dtype=dtype, buffer=nl.sbuf)
    for block in range(blocks):
        count = min(nl.tile_size.pmax, rows - block * nl.tile_size.pmax)
        for half in range(2):
            bits = result[:count, 2 * block + half, :].view(word)
            place_codes(bits, data[:count, block, :], half)
    return result


def make_spread(rows: int, packed: int, dtype: Any) -> Any:
    """[R * packed / 32, R] of 1 where the block (row) is that of the row of weights (column), else 0."""
    share = BLOCK // packed
    shape = (rows // share, rows)
    behind, result = (nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf) for _ in range(2))
    nisa.iota(dst=behind, pattern=[[1, rows]], offset=0, channel_multiplier=-share)
    nisa.tensor_scalar(dst=result, data=behind, op0=nl.greater_equal, operand0=0.0)
    spread = nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)
    nisa.scalar_tensor_tensor(
        dst=spread, data=behind, op0=nl.less, operand0=float(share), op1=nl.multiply, operand1=result
    )
    return spread


def packed_in(dtype: Any) -> int:
    """Elements of weights in one of the dtype."""
    return 2 if dtype == nl.uint8 else 1


def engine_dtype(weights: Any, tokens: Any, scaled_blocks: bool) -> Any:
    """What weights become for a product with tokens: nothing else, or a type that holds them exactly.

    float32 goes with float32 only. fp8 is taken as it is, e4m3fn from trn3 on.
    """
    if weights == tokens or tokens == nl.float32:
        return tokens
    native = weights == nl.float8_e5m2 or nisa.get_nc_version() > nisa.nc_version.gen3
    return weights if native and not scaled_blocks else nl.bfloat16


def rows_of_a_piece(width: int, dtype: Any, packed: int, blocks: bool) -> int:
    """How many rows of `width` columns one DMA loads: whole tiles of 128, of scales at most as many as partitions."""
    side = nl.tile_size.pmax
    tiles = max(1, PIECE_BYTES // (width * packed * dtype.itemsize))
    return side * (min(tiles, BLOCK // packed) if blocks else tiles)
