"""The calls whose times the README shows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from nki_lib.common.cases import Case
from nki_lib.reduction.cumsum.kernel import cumsum

BF16 = ml_dtypes.bfloat16


def case(label: str, rows: int, width: int, dtype: Any, columns: bool = False, reverse: bool = False) -> Case:
    """Running sums of rows, or of columns."""
    shape = (width, rows) if columns else (rows, width)
    return Case(label, cumsum, lambda: (np.zeros(shape, dtype), columns, reverse, None), bound="bandwidth")


CASES = (
    case("[4096, 4096], bf16", 4096, 4096, BF16),
    case("[4096, 4096], f32", 4096, 4096, np.float32),
    case("[4096, 4096], f32, in reverse", 4096, 4096, np.float32, reverse=True),
    case("[4096, 4096], bf16, columns", 4096, 4096, BF16, columns=True),
    case("[256, 65536], bf16, in parts", 256, 65536, BF16),
    case("[65536, 16], f32, short", 65536, 16, np.float32),
    case("[1024, 4096], int32", 1024, 4096, np.int32),
)
