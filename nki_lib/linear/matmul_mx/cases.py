"""The calls whose times the README shows."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from nki_lib.common.cases import Bound, Case
from nki_lib.linear.matmul_mx.kernel import matmul_mx
from nki_lib.quantization.formats import BLOCK, FORMATS


def _case(
    sizes: tuple[int, int, int], format: str, bound: Bound, leading: bool = False, quantized: bool = False
) -> Case:
    """a [M, K] in bfloat16, or in float8 if `quantized`, times a weight [N, K], or [K, N] if `leading`."""
    rows, depth, columns = sizes
    packed = FORMATS[format].packed

    def arguments() -> tuple[object, ...]:
        shapes = (columns, depth // packed), (columns, depth // BLOCK)
        weight, scale = (np.zeros(shape[::-1] if leading else shape, np.uint8) for shape in shapes)
        a = np.zeros((rows, depth), np.uint8 if quantized else ml_dtypes.bfloat16)
        a_scale = np.zeros((rows, depth // BLOCK), np.uint8) if quantized else None
        return a, a_scale, weight, scale, None, "mxfp8_e4m3", format, leading, "bfloat16"

    order = "[K, N]" if leading else "[N, K]"
    kind = "quantised" if quantized else "bf16"
    return Case(
        f"{rows} x {depth} x {columns}, a {kind}, b {format} {order}", matmul_mx, arguments, bound=bound
    )


CASES = (
    _case((1, 4096, 4096), "mxfp8_e4m3", "bandwidth"),
    _case((1, 4096, 4096), "mxfp4_e2m1", "bandwidth"),
    _case((512, 4096, 4096), "mxfp8_e4m3", "engine"),
    _case((2048, 4096, 4096), "mxfp8_e4m3", "engine"),
    _case((2048, 4096, 4096), "mxfp4_e2m1", "engine", quantized=True),
    _case((2048, 4096, 4096), "mxfp8_e4m3", "engine", leading=True),
)
