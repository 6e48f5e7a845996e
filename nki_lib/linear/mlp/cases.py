"""The calls whose predicted times the README shows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from nki_lib.common.cases import Case
from nki_lib.linear.mlp.kernel import mlp

NONE = (None, None, None)


def arguments(rows: int, width: int, hidden: int, gated: bool = True) -> tuple[Any, ...]:
    """A call of the kernel in bfloat16, with rms_norm and residual."""
    x = np.zeros((rows, width), ml_dtypes.bfloat16)
    up, down = np.zeros((hidden, width), x.dtype), np.zeros((width, hidden), x.dtype)
    norm = ("rms", x[0], None, 1e-6, 0.0)
    gate = np.zeros_like(up) if gated else None
    return x, x, (gate, up, down), NONE, NONE, norm, "silu" if gated else "gelu", None


def in_8_bits() -> tuple[Any, ...]:
    """One row, weights in 8 bits."""
    x, residual, weights, biases, _, *rest = arguments(1, 2048, 5632)
    narrow = tuple(weight.astype(ml_dtypes.float8_e4m3fn) for weight in weights)
    scales = tuple(np.ones(len(weight), np.float32) for weight in weights)
    return x, residual, narrow, biases, scales, *rest


def few(rows: int) -> Case:
    """Rows of a decoder: the weights set the pace."""
    label = f"T {rows}, H 2048, I 5632, bf16"
    return Case(label, mlp, lambda: arguments(rows, 2048, 5632), bound="bandwidth", bytes=3 * 2 * 2048 * 5632)


CASES = (
    few(1),
    few(16),
    Case("T 1, weights in 8 bits", mlp, in_8_bits, bound="bandwidth", bytes=3 * 2048 * 5632),
    Case("T 512, H 2048, I 5632, bf16", mlp, lambda: arguments(512, 2048, 5632)),
    Case("T 4096, H 2048, I 5632, bf16", mlp, lambda: arguments(4096, 2048, 5632)),
    Case("T 1024, H 1024, I 4096, no gate, gelu, bf16", mlp, lambda: arguments(1024, 1024, 4096, False)),
)
