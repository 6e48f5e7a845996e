"""The matrix product with factors of 8 bits, scales, a bias and an activation. Letters as in `kernel.py`.

The Tensor engine multiplies float8_e5m2 on every generation, float8_e4m3fn from trn3 on. Where it does not, the
numbers become bfloat16 on the chip, in which every one of them is exact; beside float32 they become float32.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import load_by_partition, load_row
from nki_lib.linear.matmul.epilogue import finished
from nki_lib.linear.matmul.kernel import column_blocks, multiply_block, row_blocks
from nki_lib.linear.matmul.loading import Factor, Kept


@nki.jit
def matmul_fused(
    a: Any,
    a_scale: Any,
    b: Any,
    b_scale: Any,
    bias: Any,
    a_leading: bool,
    b_leading: bool,
    activation: str | None,
    out_dtype: str,
) -> Any:
    """activation((a b) * a_scale * b_scale + bias), summed and finished in float32 and rounded once.

    Dimensions: a [M, K], or [K, M] if a_leading; b [N, K], or [K, N] if b_leading; a_scale [M], b_scale [N], float32,
    bias [N], each may be None -> [M, N] of out_dtype.

    Pseudocode:
        for each block of rows: load its scales, as a column
            for each block of columns: load its scales and its bias, the same in every partition
                multiply into PSUM
                for each tile: scale, add, apply the activation, store
    """
    left, right = factors(a, b, a_leading, b_leading)
    left, side = Kept(left), nl.tile_size.pmax
    out = nl.ndarray((left.width, right.width), dtype=out_dtype, buffer=nl.shared_hbm)
    for rows in row_blocks(left.width):
        scales = None if a_scale is None else load_by_partition(a_scale[rows[0] : rows[1]].expand_dim(1))
        for first, last in column_blocks(rows, right):
            count = min(rows[1] - rows[0], side)
            factor = None if b_scale is None else load_row(b_scale[first:last], count)
            added = None if bias is None else load_row(bias[first:last], count)
            for start, stop, total in multiply_block(left, right, rows, (first, last)):
                m = stop - start
                column = None if scales is None else scales[:m, (start - rows[0]) // side, :]
                of_columns = None if factor is None else factor[:m, :]
                terms = None if added is None else added[:m, :]
                result = finished(total, column, of_columns, terms, activation, out_dtype)
                nisa.dma_copy(dst=out[start:stop, first:last], src=result)
    return out


def factors(a: Any, b: Any, a_leading: bool, b_leading: bool) -> Any:
    """Both factors: what they are multiplied as, and in which order K comes.

    Two neighbours of K share a partition if that lets the DMA engines transpose 8-bit numbers, in pairs, or lets the
    Tensor engine contract both at once, which it does with 8-bit factors from trn2 on.
    """
    leading = a.shape[0] if a_leading else a.shape[1]
    kinds = (multiplied_as(a.dtype, b.dtype), multiplied_as(b.dtype, a.dtype))
    able = leading % 2 == 0 and nisa.get_nc_version() > nisa.nc_version.gen2
    both = all(is_narrow(matrix.dtype) for matrix in (a, b))
    group = 2 if able and (both or (is_narrow(b.dtype) and not b_leading)) else 1
    double = group == 2 and all(is_narrow(kind) for kind in kinds)
    return (
        Factor(a, a_leading, kinds[0], group, double),
        Factor(b, b_leading, kinds[1], group, double),
    )


def is_narrow(dtype: Any) -> bool:
    """Whether a number has 8 bits."""
    return dtype.itemsize == 1


def multiplied_as(dtype: Any, partner: Any) -> Any:
    """The type in which the Tensor engine takes a factor beside one of the type `partner`."""
    if not is_narrow(dtype):
        return dtype
    if partner == nl.float32:
        return nl.float32
    native = dtype == nl.float8_e5m2 or nisa.get_nc_version() > nisa.nc_version.gen3
    return dtype if native else nl.bfloat16
