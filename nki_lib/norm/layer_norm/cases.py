"""The calls whose predicted times the README shows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from nki_lib.common.cases import Case
from nki_lib.norm.layer_norm.backward import layer_norm_backward
from nki_lib.norm.layer_norm.kernel import layer_norm


def arguments(rows: int, width: int, dtype: Any, vectors: Any, residual: bool) -> tuple[Any, ...]:
    """A call of the kernel; `vectors`, the dtype of weight and bias."""
    x, vector = np.ones((rows, width), dtype), np.ones(width, vectors)
    return x, x if residual else None, vector, vector, 1e-5, None


def case(label: str, rows: int, width: int, dtype: Any, vectors: Any, residual: bool = False) -> Case:
    """A row of the table."""
    return Case(
        label, layer_norm, lambda: arguments(rows, width, dtype, vectors, residual), bound="bandwidth"
    )


def gradient() -> tuple[Any, ...]:
    """A call of the gradient's kernel."""
    x = np.ones((4096, 2048), ml_dtypes.bfloat16)
    return x, x, None, x[0], 1e-5


CASES = (
    case("R 4096, H 2048, bf16", 4096, 2048, ml_dtypes.bfloat16, ml_dtypes.bfloat16),
    case("R 4096, H 2048, bf16, f32 weight and bias", 4096, 2048, ml_dtypes.bfloat16, np.float32),
    case("R 4096, H 2048, f32", 4096, 2048, np.float32, np.float32),
    case("R 8192, H 4096, bf16", 8192, 4096, ml_dtypes.bfloat16, ml_dtypes.bfloat16),
    case("the first with a residual", 4096, 2048, ml_dtypes.bfloat16, ml_dtypes.bfloat16, True),
    Case("its gradient of x", layer_norm_backward, gradient, bound="bandwidth"),
)
