"""What a query's softmax starts from (sinks) and what it leaves for the backward pass (log sum exp)."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.attention.flash_attention.loading import repeat_row
from nki_lib.attention.flash_attention.masking import LARGEST
from nki_lib.attention.flash_attention.order import Tile

SMALLEST = 2.0**-126  # normal number of float32; changes no sum of weights but 0


class Sinks:
    """A score more for each head, which no value belongs to: every softmax starts as if it had seen it.

    Dimensions: sinks [G] in HBM; `low` and `total` give columns [m, 1]: minus the sink, and its weight, 1. A sink of
    -inf is none: its weight is 0.
    """

    def __init__(self, sinks: Any) -> None:
        rows = repeat_row(sinks.expand_dim(0))
        self.lows = nl.ndarray(rows.shape, dtype=nl.float32, buffer=nl.sbuf)
        self.totals = nl.ndarray(rows.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(
            dst=self.lows, data=rows, op0=nl.multiply, operand0=-1.0, op1=nl.minimum, operand1=LARGEST
        )
        nisa.tensor_tensor(dst=self.totals, data1=rows, data2=self.lows, op=nl.add)
        nisa.activation(dst=self.totals, op=nl.exp, data=self.totals)

    def low(self, tile: Tile) -> Any:
        """The column that `weigh` starts from."""
        return self.lows[: tile.stop - tile.start, tile.head : tile.head + 1]

    def total(self, tile: Tile) -> Any:
        """The column that `accumulate` starts from."""
        return self.totals[: tile.stop - tile.start, tile.head : tile.head + 1]


class LogSumExp:
    """log(total) - low of every query, collected until the end, so that there is one logarithm for all tiles.

    Dimensions: a column of [128, tiles] for each tile; `store` returns [tiles, 128] in HBM.
    """

    def __init__(self, tiles: int) -> None:
        side = nl.tile_size.pmax
        self.lows = nl.ndarray((side, tiles), dtype=nl.float32, buffer=nl.sbuf)
        self.totals = nl.ndarray((side, tiles), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=self.lows, value=0.0)
        nisa.memset(dst=self.totals, value=1.0)

    def keep(self, tile: Tile) -> None:
        """Remember a finished tile."""
        m = tile.stop - tile.start
        column = slice(tile.index, tile.index + 1)
        nisa.tensor_copy(dst=self.lows[:m, column], src=tile.low)
        nisa.tensor_copy(dst=self.totals[:m, column], src=tile.total)

    def store(self) -> Any:
        """[tiles, 128] in HBM, through a transpose on the Tensor engine."""
        side, tiles = self.lows.shape
        out = nl.ndarray((tiles, side), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.activation(dst=self.totals, op=nl.log, data=self.totals)
        nisa.tensor_tensor(dst=self.totals, data1=self.totals, data2=self.lows, op=nl.subtract)
        for first in range(0, tiles, side):
            stop = min(first + side, tiles)
            turned = nl.ndarray((stop - first, side), dtype=nl.float32, buffer=nl.psum)
            rows = nl.ndarray(turned.shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.nc_transpose(dst=turned, data=self.totals[:, first:stop])
            nisa.tensor_copy(dst=rows, src=turned)
            nisa.dma_copy(dst=out[first:stop, :], src=rows)
        return out
