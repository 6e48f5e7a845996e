"""RMS normalisation on the way into a product: what was loaded is scaled before it is transposed."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import load, load_by_partition, load_row, transpose_blocks

PART = 2048  # elements of a row that are squared at a time


class NormalisedRows:
    """The rows of x / sqrt(mean(x^2) + eps) * weight as the left factor of a product, see `loading.Factor`.

    Dimensions: x [F, K], weight [K] in HBM; panels are lists of slabs [up to 128 of k, f] in SBUF. Every row is read
    twice: once for its mean square, once to be scaled, in float32 and rounded once to the type of x.
    """

    def __init__(self, x: Any, weight: Any, eps: float) -> None:
        self.x = x
        self.weight = weight
        self.eps = eps
        self.dtype = x.dtype
        self.width, self.depth = x.shape
        self.scales = {}

    def panel(self, depths: Any, span: Any) -> list[Any]:
        """The slabs of K from depths[0] to depths[1] - 1 and rows from span[0] to span[1] - 1."""
        side, count = nl.tile_size.pmax, span[1] - span[0]
        tile = load_by_partition(self.x[span[0] : span[1], depths[0] : depths[1]])
        normal = nl.ndarray(tile.shape, dtype=self.dtype, buffer=nl.sbuf)
        weight = load_row(self.weight[depths[0] : depths[1]], tile.shape[0])
        for block in range(tile.shape[1]):
            height = min(side, count - block * side)
            nisa.scalar_tensor_tensor(
                dst=normal[:height, block, :],
                data=tile[:height, block, :],
                op0=nl.multiply,
                operand0=self.scale(span[0] + block * side, height),
                op1=nl.multiply,
                operand1=weight[:height, :],
            )
        return transpose_blocks(normal, count)

    def scale(self, start: int, height: int) -> Any:
        """1 / sqrt(mean(x^2) + eps) of `height` rows, computed when first asked for. Dimensions: [height, 1]."""
        if start not in self.scales:
            self.scales[start] = inverse_root_mean_square(self.x[start : start + height, :], self.eps)
        return self.scales[start]


def inverse_root_mean_square(rows: Any, eps: float) -> Any:
    """1 / sqrt(mean(row^2) + eps) in float32. Dimensions: rows [m, K] in HBM -> [m, 1] in SBUF."""
    m, count = rows.shape
    total = nl.ndarray((m, 1), dtype=nl.float32, buffer=nl.sbuf)
    for first in range(0, count, PART):
        width = min(PART, count - first)
        tile = load(rows[:, first : first + width])
        squares = nl.ndarray((m, width), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(
            dst=squares,
            op=nl.square,
            data=tile,
            reduce_op=nl.add,
            reduce_res=total if first + width == count else None,
            reduce_cmd=nisa.reduce_cmd.reset_reduce if first == 0 else nisa.reduce_cmd.reduce,
        )
    mean = nl.ndarray((m, 1), dtype=nl.float32, buffer=nl.sbuf)
    scale = nl.ndarray((m, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=mean, data=total, op0=nl.multiply, operand0=1.0 / count, op1=nl.add, operand1=eps)
    nisa.activation(dst=scale, op=nl.rsqrt, data=mean)
    return scale
