"""x weight^T + bias + residual on rows, with the additions on the way out of PSUM.

Letters used in every docstring here:
  R  rows: a position of a batch element each, m of them in a tile, up to 128
  K  merged heads, Hq * D      N  width of the model, n of it in a block, up to 512
"""

from __future__ import annotations

from typing import Any

import nki
import nki.language as nl
from nki_lib.common.tiles import load, load_row, spans
from nki_lib.linear.matmul.kernel import multiply_block, row_blocks, store_sum
from nki_lib.linear.matmul.loading import Factor, Kept


@nki.jit
def output_projection(x: Any, residual: Any, weight: Any, bias: Any) -> Any:
    """x weight^T + bias + residual, summed in float32 and rounded once.

    Dimensions: x [R, K], residual [R, N] or None, weight [N, K], bias [N] or None -> [R, N].

    Pseudocode:
        for each block of 512 rows and 512 columns:
            multiply into PSUM; load the block's part of the bias
            for each of its tiles: load the residual, add, store
    """
    left, right = Kept(Factor(x, False)), Factor(weight, False)
    out = nl.ndarray((left.width, right.width), dtype=x.dtype, buffer=nl.shared_hbm)
    for rows in row_blocks(left.width):
        for first, last in spans(right.width, nl.tile_size.psum_bank_fmax):
            added = (
                None
                if bias is None
                else load_row(bias[first:last], min(rows[1] - rows[0], nl.tile_size.pmax))
            )
            for start, stop, total in multiply_block(left, right, rows, (first, last)):
                terms = [total]
                if bias is not None:
                    terms.append(added[: stop - start, :])
                if residual is not None:
                    terms.append(load(residual[start:stop, first:last]))
                store_sum(out[start:stop, first:last], terms)
    return out
