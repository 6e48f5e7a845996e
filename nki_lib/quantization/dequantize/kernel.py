"""Rows of a narrow format back to values: elements times their scales.

Letters used in every docstring here:
  R  rows     K  values of a row     E  bytes of a row of elements: K, or K/2 where two share a byte
  G  scales of a row: K/32, or 1
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import load, spans
from nki_lib.quantization.blocks import new, scaled, widen_nibbles_into
from nki_lib.quantization.formats import BLOCK, FORMATS

CHUNK = 2048  # values of a row in one tile


@nki.jit
def dequantize(data: Any, scale: Any, format: str, dtype: str) -> Any:
    """Elements times scales, in float32 and rounded once.

    Dimensions: uint8 data [R, E], scale [R, G], bytes of float8_e8m0fnu or float32 -> [R, K].

    Pseudocode:
        for each tile of 128 rows and 2048 columns:
            load elements and scales, multiply, store
    """
    made, (rows, width) = FORMATS[format], data.shape
    width *= made.packed
    data = data if made.element is None else data.view(made.element)
    scale = scale.view(nl.float8_e8m0fnu) if made.blocks else scale
    out = nl.ndarray((rows, width), dtype=dtype, buffer=nl.shared_hbm)
    for start, stop in spans(rows, nl.tile_size.pmax):
        column = None if made.blocks else load(scale[start:stop, :])
        for first, last in spans(width, CHUNK):
            tile = load(data[start:stop, first // made.packed : last // made.packed])
            if made.blocks:
                column = load(scale[start:stop, first // BLOCK : last // BLOCK])
                values = widened(tile, column, dtype)
            else:
                values = new(tile.shape, dtype)
                nisa.activation(dst=values, op=nl.copy, data=tile, scale=column)
            nisa.dma_copy(dst=out[start:stop, first:last], src=values)
    return out


def widened(data: Any, scale: Any, dtype: Any) -> Any:
    """Elements times the scales of their blocks. Dimensions: data [m, E], scale [m, G] float8_e8m0fnu -> [m, W]."""
    factor = new(scale.shape, nl.float32)
    nisa.tensor_copy(dst=factor, src=scale)
    if data.dtype != nl.uint8:
        return scaled(data, factor, dtype)
    values = new((data.shape[0], 2 * data.shape[1]), dtype)
    widen_nibbles_into(values, data, factor)
    return values
