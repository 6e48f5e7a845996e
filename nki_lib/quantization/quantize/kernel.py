"""Rows to a narrow format: scales from the largest magnitudes, then elements.

Letters used in every docstring here:
  R  rows     K  values of a row     E  bytes of a row of elements: K, or K/2 where two share a byte
  G  MX blocks of a row, K/32
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import load, spans
from nki_lib.quantization.blocks import block_scales, magnitudes, new, scaled, to_nibbles
from nki_lib.quantization.formats import FORMATS

CHUNK = 2048  # values of a row in one tile
KEPT_CHUNKS = 8  # of a longer row none stays in SBUF from the search for its largest value to its division
SMALLEST_NORMAL = 2.0**-126


@nki.jit
def quantize_blocks(x: Any, format: str) -> tuple[Any, Any]:
    """Rows in an MX format: a power of two for each block of 32, and the elements.

    Dimensions: x [R, K] -> data [R, E], uint8 scale bytes [R, G].

    Pseudocode:
        for each tile of 128 rows and 2048 columns:
            largest magnitude of each block -> byte of its scale, 1/scale
            round x/scale, clamped to the largest element; store both
    """
    made, (rows, width) = FORMATS[format], x.shape
    data = nl.ndarray((rows, width // made.packed), dtype=made.element or nl.uint8, buffer=nl.shared_hbm)
    scale = nl.ndarray((rows, made.scales(width)), dtype=nl.uint8, buffer=nl.shared_hbm)
    for start, stop in spans(rows, nl.tile_size.pmax):
        for first, last in spans(width, CHUNK):
            tile = load(x[start:stop, first:last])
            absolute = magnitudes(tile, scalar=made.packed == 1)  # else it has its share
            codes, inverse = block_scales(absolute, made.exponent)
            if made.element is None:
                sizes = scaled(absolute, inverse, inverse.dtype)
                nisa.tensor_scalar(dst=sizes, data=sizes, op0=nl.minimum, operand0=made.largest)
                elements = to_nibbles(tile, sizes)
            else:
                elements = clamped(scaled(tile, inverse, inverse.dtype), made)
            nisa.dma_copy(dst=data[start:stop, first // made.packed : last // made.packed], src=elements)
            nisa.dma_copy(dst=scale[start:stop, made.scales(first) : made.scales(last)], src=codes)
    return data, scale


def clamped(values: Any, made: Any) -> Any:
    """Values as elements of the format, the largest element for what lies beyond. Dimensions: [m, W] -> [m, W]."""
    result = new(values.shape, made.element)
    nisa.tensor_scalar(
        dst=result,
        data=values,
        op0=nl.minimum,
        operand0=made.largest,
        op1=nl.maximum,
        operand1=-made.largest,
    )
    return result


@nki.jit
def quantize_vectors(x: Any, format: str) -> tuple[Any, Any]:
    """Rows in a float8 format: one float32 scale for each, and the elements.

    Dimensions: x [R, K] -> data [R, K], float32 scale [R, 1].

    Pseudocode:
        for each tile of 128 rows:
            largest magnitude of each row over its chunks of 2048 columns -> scale, 1/scale
            for each chunk: round x * (1/scale), store

    No value is beyond the largest element by more than a few units of float32, so rounding never overflows.
    """
    made, (rows, width) = FORMATS[format], x.shape
    data = nl.ndarray((rows, width), dtype=made.element, buffer=nl.shared_hbm)
    scale = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    chunks = spans(width, CHUNK)
    for start, stop in spans(rows, nl.tile_size.pmax):
        kept = []
        most = new((stop - start, len(chunks)), nl.float32)
        for i, (first, last) in enumerate(chunks):
            tile = load(x[start:stop, first:last])
            nisa.tensor_reduce(dst=most[:, i : i + 1], op=nl.maximum, data=magnitudes(tile), axis=1)
            if len(chunks) <= KEPT_CHUNKS:
                kept.append(tile)
        column, inverse = vector_scales(most, made.largest)
        nisa.dma_copy(dst=scale[start:stop, :], src=column)
        for i, (first, last) in enumerate(chunks):
            tile = kept[i] if kept else load(x[start:stop, first:last])
            elements = new(tile.shape, made.element)
            nisa.activation(dst=elements, op=nl.copy, data=tile, scale=inverse)
            nisa.dma_copy(dst=data[start:stop, first:last], src=elements)
    return data, scale


def vector_scales(most: Any, largest: float) -> tuple[Any, Any]:
    """scale = m (1/largest) and 1/scale; 1 and 1 where that would be below the smallest normal number, as of zeros.

    Dimensions: most [m, chunks], of each chunk -> two of float32 [m, 1].
    """
    shape = (most.shape[0], 1)
    ratio, kept, scale, inverse = (new(shape, nl.float32) for _ in range(4))
    nisa.tensor_reduce(dst=ratio, op=nl.maximum, data=most, axis=1)
    nisa.tensor_scalar(dst=ratio, data=ratio, op0=nl.multiply, operand0=1.0 / largest)
    nisa.scalar_tensor_tensor(
        dst=kept,
        data=ratio,
        op0=nl.greater_equal,
        operand0=SMALLEST_NORMAL,
        op1=nl.multiply,
        operand1=ratio,
    )
    nisa.scalar_tensor_tensor(
        dst=scale, data=ratio, op0=nl.less, operand0=SMALLEST_NORMAL, op1=nl.add, operand1=kept
    )
    nisa.reciprocal(dst=inverse, data=scale)
    return scale, inverse
