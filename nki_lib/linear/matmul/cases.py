"""The calls of the README's table."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from nki_lib.common.cases import Case
from nki_lib.linear.matmul.fused import matmul_fused
from nki_lib.linear.matmul.kernel import matmul

WIDTH = 4096
BF16, E4M3, E5M2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2


def plain(rows: int, b_leading: bool) -> tuple[Any, ...]:
    """a [rows, 4096], row after row, times b [4096, 4096], as it is or as the weight of a linear layer."""
    return np.zeros((rows, WIDTH), BF16), np.zeros((WIDTH, WIDTH), BF16), False, b_leading


def narrow(rows: int, a_dtype: Any, b_dtype: Any) -> tuple[Any, ...]:
    """The same with a weight [4096, 4096] of 8 bits and a scale for each of its rows, and one of a if that is too."""
    a, b = np.zeros((rows, WIDTH), a_dtype), np.zeros((WIDTH, WIDTH), b_dtype)
    scales = np.ones(rows, np.float32) if a_dtype != BF16 else None
    return a, scales, b, np.ones(WIDTH, np.float32), None, False, False, None, "bfloat16"


def odd() -> tuple[Any, ...]:
    """1000 x 3000 x 1111 with bias and gelu."""
    a, b, bias = np.zeros((1000, 3000), BF16), np.zeros((3000, 1111), BF16), np.zeros(1111, BF16)
    return a, None, b, None, bias, False, True, "gelu", "bfloat16"


CASES = (
    Case("4096^3, bf16", matmul, lambda: plain(4096, True)),
    Case("4096^3, bf16, weight [N, K]", matmul, lambda: plain(4096, False)),
    Case("4096^3, e5m2, weight [N, K]", matmul_fused, lambda: narrow(4096, E5M2, E5M2)),
    Case("4096^3, e4m3fn, weight [N, K]", matmul_fused, lambda: narrow(4096, E4M3, E4M3)),
    Case("1000 x 3000 x 1111, bf16, bias, gelu", matmul_fused, odd),
    Case("[16, 4096] x [4096, 4096], bf16", matmul, lambda: plain(16, True), bound="bandwidth"),
    Case("16 rows, bf16, weight [N, K]", matmul, lambda: plain(16, False), bound="bandwidth"),
    Case(
        "16 rows, bf16, e4m3fn weight [N, K]", matmul_fused, lambda: narrow(16, BF16, E4M3), bound="bandwidth"
    ),
)
