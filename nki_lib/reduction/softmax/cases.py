"""The calls whose times the README shows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from nki_lib.common.cases import Case
from nki_lib.reduction.softmax.backward import softmax_backward
from nki_lib.reduction.softmax.kernel import softmax

BF16 = ml_dtypes.bfloat16


def case(label: str, rows: int, width: int, dtype: Any, columns: bool = False) -> Case:
    """Softmax of rows, or of columns."""
    shape = (width, rows) if columns else (rows, width)
    return Case(label, softmax, lambda: (np.zeros(shape, dtype), columns, None), bound="bandwidth")


def gradient(label: str, rows: int, width: int, dtype: Any) -> Case:
    """Its gradient."""

    def arguments() -> tuple[Any, ...]:
        return np.zeros((rows, width), dtype), np.zeros((rows, width), dtype), False, None

    return Case(label, softmax_backward, arguments, bound="bandwidth")


CASES = (
    case("[4096, 4096], bf16", 4096, 4096, BF16),
    case("[4096, 4096], f32", 4096, 4096, np.float32),
    case("[8192, 2048], bf16", 8192, 2048, BF16),
    case("[8192, 2048], f32", 8192, 2048, np.float32),
    case("[4096, 4096], bf16, columns", 4096, 4096, BF16, columns=True),
    case("[1024, 32768], bf16, in parts", 1024, 32768, BF16),
    gradient("[4096, 4096], bf16, gradient", 4096, 4096, BF16),
)
