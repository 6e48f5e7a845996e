"""The calls of the kernel that the README shows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from nki_lib.common.cases import Case
from nki_lib.loss.linear_cross_entropy.kernel import linear_cross_entropy

BF16 = ml_dtypes.bfloat16


def arguments(rows: int, width: int, classes: int) -> tuple[Any, ...]:
    """Rows, their targets and the projection."""
    return np.zeros((rows, width), BF16), np.zeros(rows, np.int32), np.zeros((classes, width), BF16)


CASES = tuple(
    Case(f"N {n}, H {h}, V {v}, bf16", linear_cross_entropy, lambda call=(n, h, v): arguments(*call))
    for n, h, v in ((512, 2048, 32768), (1024, 1024, 32768), (128, 4096, 32768))
)
