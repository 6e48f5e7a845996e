"""MX blocks in SBUF: their scales, values into elements and back. What `quantize`, `dequantize`, `matmul_mx` share.

Letters used in every docstring here:
  m  rows of a tile, up to 128     W  values of a row, whole blocks of 32
  G  blocks of a row, W/32         E  bytes of a row: W, or W/2 where two elements share a byte, the first one lower
"""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.quantization.formats import BLOCK, SCALE_BIAS, SCALE_NAN

MANTISSA_BITS = 23  # of float32
SIGN_OF_NIBBLE = 8
NIBBLE_UNIT = 64.0  # the smallest exponent of 4-bit elements is 0, of float8_e4m3fn -6


def magnitudes(x: Any, scalar: bool = False) -> Any:
    """|x|, of its type, by the Vector engine or by the Scalar engine. Dimensions: [m, W] -> [m, W] in SBUF."""
    result = new(x.shape, x.dtype)
    if scalar:
        nisa.activation(dst=result, op=nl.abs, data=x)
    else:
        nisa.tensor_scalar(dst=result, data=x, op0=nl.abs, operand0=None)
    return result


def exact(dtype: Any) -> Any:
    """The type in which a value of `dtype`, divided by a scale, still rounds to the right element.

    bfloat16 has the exponents of float32, so only what lies far below the smallest element loses bits there.
    """
    return nl.bfloat16 if dtype == nl.bfloat16 else nl.float32


def block_scales(absolute: Any, exponent: int) -> tuple[Any, Any]:
    """The byte of each block's scale, and 1/scale; 255 and NaN if the block has an infinity or a NaN.

    Dimensions: [m, W] -> uint8 [m, G], [m, G] in bfloat16 or float32, which both hold it. With
    2^(floor(log2 m) - exponent) for a scale, its byte is the exponent field of m less `exponent`, not below 0.
    """
    rows, blocks = absolute.shape[0], absolute.shape[1] // BLOCK
    most = new((rows, blocks), nl.float32)
    nisa.tensor_reduce(dst=most, op=nl.maximum, data=absolute.reshape_dim(1, (blocks, BLOCK)), axis=2)
    field, code, inverse = (new((rows, blocks), nl.int32) for _ in range(3))
    nisa.tensor_scalar(dst=field, data=most.view(nl.int32), op0=nl.right_shift, operand0=MANTISSA_BITS)
    nisa.tensor_scalar(dst=code, data=field, op0=nl.subtract, operand0=exponent, op1=nl.maximum, operand1=0)
    nisa.tensor_scalar(
        dst=inverse, data=code, op0=nl.multiply, operand0=-1, op1=nl.add, operand1=2 * SCALE_BIAS
    )
    nisa.tensor_scalar(dst=inverse, data=inverse, op0=nl.left_shift, operand0=MANTISSA_BITS)
    factor = new(most.shape, exact(absolute.dtype))
    scale, broken = new(most.shape, nl.uint8), new(most.shape, nl.int32)
    # most * 0 is 0, or NaN where there is no scale.
    nisa.scalar_tensor_tensor(
        dst=factor, data=most, op0=nl.multiply, operand0=0.0, op1=nl.add, operand1=inverse.view(nl.float32)
    )
    nisa.tensor_scalar(
        dst=broken, data=field, op0=nl.equal, operand0=SCALE_NAN, op1=nl.multiply, operand1=SCALE_NAN
    )
    nisa.tensor_tensor(dst=scale, data1=code, data2=broken, op=nl.maximum)
    return scale, factor


def scaled(x: Any, factor: Any, dtype: Any) -> Any:
    """Every value times the factor of its block. Dimensions: x [m, W], factor [m, G] -> [m, W]."""
    result = new(x.shape, dtype)
    scale_into(result, x, factor)
    return result


