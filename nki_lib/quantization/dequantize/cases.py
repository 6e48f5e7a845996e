"""The calls whose times the README shows."""

from __future__ import annotations

import numpy as np

from nki_lib.common.cases import Case
from nki_lib.quantization.dequantize.kernel import dequantize
from nki_lib.quantization.formats import FORMATS

ROWS = WIDTH = 2048


def _case(format: str, dtype: str) -> Case:
    made = FORMATS[format]
    scale = np.dtype(np.uint8 if made.blocks else np.float32)

    def arguments() -> tuple[object, ...]:
        data = np.zeros((ROWS, WIDTH // made.packed), np.uint8)
        return data, np.zeros((ROWS, made.scales(WIDTH)), scale), format, dtype

    return Case(f"{format} to {dtype}, {ROWS} x {WIDTH}", dequantize, arguments, bound="bandwidth")


CASES = (
    _case("float8_e4m3fn", "bfloat16"),
    _case("mxfp8_e4m3", "bfloat16"),
    _case("mxfp8_e4m3", "float32"),
    _case("mxfp4_e2m1", "bfloat16"),
)
