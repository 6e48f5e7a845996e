"""The calls whose times the README shows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from nki_lib.common.cases import Case
from nki_lib.quantization.quantize.kernel import quantize_blocks, quantize_vectors


def _case(label: str, kernel: Any, format: str, dtype: Any, rows: int = 2048, width: int = 2048) -> Case:
    return Case(label, kernel, lambda: (np.zeros((rows, width), dtype), format), bound="bandwidth")


CASES = (
    _case("float8_e4m3fn, 2048 x 2048, bf16", quantize_vectors, "float8_e4m3fn", ml_dtypes.bfloat16),
    _case("float8_e4m3fn, 2048 x 2048, f32", quantize_vectors, "float8_e4m3fn", np.float32),
    _case("mxfp8_e4m3, 2048 x 2048, bf16", quantize_blocks, "mxfp8_e4m3", ml_dtypes.bfloat16),
    _case("mxfp8_e4m3, 2048 x 2048, f32", quantize_blocks, "mxfp8_e4m3", np.float32),
    _case("mxfp4_e2m1, 2048 x 2048, bf16", quantize_blocks, "mxfp4_e2m1", ml_dtypes.bfloat16),
)
