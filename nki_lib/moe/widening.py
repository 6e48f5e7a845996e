"""Elements of microscaled (MX) weights made wide: each times its scale, exactly, as far as the wider type reaches.

An fp4 element is a code s e e m. With e e m at the end of the exponent and the beginning of the mantissa of a bfloat16
or float32 it is its value times 2^-126, also where e = 0: there the number below normal is m/2 again.
"""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl

UNDERSTATED = 2.0**126  # an fp4 element whose bits are in place is so many times too small


def place_codes(bits: Any, codes: Any, half: int) -> None:
    """bits = the fp4 codes in the lower (0) or the upper (1) four bits of each byte, as the bits of wide numbers.

    Dimensions: bits uint16 (bfloat16) or uint32 (float32), codes uint8 or as bits, of one shape.
    """
    sign, low = (31, 22) if bits.dtype == nl.uint32 else (15, 6)
    signs = nl.ndarray(bits.shape, dtype=bits.dtype, buffer=nl.sbuf)
    for dst, mask, place in ((bits, 0x7, low), (signs, 0x8, sign - 3)):
        nisa.tensor_scalar(
            dst=dst,
            data=codes,
            op0=nl.bitwise_and,
            operand0=mask << 4 * half,
            op1=nl.left_shift,
            operand1=place - 4 * half,
        )
    nisa.tensor_tensor(dst=bits, data1=bits, data2=signs, op=nl.bitwise_or)


def multiply_scales(dst: Any, values: Any, scales: Any, packed: int) -> None:
    """dst = values * scales; fp4 elements (packed = 2) are as `place_codes` leaves them."""
    if packed == 1:
        nisa.tensor_tensor(dst=dst, data1=values, data2=scales, op=nl.multiply)
        return
    nisa.scalar_tensor_tensor(
        dst=dst, data=values, op0=nl.multiply, operand0=UNDERSTATED, op1=nl.multiply, operand1=scales
    )
