"""The calls whose predicted times the README shows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from nki_lib.common.cases import Case
from nki_lib.sequence.selective_scan.backward import selective_scan_backward
from nki_lib.sequence.selective_scan.channels import part_width
from nki_lib.sequence.selective_scan.kernel import selective_scan

BF16 = ml_dtypes.bfloat16


def arguments(channels: int, states: int, length: int, dtype: Any) -> tuple[Any, ...]:
    """All that Mamba passes."""
    x, shared = np.ones((channels, length), dtype), np.ones((states, length), dtype)
    rates, vector = np.zeros((channels, states), np.float32), np.ones(channels, np.float32)
    return x, x, rates, shared, shared, vector, x, vector, True


def gradient(channels: int, states: int, length: int, dtype: Any) -> tuple[Any, ...]:
    """The same for the gradient's kernel."""
    *tensors, softplus = arguments(channels, states, length, dtype)
    ends = np.zeros((-(-length // part_width(states)), channels, states), np.float32)
    return tensors[0], *tensors, ends, tensors[0], None, softplus


CASES = (
    Case("d 2048, n 16, l 2048, bf16", selective_scan, lambda: arguments(2048, 16, 2048, BF16)),
    Case("d 2048, n 16, l 2048, f32", selective_scan, lambda: arguments(2048, 16, 2048, np.float32)),
    Case("d 1536, n 16, l 512, bf16", selective_scan, lambda: arguments(1536, 16, 512, BF16)),
    Case("d 1024, n 64, l 1024, bf16", selective_scan, lambda: arguments(1024, 64, 1024, BF16)),
    Case("the first one's gradients", selective_scan_backward, lambda: gradient(2048, 16, 2048, BF16)),
)
