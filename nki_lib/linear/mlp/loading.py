"""What the MLP multiplies, on its way from HBM: the contracted axis has to lie on the partitions.

Letters:  F  the free axis of a factor, f of it at a time    K  the contracted axis, in slabs of up to 128
"""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import fetch, load_by_partition, spans, transpose_blocks
from nki_lib.norm import blocks
from nki_lib.norm.layer_norm.kernel import apply, statistics
from nki_lib.norm.rms_norm.kernel import inverse_roots, scale_row

DEPTH = 1024  # of the contracted axis that is loaded at a time


def panels(depth: int) -> list[Any]:
    """The contracted axis as pairs (start, stop), each of whole slabs."""
    return spans(depth, DEPTH)


def slabs(matrix: Any, dtype: Any) -> list[Any]:
    """The transpose of a matrix as slabs [up to 128 of K, F] of `dtype` in SBUF. Dimensions: matrix [F, K] in HBM.

    The DMA engines transpose on the way, at nine tenths of their usual rate; on trn1, where that is slow, and of 8
    bits, which they do not transpose, the Tensor engine does.
    """
    width, depth = matrix.shape
    if matrix.dtype != dtype:
        return transpose_blocks(widened(load_by_partition(matrix), width, dtype), width)
    if nisa.get_nc_version() == nisa.nc_version.gen2:
        return transpose_blocks(load_by_partition(matrix), width)
    side = nl.tile_size.pmax
    full, rest = divmod(depth, side)
    result = []
    if full:
        tile = nl.ndarray((side, full, width), dtype=matrix.dtype, buffer=nl.sbuf)
        source = matrix[:, : full * side].reshape_dim(1, (full, side))
        nisa.dma_transpose(dst=tile, src=source, axes=(2, 1, 0))
        result = [tile[:, i, :] for i in range(full)]
    if rest:
        tile = nl.ndarray((rest, width), dtype=matrix.dtype, buffer=nl.sbuf)
        nisa.dma_transpose(dst=tile, src=matrix[:, full * side :], axes=(1, 0))
        result.append(tile)
    return result


def widened(tile: Any, count: int, dtype: Any) -> Any:
    """The same in another type. Dimensions: tile [128, F/128, K], of which `count` rows are there -> the same."""
    result = nl.ndarray(tile.shape, dtype=dtype, buffer=nl.sbuf)
    full = count // nl.tile_size.pmax
    rest = count - full * nl.tile_size.pmax
    if full:
        nisa.tensor_copy(dst=result[:, :full, :], src=tile[:, :full, :])
    if rest:
        nisa.tensor_copy(dst=result[:rest, full:, :], src=tile[:rest, full:, :])
    return result


def columns_of(vector: Any) -> Any:
    """A vector [K] of HBM with element k in partition k % 128. Dimensions: -> [128, K/128]; None of None."""
    if vector is None:
        return None
    side = nl.tile_size.pmax
    count = vector.shape[0]
    tile = nl.ndarray((min(side, count), -(-count // side)), dtype=vector.dtype, buffer=nl.sbuf)
    full, rest = divmod(count, side)
    if full:
        fetch(dst=tile[:, :full], src=vector[: full * side].reshape_dim(0, (full, side)).permute((1, 0)))
    if rest:
        fetch(dst=tile[:rest, full : full + 1], src=vector[full * side :].expand_dim(1))
    return tile


class Norm:
    """The norm before the product: "rms" or "layer", with weight, and offset or bias. Vectors [H] in HBM or None."""

    def __init__(self, kind: str, weight: Any, bias: Any, eps: float, offset: float) -> None:
        self.kind = kind
        self.weight = weight
        self.bias = bias
        self.small = blocks.filled(eps)
        self.offset = offset

    def slabs(self, x: Any, start: int, stop: int) -> list[Any]:
        """Rows start ... stop - 1, normalised, rounded to the type of x, transposed: slabs [up to 128 of H, rows]."""
        width = x.shape[1]
        columns = spans(width, blocks.PART)
        factors = blocks.Shared(self.weight, columns, self.offset)
        shifts = blocks.Shared(self.bias, columns)
        result = [self.space(x, low, stop - start) for low in range(0, width, nl.tile_size.pmax)]
        for first in range(start, stop, nl.tile_size.pmax):
            m = min(nl.tile_size.pmax, stop - first)
            source = blocks.Rows(x, (first, m, 1), columns)
            if self.kind == "rms":
                measured = (inverse_roots(source, self.small, width),)
            else:
                measured = statistics(source, self.small, width)
            for part in columns:
                tile = source.part(part)[:, 0, :]
                normal = nl.ndarray((m, 1, tile.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
                if self.kind == "rms":
                    scale_row(normal[:, 0, :], tile, *measured, factors.part(part, m))
                else:
                    apply(normal[:, 0, :], tile, *measured, factors.part(part, m), shifts.part(part, m))
                found = transpose_blocks(normal, m)
                for i in range(len(found)):
                    mine = result[part[0] // nl.tile_size.pmax + i]
                    nisa.tensor_copy(dst=mine[:, first - start : first - start + m], src=found[i])
        return result

    def space(self, x: Any, low: int, rows: int) -> Any:
        """A new slab. Dimensions: -> [up to 128 of H, rows]."""
        height = min(nl.tile_size.pmax, x.shape[1] - low)
        return nl.ndarray((height, rows), dtype=x.dtype, buffer=nl.sbuf)
