"""Rows to 8 bits on their way out: with a float32 scale for each row, or as MX with a power of two for each block.

MX is what OCP's Microscaling Formats define: 32 neighbours of a row share the scale 2^(floor(log2 m) - e), m their
largest magnitude and e the exponent of the largest number of the element type; elements are rounded to nearest even,
and beyond the largest number they become it. A block with infinity or NaN has the scale NaN.
"""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import column
from nki_lib.norm import blocks
from nki_lib.quantization import formats
from nki_lib.quantization.blocks import MANTISSA_BITS
from nki_lib.quantization.formats import BLOCK, SCALE_NAN

FORMATS = {name: form for name, form in formats.FORMATS.items() if form.packed == 1}
"""Those of 8 bits."""

LEAST = 2.0**-100  # the magnitude that rows of smaller ones, zeros too, are scaled by
ONE_STEP = 1 << MANTISSA_BITS  # adds 1 to an exponent


class Quantized:
    """The result of a norm: rows in the type of x, or in 8 bits with scales.

    Dimensions: out [R, H] in HBM; scale [R, 1] float32, or [R, H/32] as bytes.
    """

    def __init__(self, rows: int, width: int, dtype: Any, quantize: str | None) -> None:
        self.format = None if quantize is None else FORMATS[quantize]
        stored = dtype if self.format is None else getattr(nl, self.format.element)
        self.out = nl.ndarray((rows, width), dtype=stored, buffer=nl.shared_hbm)
        self.scale = None
        if self.format is not None:
            shape = (rows, width // BLOCK) if self.format.blocks else (rows, 1)
            kind = nl.uint8 if self.format.blocks else nl.float32
            self.scale = nl.ndarray(shape, dtype=kind, buffer=nl.shared_hbm)

    def store(self, tile: Any, block: Any, part: Any) -> None:
        """Rows of a block, columns of a part. Dimensions: tile [m, g, n] in SBUF."""
        if self.format is None:
            nisa.dma_copy(dst=blocks.rows_of(self.out, block, part), src=tile)
            return
        data = nl.ndarray(tile.shape, dtype=self.out.dtype, buffer=nl.sbuf)
        quantized = by_block if self.format.blocks else by_row
        scale = quantized(data, tile, self.format)
        scales = (part[0] // BLOCK, part[1] // BLOCK) if self.format.blocks else (0, 1)
        nisa.dma_copy(dst=blocks.rows_of(self.out, block, part), src=data)
        nisa.dma_copy(dst=blocks.rows_of(self.scale, block, scales), src=scale)

    def tensors(self, sums: Any) -> Any:
        """What the kernel returns."""
        results = [t for t in (self.out, self.scale, sums) if t is not None]
        return results[0] if len(results) == 1 else tuple(results)


def magnitudes(tile: Any) -> Any:
    """The tile without signs. Dimensions: [m, g, H] -> the same, same type."""
    result = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=result, data=tile, op0=nl.abs, operand0=None)
    return result


def by_row(dst: Any, tile: Any, form: Any) -> Any:
    """dst = tile / scale, scale = largest magnitude of the row / largest number. Dimensions: [m, g, H] -> [m, g, 1]."""
    m, g, _ = tile.shape
    most, scale, inverse = (column(m, g) for _ in range(3))
    nisa.tensor_reduce(dst=most, op=nl.maximum, data=magnitudes(tile), axis=2)
    nisa.tensor_scalar(
        dst=scale, data=most, op0=nl.maximum, operand0=LEAST, op1=nl.multiply, operand1=1.0 / form.largest
    )
    nisa.reciprocal(dst=inverse, data=scale)
    for i in range(g):
        mine = inverse[:, i : i + 1]
        nisa.tensor_scalar(dst=dst[:, i, :], data=tile[:, i, :], op0=nl.multiply, operand0=mine)
    return scale.expand_dim(2)


def by_block(dst: Any, tile: Any, form: Any) -> Any:
    """dst = tile / scale, scale a power of two for each 32 neighbours. Dimensions: [m, g, H] -> [m, g, H/32] uint8.

    bfloat16 holds these quotients exactly, and is faster than float32 up to the last step.
    """
    m, g, width = tile.shape
    count = width // BLOCK
    neighbours = tile.reshape((m, g, count, BLOCK))
    kind = nl.bfloat16 if tile.dtype == nl.bfloat16 else nl.float32
    most, inverse = (nl.ndarray((m, g, count), dtype=t, buffer=nl.sbuf) for t in (tile.dtype, kind))
    nisa.tensor_reduce(dst=most, op=nl.maximum, data=magnitudes(tile).reshape(neighbours.shape), axis=3)
    byte = power_of_two(inverse, most, form)
    for i in range(g):
        shrunk, limited = (nl.ndarray((m, count, BLOCK), dtype=kind, buffer=nl.sbuf) for _ in range(2))
        powers = inverse[:, i, :].expand_dim(2).broadcast(2, BLOCK)
        nisa.tensor_tensor(dst=shrunk, data1=neighbours[:, i], data2=powers, op=nl.multiply)
        nisa.tensor_scalar(
            dst=limited,
            data=shrunk,
            op0=nl.minimum,
            operand0=form.largest,
            op1=nl.maximum,
            operand1=-form.largest,
        )
        nisa.activation(dst=dst[:, i, :].reshape(shrunk.shape), op=nl.copy, data=limited)
    scale = nl.ndarray(byte.shape, dtype=nl.uint8, buffer=nl.sbuf)
    nisa.tensor_copy(dst=scale, src=byte)
    return scale


def power_of_two(dst: Any, most: Any, form: Any) -> Any:
    """The scales of blocks with these largest magnitudes, as bytes, and dst = 1 / scale.

    Dimensions: dst, most [m, g, n] -> [m, g, n] int32, which holds bytes.

    Pseudocode:
        exponent = the exponent bits of `most`; byte = max(exponent - e, 0), or 255 if it was 255
        1 / scale has the exponent bits 254 - byte
    """
    exponent, byte, inverse = (nl.ndarray(most.shape, dtype=nl.int32, buffer=nl.sbuf) for _ in range(3))
    exact = nl.ndarray(most.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=exact, src=most)
    nisa.tensor_scalar(
        dst=exponent,
        data=exact.view(nl.int32),
        op0=nl.right_shift,
        operand0=MANTISSA_BITS,
        op1=nl.bitwise_and,
        operand1=SCALE_NAN,
    )
    nisa.tensor_scalar(
        dst=byte, data=exponent, op0=nl.equal, operand0=SCALE_NAN, op1=nl.multiply, operand1=SCALE_NAN
    )
    nisa.tensor_scalar(
        dst=exponent, data=exponent, op0=nl.subtract, operand0=form.exponent, op1=nl.maximum, operand1=0
    )
    nisa.tensor_tensor(dst=byte, data1=byte, data2=exponent, op=nl.maximum)
    most_byte = (SCALE_NAN - 1) * ONE_STEP
    nisa.tensor_scalar(
        dst=inverse, data=byte, op0=nl.multiply, operand0=-ONE_STEP, op1=nl.add, operand1=most_byte
    )
    nisa.tensor_copy(dst=dst, src=inverse.view(nl.float32))
    return byte