def scale_into(dst: Any, x: Any, factor: Any) -> None:
    """dst = every value times the factor of its block. Dimensions: dst, x [m, W], factor [m, G]."""
    blocks = (factor.shape[1], x.shape[1] // factor.shape[1])
    nisa.tensor_tensor(
        dst=dst.reshape_dim(1, blocks),
        data1=x.reshape_dim(1, blocks),
        data2=factor.expand_dim(2).broadcast(2, blocks[1]),
        op=nl.multiply,
    )


def widen_nibbles_into(dst: Any, data: Any, factor: Any) -> None:
    """dst = every element times the factor of its block. Dimensions: dst [m, W], uint8 data [m, W/2], factor [m, G]."""
    blocks = (factor.shape[1], BLOCK // 2)
    pairs = dst.reshape_dim(1, (data.shape[1], 2))
    for i, half in enumerate(from_nibbles(data)):
        nisa.scalar_tensor_tensor(
            dst=pairs[:, :, i].reshape_dim(1, blocks),
            data=half.reshape_dim(1, blocks),
            op0=nl.multiply,
            operand0=NIBBLE_UNIT,
            op1=nl.multiply,
            operand1=factor.expand_dim(2).broadcast(2, BLOCK // 2),
        )


def to_nibbles(values: Any, absolute: Any) -> Any:
    """Values to the nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6 with their signs, ties to the even code, two to a byte.

    Dimensions: values [m, W] for their signs, absolute [m, W], at most 6 or NaN (-> 0) -> uint8 [m, W/2].

    Codes 0 to 7 lie on a concave line of three pieces: code(v) = min(2v, v + 2, v/2 + 4). Each piece has whole numbers
    at its codes and an even offset, so rounding a piece to nearest even rounds to the even code.
    """
    shape = absolute.shape
    code = new(shape, nl.uint8)
    pieces = [new(shape, nl.uint8) for _ in range(3)]
    for piece, slope in zip(pieces, (2.0, 1.0, 0.5)):
        nisa.activation(dst=piece, op=nl.copy, data=absolute, scale=slope)
    nisa.scalar_tensor_tensor(
        dst=code, data=pieces[1], op0=nl.add, operand0=2.0, op1=nl.minimum, operand1=pieces[0]
    )
    nisa.scalar_tensor_tensor(
        dst=code, data=pieces[2], op0=nl.add, operand0=4.0, op1=nl.minimum, operand1=code
    )
    wide = values.dtype == nl.float32
    bits, places = (nl.uint32, 31) if wide else (nl.uint16, 15)
    sign, nibble = new(shape, bits), new(shape, nl.uint8)
    nisa.tensor_scalar(dst=sign, data=values.view(bits), op0=nl.right_shift, operand0=places)
    nisa.scalar_tensor_tensor(
        dst=nibble, data=sign, op0=nl.multiply, operand0=SIGN_OF_NIBBLE, op1=nl.add, operand1=code
    )
    pairs = nibble.reshape_dim(1, (shape[1] // 2, 2))
    result = new((shape[0], shape[1] // 2), nl.uint8)
    nisa.scalar_tensor_tensor(
        dst=result, data=pairs[:, :, 1], op0=nl.multiply, operand0=16.0, op1=nl.add, operand1=pairs[:, :, 0]
    )
    return result


def from_nibbles(data: Any) -> tuple[Any, Any]:
    """Lower and upper halves of bytes as float8_e4m3fn, each value divided by `NIBBLE_UNIT`, which is exact.

    Dimensions: uint8 [m, E] in SBUF, E a multiple of 4 -> two of [m, E]. Sign, exponent and mantissa of a nibble,
    s ee m, are put into the places of s eeee mmm; four bytes go at once, as an integer.
    """
    words = data.view(nl.uint32)
    halves = []
    for sign, rest, signs_up, rest_up in ((0x08080808, 0x07070707, 4, 2), (0x80808080, 0x70707070, 0, -2)):
        high, low = new(words.shape, nl.uint32), new(words.shape, nl.uint32)
        moved_into(high, words, sign, signs_up)
        moved_into(low, words, rest, rest_up)
        nisa.tensor_tensor(dst=low, data1=low, data2=high, op=nl.bitwise_or)
        halves.append(low.view(nl.float8_e4m3fn))
    return tuple(halves)


def moved_into(dst: Any, words: Any, mask: int, places: int) -> None:
    """dst = the masked bits, moved up, or down if `places` is negative."""
    shift = nl.right_shift if places < 0 else nl.left_shift
    nisa.tensor_scalar(
        dst=dst, data=words, op0=nl.bitwise_and, operand0=mask, op1=shift, operand1=abs(places)
    )


def new(shape: Any, dtype: Any) -> Any:
    """A tile in SBUF."""
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)
