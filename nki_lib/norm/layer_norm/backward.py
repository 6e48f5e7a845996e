"""The gradient of layer_norm with respect to its rows; those of its vectors are in `norm/weight_gradients.py`.

With r = 1 / sqrt(variance + eps), g = dy * weight and c = sum(g (x - mean)):
dx = r (g - sum(g) / H - (x - mean) r^2 c / H).
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import column
from nki_lib.norm import blocks, gradients
from nki_lib.norm.layer_norm.kernel import statistics


@nki.jit
def layer_norm_backward(x: Any, grad: Any, added: Any, weight: Any, eps: float) -> Any:
    """The gradient of x, plus `added`, the gradient of x as a result.

    Dimensions: x, grad [R, H], added [R, H] or None, weight [H] or None -> dx [R, H], -mean and r [R, 1] float32.

    Pseudocode:
        for each block of rows:
            mean and r; g = dy * weight; k = -r^2 sum(g (x - mean)) / H
            dx = r * (x * k + g - sum(g) / H - mean * k) + added
    """
    rows, width = x.shape
    columns = blocks.parts(width, nl.float32.itemsize)
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    means, roots = (nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.shared_hbm) for _ in range(2))
    factors, small = blocks.Shared(weight, columns), blocks.filled(eps)
    late = blocks.Late(gradients.store_gradient)
    for block in blocks.blocks(rows, width, nl.float32.itemsize):
        source = blocks.Rows(x, block, columns)
        slopes = gradients.Weighted(blocks.Rows(grad, block, columns), factors)
        negated, scales = statistics(source, small, width, True)
        nisa.dma_copy(dst=blocks.rows_of(means, block, (0, 1)), src=negated.expand_dim(2))
        nisa.dma_copy(dst=blocks.rows_of(roots, block, (0, 1)), src=scales.expand_dim(2))
        for i in range(block[2]):
            scale = scales[:, i : i + 1]
            pull, shift = pulls(source, slopes, (negated[:, i : i + 1], scale), width, i)
            late.call(result, added, source, slopes, i, (scale, pull, shift))
    late.finish()
    return result, means, roots


def pulls(source: Any, slopes: Any, measured: Any, width: int, i: int) -> tuple[Any, Any]:
    """k and -sum(g) / H - mean * k of the i-th tile of a block.

    Dimensions: source, Rows; slopes, Weighted; measured, -mean and r [m, 1] -> [m, 1] float32 twice.
    """
    negated, scale = measured
    m = scale.shape[0]
    total, along, mean, shift = (column(m) for _ in range(4))
    for part in source.columns:
        blocks.row_sum(total, slopes.part(part, i), nl.copy, None, part, source.columns)
    for part in source.columns:
        product = nl.ndarray((m, part[1] - part[0]), dtype=nl.float32, buffer=nl.sbuf)
        g, tile = slopes.part(part, i), source.part(part)[:, i, :]
        nisa.scalar_tensor_tensor(
            dst=product, data=tile, op0=nl.add, operand0=negated, op1=nl.multiply, operand1=g
        )
        blocks.row_sum(along, product, nl.copy, None, part, source.columns)
    pull = gradients.times_square(along, scale, -1.0 / width)
    nisa.tensor_scalar(dst=mean, data=total, op0=nl.multiply, operand0=-1.0 / width)
    nisa.scalar_tensor_tensor(
        dst=shift, data=negated, op0=nl.multiply, operand0=pull, op1=nl.add, operand1=mean
    )
    return pull, shift
