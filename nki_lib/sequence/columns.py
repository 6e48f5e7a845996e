"""Steps that the kernels along a sequence share: numbers for each channel, and sums over positions.

Letters:  m  channels, one on each partition, up to 128    w  positions
"""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import fetch


def load_wide(rows: Any) -> Any:
    """Rows in HBM as float32 in SBUF. Dimensions: [m, k] -> [m, k]."""
    tile = nl.ndarray(rows.shape, dtype=nl.float32, buffer=nl.sbuf)
    fetch(dst=tile, src=rows)
    return tile


def load_column(vector: Any) -> Any:
    """A number for each channel, as float32; None stays None. Dimensions: [m] -> [m, 1]."""
    return None if vector is None else load_wide(vector.expand_dim(1))


def sum_of(dst: Any, data: Any) -> None:
    """dst = the sum over the positions, in the accumulators of the Scalar engine. Dimensions: [m, 1], data [m, w]."""
    passed = nl.ndarray(data.shape, dtype=data.dtype, buffer=nl.sbuf)
    nisa.activation(
        dst=passed,
        op=nl.copy,
        data=data,
        reduce_op=nl.add,
        reduce_res=dst,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
    )
