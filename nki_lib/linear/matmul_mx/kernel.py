"""Products with microscaled factors: on the Tensor engine's own MX multiplication, or widened where there is none.

Letters used in every docstring here:
  M  rows of the result     K  the contracted axis, blocks of 32     N  columns of the result, n of them in a block
  E  bytes of the elements on the contracted axis: K, or K/2 where two share a byte     G  scales: K/32
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import load_row, spans
from nki_lib.linear.matmul_mx.loading import (
    LANES,
    PANEL,
    STRETCH,
    Held,
    LeadingFactor,
    QuantizedFactor,
    RowFactor,
    even,
)
from nki_lib.linear.matmul_mx.widening import RoundedValues, Widened

LEFT_BYTES = 120 * 1024  # of a partition: what the left factor may hold
RIGHT_BYTES = 40 * 1024  # of a partition: what one column block of the right factor may hold


@nki.jit
def matmul_mx(
    a: Any,
    a_scale: Any,
    b: Any,
    b_scale: Any,
    bias: Any,
    a_format: str,
    b_format: str,
    b_leading: bool,
    dtype: str,
) -> Any:
    """a b + bias, of microscaled factors, summed in float32 and rounded once.

    Dimensions: a [M, E] with a_scale [M, G], or a [M, K] and None: quantised here; b [N, E] with b_scale [N, G], or
    [E, N] with [G, N] if b_leading; bias [N] or None -> [M, N]. Elements and scales are bytes, uint8.

    Pseudocode:
        for each block of rows whose panels fit, for each block of 512 columns:
            for each 512 of these rows, for each stretch of 2048 of K:
                load both factors as words and scales, or find them there; multiply panel by panel, add in PSUM
            add the bias, round, store
    """
    has_mx = nisa.get_nc_version() >= nisa.nc_version.gen4
    left, right = factors(a, a_scale, b, b_scale, a_format, b_format, b_leading, has_mx)
    out = nl.ndarray((left.width, right.width), dtype=dtype, buffer=nl.shared_hbm)
    column = -(-left.depth // PANEL) * LANES * (1 if has_mx else 2)  # bytes of it in a partition
    block = nl.tile_size.psum_bank_fmax
    left = Held(left, keep=column * min(left.width, block) <= LEFT_BYTES)
    right = Held(right, keep=column * block <= RIGHT_BYTES)
    for rows in spans(left.width, max(LEFT_BYTES // column // block, 1) * block):
        left.forget()
        for columns in spans(right.width, block):
            right.forget()
            added = None if bias is None else load_row(bias[columns[0] : columns[1]], nl.tile_size.pmax)
            for first, last in spans(rows[1] - rows[0], block):
                span = (rows[0] + first, rows[0] + last)
                for start, stop, total in multiply_stretches(left, right, span, columns, has_mx):
                    store_with_bias(out[start:stop, columns[0] : columns[1]], total, added)
    return out


def factors(
    a: Any, a_scale: Any, b: Any, b_scale: Any, a_format: str, b_format: str, b_leading: bool, has_mx: bool
) -> tuple[Any, Any]:
    """Both factors as the generation takes them: words with scales, or slabs of bfloat16."""
    if not has_mx:
        rounded = RoundedValues(a, a_format) if a_scale is None else Widened(a, a_scale, a_format, False)
        return rounded, Widened(b, b_scale, b_format, b_leading)
    left = QuantizedFactor(a, a_format) if a_scale is None else RowFactor(a, a_scale, a_format)
    return left, (LeadingFactor if b_leading else RowFactor)(b, b_scale, b_format)


def multiply_stretches(left: Any, right: Any, rows: Any, columns: Any, has_mx: bool) -> list[Any]:
    """One block of the product as tiles (start, stop, total [stop - start or one more, n] in PSUM)."""
    tiles = []
    for start, stop in spans(rows[1] - rows[0], nl.tile_size.pmax):
        shape = (even(stop - start) if has_mx else stop - start, columns[1] - columns[0])
        tiles.append((rows[0] + start, rows[0] + stop, nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)))
    for depths in spans(left.depth, STRETCH):
        for mine, theirs in zip(left.stretch(depths, rows), right.stretch(depths, columns)):
            for start, _, total in tiles:
                first = start - rows[0]
                here = slice(first, first + total.shape[0])
                if has_mx:
                    multiply_words(total, mine, theirs, here)
                else:
                    nisa.nc_matmul(dst=total, stationary=mine[:, here], moving=theirs)
    return tiles


def multiply_words(total: Any, mine: Any, theirs: Any, here: Any) -> None:
    """total += one panel's product. Dimensions: total [m, n], mine and theirs words [p, ...] with their scales."""
    nisa.nc_matmul_mx(
        dst=total,
        stationary=mine[0][:, here],
        moving=theirs[0][:, : total.shape[1]],
        stationary_scale=mine[1][:, here],
        moving_scale=theirs[1][:, : total.shape[1]],
    )


def store_with_bias(out: Any, total: Any, added: Any) -> None:
    """out = total + added, rounded once. Dimensions: out [m, n], total [m or one more, n], added [128, n] or None."""
    rows = out.shape[0]
    result = nl.ndarray(out.shape, dtype=out.dtype, buffer=nl.sbuf)
    if added is None:
        nisa.tensor_copy(dst=result, src=total[:rows, :])
    else:
        nisa.tensor_tensor(dst=result, data1=total[:rows, :], data2=added[:rows, :], op=nl.add)
    nisa.dma_copy(dst=out, src=result)
