"""Rows over their root mean square, with the residual added before and 8-bit quantisation after.

Letters:  R  rows    H  their width    m  rows of a tile, up to 128    g  tiles of a block, see `norm/blocks.py`
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import column
from nki_lib.norm import blocks
from nki_lib.norm.quantizing import Quantized


@nki.jit
def rms_norm(x: Any, residual: Any, weight: Any, eps: float, offset: float, quantize: str | None) -> Any:
    """s / sqrt(mean(s^2) + eps) * (offset + weight) of every row of s = x + residual, in float32 and rounded once.

    Dimensions: x [R, H], residual [R, H] or None, weight [H] or None -> out [R, H], or data and scale of `quantizing`;
    then s [R, H] if there is a residual.

    Pseudocode:
        for each block of rows:
            load it; add the residual, store the sum
            Scalar: sum of squares of every row, 1 / sqrt(sum / H + eps)
            Vector: times that, times weight; quantise; store
    """
    rows, width = x.shape
    columns = blocks.parts(width, blocks.largest(x, weight))
    results = Quantized(rows, width, x.dtype, quantize)
    sums = None if residual is None else nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    factors, small = blocks.Shared(weight, columns, offset), blocks.filled(eps)
    late = blocks.Late(finish)
    for block in blocks.blocks(rows, width, x.dtype.itemsize):
        source = blocks.Rows(x, block, columns, residual, sums)
        late.call(results, factors, source, inverse_roots(source, small, width))
    late.finish()
    return results.tensors(sums)


def finish(results: Any, factors: Any, source: Any, scales: Any) -> None:
    """Store the rows of a block, given their inverse roots. Dimensions: source, Rows of [m, g, H]; scales [m, g]."""
    for part in source.columns:
        tile = source.part(part)
        normal = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
        factor = factors.part(part, tile.shape[0])
        for i in range(tile.shape[1]):
            scale_row(normal[:, i, :], tile[:, i, :], scales[:, i : i + 1], factor)
        results.store(normal, source.block, part)


def inverse_roots(source: Any, small: Any, width: int) -> Any:
    """1 / sqrt(mean(row^2) + eps). Dimensions: source, Rows of [m, g, H]; small (eps) [128, 1] -> [m, g]."""
    _, m, g = source.block
    squares, scales = column(m, g), column(m, g)
    for i in range(g):
        blocks.row_sums(squares[:, i : i + 1], source, i, nl.square)
    nisa.activation(dst=scales, op=nl.rsqrt, data=squares, scale=1.0 / width, bias=small[:m, :])
    return scales


def scale_row(dst: Any, data: Any, scale: Any, factor: Any) -> None:
    """dst = data * scale * factor. Dimensions: dst, data [m, n], scale [m, 1], factor [m, n] or None."""
    if factor is None:
        nisa.tensor_scalar(dst=dst, data=data, op0=nl.multiply, operand0=scale)
        return
    nisa.scalar_tensor_tensor(
        dst=dst, data=data, op0=nl.multiply, operand0=scale, op1=nl.multiply, operand1=factor
    )
