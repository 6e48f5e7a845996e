"""Steps that the gradients of the norms' rows share. Letters and blocks: see `blocks.py`."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import column, fetch
from nki_lib.norm.blocks import rows_of


class Weighted:
    """g, the gradient of the result times the weight, by tiles and parts.

    Dimensions: slopes, Rows of the gradient; factors, Shared -> [m, n] float32, or a view of slopes without a weight.
    """

    def __init__(self, slopes: Any, factors: Any) -> None:
        self.slopes = slopes
        self.factors = factors
        self.held = {}

    def part(self, part: Any, i: int) -> Any:
        """Columns of the i-th tile of the block."""
        if i in self.held:
            return self.held[i]
        slope = self.slopes.part(part)[:, i, :]
        factor = self.factors.part(part, slope.shape[0])
        if factor is None:
            return slope
        result = nl.ndarray(slope.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=result, data1=slope, data2=factor, op=nl.multiply)
        if len(self.slopes.columns) == 1:
            self.held[i] = result
        return result


def times_square(data: Any, scale: Any, factor: float) -> Any:
    """data * scale^2 * factor. Dimensions: [m, 1] each."""
    once, twice = column(data.shape[0]), column(data.shape[0])
    nisa.scalar_tensor_tensor(
        dst=once, data=data, op0=nl.multiply, operand0=factor, op1=nl.multiply, operand1=scale
    )
    nisa.tensor_tensor(dst=twice, data1=once, data2=scale, op=nl.multiply)
    return twice


def store_gradient(out: Any, added: Any, source: Any, slopes: Any, i: int, columns: Any) -> None:
    """The i-th tile of a block of `out` becomes (x * pull + g + shift) * scale, plus that of `added` if any.

    Dimensions: out, added [R, H] in HBM; source, Rows of x; slopes, Weighted; columns, scale, pull and shift [m, 1],
    the last one may be None.
    """
    scale, pull, shift = columns
    for part in source.columns:
        tile, g = source.part(part)[:, i, :], slopes.part(part, i)
        across = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.scalar_tensor_tensor(
            dst=across, data=tile, op0=nl.multiply, operand0=pull, op1=nl.add, operand1=g
        )
        if shift is not None:
            nisa.tensor_scalar(dst=across, data=across, op0=nl.add, operand0=shift)
        result = nl.ndarray(tile.shape, dtype=out.dtype, buffer=nl.sbuf)
        if added is None:
            nisa.activation(dst=result, op=nl.copy, data=across, scale=scale)
        else:
            other = nl.ndarray(tile.shape, dtype=added.dtype, buffer=nl.sbuf)
            fetch(dst=other, src=rows_of(added, source.block, part)[:, i, :])
            nisa.scalar_tensor_tensor(
                dst=result, data=across, op0=nl.multiply, operand0=scale, op1=nl.add, operand1=other
            )
        nisa.dma_copy(dst=rows_of(out, source.block, part)[:, i, :], src=result)
