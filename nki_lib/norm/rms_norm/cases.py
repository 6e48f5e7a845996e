"""The calls whose predicted times the README shows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from nki_lib.common.cases import Case
from nki_lib.norm.rms_norm.backward import rms_norm_backward
from nki_lib.norm.rms_norm.kernel import rms_norm


def arguments(rows: int, width: int, dtype: Any, residual: bool, quantize: str | None) -> tuple[Any, ...]:
    """A call of the kernel."""
    x = np.ones((rows, width), dtype)
    return x, x if residual else None, np.ones(width, dtype), 1e-6, 0.0, quantize


def case(
    label: str, rows: int, width: int, dtype: Any, residual: bool = False, quantize: str | None = None
) -> Case:
    """A row of the table."""
    return Case(label, rms_norm, lambda: arguments(rows, width, dtype, residual, quantize), bound="bandwidth")


def gradient() -> tuple[Any, ...]:
    """A call of the gradient's kernel."""
    x = np.ones((4096, 2048), ml_dtypes.bfloat16)
    return x, x, None, x[0], 1e-6, 0.0


CASES = (
    case("R 4096, H 2048, bf16", 4096, 2048, ml_dtypes.bfloat16),
    case("R 4096, H 2048, f32", 4096, 2048, np.float32),
    case("R 8192, H 4096, bf16", 8192, 4096, ml_dtypes.bfloat16),
    case("the first with a residual", 4096, 2048, ml_dtypes.bfloat16, True),
    case("the first to mxfp8_e4m3", 4096, 2048, ml_dtypes.bfloat16, False, "mxfp8_e4m3"),
    Case("its gradient of x", rms_norm_backward, gradient, bound="bandwidth"),
)
