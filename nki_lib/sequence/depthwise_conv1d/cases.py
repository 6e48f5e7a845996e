"""The calls whose predicted times the README shows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from nki_lib.common.cases import Case
from nki_lib.sequence.depthwise_conv1d.backward import depthwise_conv1d_backward
from nki_lib.sequence.depthwise_conv1d.kernel import depthwise_conv1d

BF16 = ml_dtypes.bfloat16


def arguments(channels: int, length: int, taps: int, dtype: Any, silu: bool) -> tuple[Any, ...]:
    """A causal call of the kernel."""
    x, weight = np.ones((channels, length), dtype), np.ones((channels, taps), dtype)
    return x, weight, weight[:, 0].copy(), taps - 1, 0, silu, False, None


def case(label: str, channels: int, length: int, taps: int, dtype: Any, silu: bool = True) -> Case:
    """A row of the table."""
    return Case(label, depthwise_conv1d, lambda: arguments(channels, length, taps, dtype, silu))


def gradient() -> tuple[Any, ...]:
    """A call of the gradient's kernel."""
    x, weight, bias, left, *_ = arguments(4096, 4096, 4, BF16, True)
    return x, x, weight, bias, left, True


CASES = (
    case("C 4096, L 4096, K 4, silu, bf16", 4096, 4096, 4, BF16),
    case("C 4096, L 4096, K 4, silu, f32", 4096, 4096, 4, np.float32),
    case("C 4096, L 4096, K 4, bf16", 4096, 4096, 4, BF16, False),
    case("C 2048, L 2048, K 4, silu, bf16", 2048, 2048, 4, BF16),
    case("C 1024, L 4096, K 31, bf16", 1024, 4096, 31, BF16, False),
    Case("the first one's gradients of sums and taps", depthwise_conv1d_backward, gradient),
)
