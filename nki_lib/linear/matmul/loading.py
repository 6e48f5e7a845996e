"""The factors of a product on their way from HBM: both are needed with the contracted axis on the partitions.

Letters:  F  the free axis of a factor, f of it in one panel
          K  the contracted axis, k of it in one panel: blocks of 128 partitions, each with g neighbours of K
"""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import load, load_by_partition

KEPT_SHARE = 2  # at most 1/KEPT_SHARE of SBUF holds panels that serve again; the rest is for tiles in flight
DMA_TRANSPOSE_LEAST = 512  # rows: fewer are not worth the start of a DMA, the Tensor engine transposes them
DMA_TRANSPOSE_WORD = 2  # bytes


class Factor:
    """A factor of a product, of which panels are loaded.

    Dimensions: matrix [K, F] in HBM if the contracted axis leads in memory, which is how the Tensor engine wants it,
    else [F, K], which is transposed on the way: by the DMA engines, or small ones by the Tensor engine. A panel is a
    list of slabs [up to 128 of k, f] in SBUF of `dtype`, by default that of the matrix.

    group: how many neighbours of K lie on one partition. Any order of K serves, if both factors have the same one.
    With 2, two 8-bit numbers are moved as one 16-bit number, which the DMA engines can transpose; with `double`, the
    two are one slab [128, 2, f], as the Tensor engine takes them at double rate. K is then even.
    """

    def __init__(
        self, matrix: Any, leading: bool, dtype: Any = None, group: int = 1, double: bool = False
    ) -> None:
        self.matrix = matrix
        self.leading = leading
        self.dtype = matrix.dtype if dtype is None else dtype
        self.group = group
        self.double = double
        self.depth, self.width = matrix.shape if leading else (matrix.shape[1], matrix.shape[0])
        self.by_dma = not leading and self.transposable()

    def transposable(self) -> bool:
        """Whether the DMA engines can transpose the matrix: not on trn1, where that is slow; in words of 2 bytes.

        They could do 4 bytes too; but products of float32 take so long that the transposes beside them matter little.
        """
        word = self.matrix.dtype.itemsize * (1 if self.matrix.dtype.itemsize > 1 else self.group)
        paired_words = self.group > 1 and self.matrix.dtype.itemsize > 1
        fast = nisa.get_nc_version() > nisa.nc_version.gen2
        return fast and word == DMA_TRANSPOSE_WORD and not paired_words

    def panel(self, depths: Any, span: Any) -> list[Any]:
        """The slabs of K from depths[0] to depths[1] - 1 and F from span[0] to span[1] - 1."""
        side, slabs = nl.tile_size.pmax * self.group, []
        full = depths[0] + (depths[1] - depths[0]) // side * side
        for first, stop in ((depths[0], full), (full, depths[1])):
            for block in self.blocks(first, stop, span) if first < stop else []:
                slabs += [block] if self.double else [block[:, j, :] for j in range(self.group)]
        return slabs

    def blocks(self, first: int, stop: int, span: Any) -> list[Any]:
        """K from first to stop - 1, whole blocks or part of one. Dimensions: -> blocks [up to 128, g, f]."""
        if self.leading:
            tile = load_groups(self.matrix[first:stop, span[0] : span[1]], self.group)
            tile = widened(tile, self.dtype, (stop - first) // self.group)
        elif self.by_dma and span[1] - span[0] >= DMA_TRANSPOSE_LEAST:
            tile = self.transposed(first, stop, span)
        else:
            count = span[1] - span[0]
            rows = widened(load_by_partition(self.matrix[span[0] : span[1], first:stop]), self.dtype, count)
            return transposed_on_chip(rows, count, self.group)
        return [tile[:, block, :, :] for block in range(tile.shape[1])]

    def transposed(self, first: int, stop: int, span: Any) -> Any:
        """The same by a DMA, all blocks in one tile. Dimensions: -> [up to 128, blocks, g, f].

        The neighbours lie side by side in memory: they are widened like that, as copies of what is contiguous are
        faster, and the Tensor engine finds them at a stride of two.
        """
        words = self.matrix if self.group == 1 else self.matrix.view(nl.uint16)
        source = words[span[0] : span[1], first // self.group : stop // self.group]
        source = source.reshape_dim(1, (-1, min(nl.tile_size.pmax, source.shape[1])))
        tile = nl.ndarray(tuple(reversed(source.shape)), dtype=words.dtype, buffer=nl.sbuf)
        nisa.dma_transpose(dst=tile, src=source)
        count = (stop - first) // self.group
        tile = widened(tile.view(self.matrix.dtype), self.dtype, count)
        return tile.reshape_dim(2, (-1, self.group)).permute((0, 1, 3, 2))


class Kept:
    """Panels of the left factor: if those of one row block fit into SBUF, its other column blocks find them there."""

    def __init__(self, factor: Any) -> None:
        self.factor = factor
        self.depth, self.width = factor.depth, factor.width
        slabs = -(-self.depth // nl.tile_size.pmax)
        per_partition = slabs * min(nl.tile_size.psum_bank_fmax, self.width) * factor.dtype.itemsize
        self.fit = per_partition * KEPT_SHARE <= nl.tile_size.sbuf_fmax_bytes
        self.span = None
        self.held = {}

    def panel(self, depths: Any, span: Any) -> list[Any]:
        """The same slabs as the factor's."""
        if not self.fit:
            return self.factor.panel(depths, span)
        if span != self.span:
            self.span, self.held = span, {}
        if depths[0] not in self.held:
            self.held[depths[0]] = self.factor.panel(depths, span)
        return self.held[depths[0]]


def load_groups(rows: Any, group: int) -> Any:
    """Rows [c, f] in HBM, whole blocks of 128 g or a part of one, as [c / blocks / g, blocks, g, f].

    Partition p of a block holds its rows g p ... g p + g - 1.
    """
    side = nl.tile_size.pmax
    source = rows.reshape_dim(0, (-1, min(side, rows.shape[0] // group), group)).permute((1, 0, 2, 3))
    return load(source)


def transposed_on_chip(rows: Any, count: int, group: int) -> list[Any]:
    """Rows of a factor in SBUF, transposed on the Tensor engine, one bank of PSUM at a time.

    Dimensions: rows [128, count / 128, k], row r on partition r % 128 -> blocks [up to 128, g, count].
    """
    side, bank, result = nl.tile_size.pmax, nl.tile_size.psum_bank_fmax, []
    for start in range(0, rows.shape[2], side * group):
        depth = min(side, (rows.shape[2] - start) // group)
        taken = rows[:, :, start : start + depth * group].reshape_dim(2, (depth, group))
        tile = nl.ndarray((depth, group, count), dtype=rows.dtype, buffer=nl.sbuf)
        for j in range(group):
            for low in range(0, count, bank):
                high = min(low + bank, count)
                in_psum = nl.ndarray((depth, high - low), dtype=rows.dtype, buffer=nl.psum)
                for first in range(low, high, side):
                    stop = min(first + side, high)
                    mine = taken[: stop - first, first // side, :, j]
                    nisa.nc_transpose(dst=in_psum[:, first - low : stop - low], data=mine)
                nisa.tensor_copy(dst=tile[:, j, low:high], src=in_psum)
        result.append(tile)
    return result


def widened(tile: Any, dtype: Any, count: int) -> Any:
    """The same numbers as `dtype`, half of them by the Vector and half by the Scalar engine; the tile if it is of it.

    Dimensions: tile [p, blocks, ...], of whose p * blocks places the first `count` are filled, block by block.
    """
    if tile.dtype == dtype:
        return tile
    result = nl.ndarray(tile.shape, dtype=dtype, buffer=nl.sbuf)
    for block in range(tile.shape[1]):
        p = min(tile.shape[0], count - block * tile.shape[0])
        if block % 2 == 0:
            nisa.tensor_copy(dst=result[:p, block], src=tile[:p, block])
        else:
            nisa.activation(dst=result[:p, block], op=nl.copy, data=tile[:p, block])
    return result
