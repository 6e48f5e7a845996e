"""The gradient of the bias inside the backward kernel: that of every score, where the bias was added to it.

A launch stores it for each of its queries and keys, whatever the shape of the bias. `launches.py` sums it over the
dimensions in which the bias was repeated: some of them, the batch and often the heads, span several launches, so that
the host has to add in any case, and one place for all sums is simpler than two.
"""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.attention.flash_attention.order import Tile
from nki_lib.common.tiles import fetch


class BiasGradient:
    """What leaves the kernel, as float32. Dimensions: out [G, Sq, Sk] in HBM."""

    def __init__(self, heads: int, queries: int, keys: int) -> None:
        self.out = nl.ndarray((heads, queries, keys), dtype=nl.float32, buffer=nl.shared_hbm)

    def rows(self, tile: Tile) -> Any:
        """The rows [m, Sk] of a tile of queries."""
        return self.out[tile.head, tile.start : tile.stop, :]

    def store(self, tile: Tile, start: int, dweights: Any, shift: Any, weights: Any) -> None:
        """The gradient of the scores of a tile and the keys from `start` on.

        Dimensions: dweights, weights [m, n], shift [m, 1].

        Pseudocode:
            out[queries of the tile, start : start + n] = (dweights - shift) * weights

        The kernel's own dscores will not do: they are rounded to the tensors' dtype, and what a soft cap changes of
        them is in place, which would have to wait for this store.
        """
        exact = score_gradient(dweights, shift, weights, nl.float32)
        nisa.dma_copy(dst=self.rows(tile)[:, start : start + exact.shape[1]], src=exact)

    def clear(self, tiles: list[Tile]) -> None:
        """Zeros where no pair of a tile and a chunk stores anything: keys after the diagonal or before the window.

        Dimensions: zeros [128, 512], as many columns at a time as a chunk has. Nothing waits for them, and the queue of
        the loads has nothing to do any more while the last stores are under way: so they are started there.
        """
        keys, width = self.out.shape[2], nl.tile_size.psum_bank_fmax
        zeros = None
        for tile in tiles:
            low, high = tile.span(0, keys)
            low = min(low, keys)
            for first, stop in ((0, low), (max(low, high), keys)):
                for start in range(first, stop, width):
                    if zeros is None:
                        zeros = nl.ndarray((nl.tile_size.pmax, width), dtype=nl.float32, buffer=nl.sbuf)
                        nisa.memset(dst=zeros, value=0.0)
                    window = self.rows(tile)[:, start : min(start + width, stop)]
                    fetch(dst=window, src=zeros[: window.shape[0], : window.shape[1]])


def score_gradient(dweights: Any, shift: Any, weights: Any, dtype: Any) -> Any:
    """(dweights - shift) * weights. Dimensions: dweights, weights [m, n], shift [m, 1] -> [m, n]."""
    dscores = nl.ndarray(weights.shape, dtype=dtype, buffer=nl.sbuf)
    nisa.scalar_tensor_tensor(
        dst=dscores, data=dweights, op0=nl.subtract, operand0=shift, op1=nl.multiply, operand1=weights
    )
    return dscores
