"""The gradient of rms_norm with respect to its rows; that of its weight is in `norm/weight_gradients.py`.

With r = 1 / sqrt(mean(x^2) + eps), g = dy * (offset + weight) and c = sum(g * x): dx = r (g - x r^2 c / H).
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import column
from nki_lib.norm import blocks, gradients
from nki_lib.norm.rms_norm.kernel import inverse_roots


@nki.jit
def rms_norm_backward(x: Any, grad: Any, added: Any, weight: Any, eps: float, offset: float) -> Any:
    """The gradient of x, plus `added`, the gradient of x as a result.

    Dimensions: x, grad [R, H], added [R, H] or None, weight [H] or None -> dx [R, H], r [R, 1] float32.

    Pseudocode:
        for each block of rows:
            r; g = dy * weight; c = sum(g * x)
            dx = r * (x * (-r^2 c / H) + g) + added
    """
    rows, width = x.shape
    columns = blocks.parts(width, nl.float32.itemsize)
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    roots = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    factors, small = blocks.Shared(weight, columns, offset), blocks.filled(eps)
    late = blocks.Late(gradients.store_gradient)
    for block in blocks.blocks(rows, width, nl.float32.itemsize):
        source = blocks.Rows(x, block, columns)
        slopes = gradients.Weighted(blocks.Rows(grad, block, columns), factors)
        scales = inverse_roots(source, small, width)
        nisa.dma_copy(dst=blocks.rows_of(roots, block, (0, 1)), src=scales.expand_dim(2))
        for i in range(block[2]):
            scale = scales[:, i : i + 1]
            pull = slope_along(source, slopes, scale, width, i)
            late.call(result, added, source, slopes, i, (scale, pull, None))
    late.finish()
    return result, roots


def slope_along(source: Any, slopes: Any, scale: Any, width: int, i: int) -> Any:
    """-r^2 c / H of the i-th tile of a block. Dimensions: source, Rows; slopes, Weighted; scale [m, 1] -> [m, 1]."""
    m = scale.shape[0]
    total = column(m)
    for part in source.columns:
        product = nl.ndarray((m, part[1] - part[0]), dtype=nl.float32, buffer=nl.sbuf)
        g, tile = slopes.part(part, i), source.part(part)[:, i, :]
        nisa.tensor_tensor(dst=product, data1=g, data2=tile, op=nl.multiply)
        blocks.row_sum(total, product, nl.copy, None, part, source.columns)
    return gradients.times_square(total, scale, -1.0 / width)
