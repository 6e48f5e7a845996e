"""Microscaled weights made wide: every element times its scale, exactly, as far as the wider type has the exponent."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl

UNDERSTATED = (
    2.0**126
)  # an fp4 element whose bits stand where bfloat16 has its own is so many times too small


def widen(dst: Any, elements: Any, scale: Any) -> None:
    """dst = elements * scale. Dimensions: all [p, ...]; elements fp8, scale float8_e8m0fnu or its bits."""
    nisa.tensor_tensor(dst=dst, data1=elements, data2=as_powers(scale), op=nl.multiply)


def widen_pairs(low: Any, high: Any, elements: Any, scale: Any) -> None:
    """low, high = the lower and the upper four bits of each byte as fp4 (e2m1), times scale. Dimensions: all [p, ...].

    The three bits of the magnitude become the lowest exponent bits and the highest mantissa bit of a bfloat16: that
    number is 2^-126 times the element, for 0 and 0.5, which are subnormal, too.
    """
    wide = nl.ndarray(elements.shape, dtype=nl.uint16, buffer=nl.sbuf)
    nisa.tensor_copy(dst=wide, src=elements, engine=nisa.engine.scalar)
    for dst, magnitude, sign, shifts in ((low, 0x07, 0x08, (6, 12)), (high, 0x70, 0x80, (2, 8))):
        bits = nl.ndarray(elements.shape, dtype=nl.uint16, buffer=nl.sbuf)
        minus = nl.ndarray(elements.shape, dtype=nl.uint16, buffer=nl.sbuf)
        for part, mask, shift in ((bits, magnitude, shifts[0]), (minus, sign, shifts[1])):
            nisa.tensor_scalar(
                dst=part, data=wide, op0=nl.bitwise_and, operand0=mask, op1=nl.left_shift, operand1=shift
            )
        nisa.tensor_tensor(dst=bits, data1=bits, data2=minus, op=nl.bitwise_or)
        nisa.scalar_tensor_tensor(
            dst=dst,
            data=bits.view(nl.bfloat16),
            op0=nl.multiply,
            operand0=UNDERSTATED,
            op1=nl.multiply,
            operand1=as_powers(scale),
        )


def as_powers(scale: Any) -> Any:
    """Bits of exponents as the numbers they mean."""
    return scale.view(nl.float8_e8m0fnu) if scale.dtype == nl.uint8 else scale
