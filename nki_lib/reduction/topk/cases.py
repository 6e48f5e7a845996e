"""The calls whose times the README shows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from nki_lib.common.cases import Case
from nki_lib.reduction.topk.kernel import topk

BF16 = ml_dtypes.bfloat16


def case(label: str, rows: int, width: int, k: int, dtype: Any) -> Case:
    """The largest elements of rows."""
    return Case(label, topk, lambda: (np.zeros((rows, width), dtype), k, True))


CASES = (
    case("8 of [4096, 256], bf16", 4096, 256, 8, BF16),
    case("64 of [1024, 4096], bf16", 1024, 4096, 64, BF16),
    case("50 of [1, 128256], f32", 1, 128256, 50, np.float32),
    case("50 of [16, 128256], f32", 16, 128256, 50, np.float32),
    case("256 of [128, 65536], f32", 128, 65536, 256, np.float32),
)
