"""Queries, keys and values from rows of hidden states: normalise, multiply, add the bias, rotate, in one kernel.

Letters used in every docstring here:
  R  rows: a position of a batch element each, m of them in a tile, up to 128
  K  width of the model      N  all heads side by side: queries, keys, values; n of them in a block, up to 512
  D  head dimension          W  width of the rotation's tables: D or D/2
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.attention.qkv_projection.normalising import NormalisedRows
from nki_lib.attention.rope.kernel import rotate
from nki_lib.common.tiles import load, load_row, spans
from nki_lib.linear.matmul.kernel import TILES_PER_BLOCK, add_up, multiply_block, row_blocks, store_sum
from nki_lib.linear.matmul.loading import Factor, Kept


@nki.jit
def qkv_projection(
    x: Any,
    cos: Any,
    sin: Any,
    weight: Any,
    bias: Any,
    norm_weight: Any,
    eps: float,
    depth: int,
    rotated: int,
    interleaved: bool,
) -> Any:
    """rotated(normalised(x) weight^T + bias), where each of the three is left out if its tensors are None.

    Dimensions: x [R, K], cos, sin [R, W], weight [N, K], bias [N], norm_weight [K] -> [R, N]. The first `rotated`
    columns, heads of D = `depth`, are rotated: queries and keys. Sums are float32; x is rounded to its type once
    normalised, the result once at the end.

    Pseudocode:
        for each block of 512 rows:
            load its rows of the tables
            for each block of whole heads, up to 512 columns:
                multiply the normalised rows into PSUM; load the block's part of the bias
                for each of its tiles: add, rotate queries and keys, store
    """
    left = Kept(Factor(x, False) if norm_weight is None else NormalisedRows(x, norm_weight, eps))
    right = Factor(weight, False)
    out = nl.ndarray((left.width, right.width), dtype=x.dtype, buffer=nl.shared_hbm)
    rotation = None if cos is None else Rotation(cos, sin, depth, rotated, interleaved)
    bank = nl.tile_size.psum_bank_fmax
    step = bank if rotation is None else bank // depth * depth
    for rows in row_blocks(left.width):
        for first, last in spans(right.width, step):
            added = (
                None
                if bias is None
                else load_row(bias[first:last], min(rows[1] - rows[0], nl.tile_size.pmax))
            )
            for start, stop, total in multiply_block(left, right, rows, (first, last)):
                terms = [total] if bias is None else [total, added[: stop - start, :]]
                target = out[start:stop, first:last]
                if rotation is None or first >= rotated:
                    store_sum(target, terms)
                else:
                    rotation.store(target, terms, start, first)
    return out


class Rotation:
    """How the first columns are rotated. Dimensions: cos, sin [R, W] in HBM; heads of `depth` columns."""

    def __init__(self, cos: Any, sin: Any, depth: int, columns: int, interleaved: bool) -> None:
        self.cos = cos
        self.sin = sin
        self.depth = depth
        self.columns = columns
        self.interleaved = interleaved
        self.held = {}

    def tables(self, start: int, stop: int) -> Any:
        """The rows `start` ... `stop - 1` of both tables in SBUF, kept while one block of rows is worked on."""
        if start not in self.held:
            if len(self.held) == TILES_PER_BLOCK:
                self.held.pop(next(iter(self.held)))
            self.held[start] = (load(self.cos[start:stop, :]), load(self.sin[start:stop, :]))
        return self.held[start]

    def store(self, out: Any, terms: list[Any], start: int, first: int) -> None:
        """out = the sum of the terms, rotated as far as there are columns to rotate, rounded once.

        Dimensions: out [m, n] in HBM, terms [m, n]; `start` is the first row, `first` the first column of the tile.
        """
        m, n = out.shape
        count = min(self.columns - first, n)
        total = add_up(terms)
        result = nl.ndarray((m, n), dtype=out.dtype, buffer=nl.sbuf)
        cos, sin = self.tables(start, start + m)
        heads = (count // self.depth, self.depth)
        turned, straight = result[:, :count].reshape_dim(1, heads), total[:, :count].reshape_dim(1, heads)
        rotate(turned, straight, cos, sin, self.interleaved)
        if count < n:
            nisa.tensor_copy(dst=result[:, count:], src=total[:, count:])
        nisa.dma_copy(dst=out, src=result)
