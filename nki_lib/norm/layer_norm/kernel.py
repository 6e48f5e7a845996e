"""Rows less their mean over their deviation, with the residual added before and 8-bit quantisation after.

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

VECTOR_SHARE = 4  # in 16 bits, one of so many tiles has its statistics from the Vector engine
STATISTICS = 6  # numbers that bn_stats leaves of a part of a row


@nki.jit
def layer_norm(x: Any, residual: Any, weight: Any, bias: Any, eps: float, quantize: str | None) -> Any:
    """(s - mean) / sqrt(variance + eps) * weight + bias of every row of s = x + residual, in float32, rounded once.

    Dimensions: x [R, H], residual [R, H] or None, weight, bias [H] or None -> out [R, H], or data and scale of
    `quantizing`; then s [R, H] if there is a residual. If all types are 16 bits wide, the normalised row and its
    product with weight are rounded to them too: the Vector engine is twice as fast then.

    Pseudocode:
        for each block of rows:
            load it; add the residual, store the sum
            Scalar: the mean, then the sum of squares around it (of some rows, Vector: both)
            Vector: subtract, scale, times weight, plus bias; quantise; store
    """
    rows, width = x.shape
    columns = blocks.parts(width, blocks.largest(x, weight, bias))
    results = Quantized(rows, width, x.dtype, quantize)
    sums = None if residual is None else nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    affine = blocks.Shared(weight, columns), blocks.Shared(bias, columns)
    small = blocks.filled(eps)
    late = blocks.Late(finish)
    for block in blocks.blocks(rows, width, x.dtype.itemsize):
        source = blocks.Rows(x, block, columns, residual, sums)
        measured = statistics(source, small, width, in_16_bits(x, weight, bias))
        late.call(results, affine, source, *measured)
    late.finish()
    return results.tensors(sums)


def finish(results: Any, affine: Any, source: Any, negated: Any, scales: Any) -> None:
    """Store the rows of a block, given their statistics. Dimensions: source, Rows of [m, g, H]; columns [m, g]."""
    for part in source.columns:
        tile = source.part(part)
        normal = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
        factor, shift = (row.part(part, tile.shape[0]) for row in affine)
        for i in range(tile.shape[1]):
            mine = slice(i, i + 1)
            apply(normal[:, i, :], tile[:, i, :], negated[:, mine], scales[:, mine], factor, shift)
        results.store(normal, source.block, part)


def in_16_bits(*tensors: Any) -> bool:
    """Whether all of them, some None, are narrow, so that the Vector engine is in its fast modes."""
    return blocks.largest(*tensors) < nl.float32.itemsize


def statistics(source: Any, small: Any, width: int, shared: bool = False) -> tuple[Any, Any]:
    """-mean and 1 / sqrt(variance + eps) of every row, from the Scalar engine, some from Vector if `shared`.

    Dimensions: source, Rows of [m, g, H]; small, holding eps, [128, 1] -> [m, g] twice.
    """
    start, m, g = source.block
    first = start // nl.tile_size.pmax
    negated, scales = column(m, g), column(m, g)
    totals, deviations = column(m, g), column(m, g)
    shared = shared and len(source.columns) == 1
    on_scalar = [i for i in range(g) if not shared or (first + i) % VECTOR_SHARE != 0]
    for i in on_scalar:
        blocks.row_sums(totals[:, i : i + 1], source, i, nl.copy)
    for i in on_scalar:
        mean = negated[:, i : i + 1]
        nisa.activation(dst=mean, op=nl.copy, data=totals[:, i : i + 1], scale=-1.0 / width)
        blocks.row_sums(deviations[:, i : i + 1], source, i, nl.square, mean)
    for i in on_scalar:
        root(scales[:, i : i + 1], deviations[:, i : i + 1], 1.0 / width, small)
    for i in range(g):
        if i not in on_scalar:
            both = mean_and_variance(source.part(source.columns[0])[:, i, :])
            nisa.activation(dst=negated[:, i : i + 1], op=nl.copy, data=both[:, 0:1], scale=-1.0)
            root(scales[:, i : i + 1], both[:, 1:2], 1.0, small)
    return negated, scales


def root(dst: Any, data: Any, scale: float, small: Any) -> None:
    """dst = 1 / sqrt(data * scale + small). Dimensions: dst, data [m, 1], small [128, 1]."""
    nisa.activation(dst=dst, op=nl.rsqrt, data=data, scale=scale, bias=small[: data.shape[0], :])


def mean_and_variance(rows: Any) -> Any:
    """Of every row, on the Vector engine. Dimensions: rows [m, H] -> [m, 2] float32."""
    m, width = rows.shape
    most = nl.tile_size.bn_stats_fmax
    count = -(-width // most)
    parts = nl.ndarray((m, count, STATISTICS), dtype=nl.float32, buffer=nl.sbuf)
    for i in range(count):
        nisa.bn_stats(dst=parts[:, i, :], data=rows[:, i * most : min((i + 1) * most, width)])
    both = nl.ndarray((m, 2), dtype=nl.float32, buffer=nl.sbuf)
    nisa.bn_aggr(dst=both, data=parts.reshape((m, count * STATISTICS)))
    return both


def apply(dst: Any, data: Any, negated: Any, scale: Any, factor: Any, shift: Any) -> None:
    """dst = (data - mean) * scale * factor + shift. Dimensions: [m, n], columns [m, 1]; the last two may be None."""
    narrow = in_16_bits(dst, factor, shift)
    wide = nl.ndarray(data.shape, dtype=dst.dtype if narrow else nl.float32, buffer=nl.sbuf)
    if factor is None or narrow:
        standard = dst if factor is None and shift is None else wide
        nisa.tensor_scalar(
            dst=standard, data=data, op0=nl.add, operand0=negated, op1=nl.multiply, operand1=scale
        )
        if factor is not None:
            scaled = dst if shift is None else wide
            nisa.tensor_tensor(dst=scaled, data1=wide, data2=factor, op=nl.multiply)
        if shift is not None:
            nisa.tensor_tensor(dst=dst, data1=wide, data2=shift, op=nl.add)
        return
    nisa.scalar_tensor_tensor(
        dst=wide, data=data, op0=nl.add, operand0=negated, op1=nl.multiply, operand1=factor
    )
    if shift is None:
        nisa.tensor_scalar(dst=dst, data=wide, op0=nl.multiply, operand0=scale)
        return
    nisa.scalar_tensor_tensor(dst=dst, data=wide, op0=nl.multiply, operand0=scale, op1=nl.add, operand1=shift)
