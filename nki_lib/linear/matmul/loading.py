"""The factors of a product on their way from HBM: both are needed with the contracted axis on the partitions.

Letters:  F  the free axis of a factor, f of it in one panel, up to 512
          K  the contracted axis, k of it in one panel, up to 512: four slabs of 128 partitions
"""

from __future__ import annotations

from typing import Any

import nki.language as nl
from nki_lib.common.tiles import fetch, load_by_partition, transpose_blocks

KEPT_SHARE = 2  # at most 1/KEPT_SHARE of SBUF holds panels that serve again; the rest is for tiles in flight


class Factor:
    """A factor of a product, of which panels are loaded.

    Dimensions: matrix [K, F] in HBM if the contracted axis leads in memory, which is how the Tensor engine wants it,
    else [F, K], which is transposed on the way. A panel is a list of slabs [up to 128 of k, f] in SBUF.
    """

    def __init__(self, matrix: Any, leading: bool) -> None:
        self.matrix = matrix
        self.leading = leading
        self.dtype = matrix.dtype
        self.depth, self.width = matrix.shape if leading else (matrix.shape[1], matrix.shape[0])

    def panel(self, depths: Any, span: Any) -> list[Any]:
        """The slabs of K from depths[0] to depths[1] - 1 and F from span[0] to span[1] - 1."""
        if not self.leading:
            rows = load_by_partition(self.matrix[span[0] : span[1], depths[0] : depths[1]])
            return transpose_blocks(rows, span[1] - span[0])
        tile = load_by_partition(self.matrix[depths[0] : depths[1], span[0] : span[1]])
        side, count = nl.tile_size.pmax, depths[1] - depths[0]
        return [tile[: min(side, count - i * side), i, :] for i in range(tile.shape[1])]


class Kept:
    """Panels of the left factor: if those of one row block fit into SBUF, its other column blocks find them there."""

    def __init__(self, factor: Any) -> None:
        self.factor = factor
        self.depth, self.width = factor.depth, factor.width
        slabs = -(-self.depth // nl.tile_size.pmax)
        per_partition = slabs * nl.tile_size.psum_bank_fmax * factor.dtype.itemsize
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
