"""The calls of the kernel that the README shows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from nki_lib.common.cases import Case
from nki_lib.optimizer.adamw.kernel import adamw

BF16, F32 = ml_dtypes.bfloat16, np.float32
MIB = 2**20


def arguments(count: int, param: Any, state: Any) -> tuple[Any, ...]:
    """Parameter and gradient in one type, moments in another."""
    coefficients = np.array([0.9, 0.1, 0.999, 0.03, 1.0, 1e-8, -1e-3, 1.0], np.float32)
    return (
        *(np.zeros(count, param) for _ in range(2)),
        *(np.zeros(count, state) for _ in range(2)),
        coefficients,
    )


def moved(count: int, param: Any, state: Any) -> int:
    """Three of param's type, the gradient being read only, and four of the state's."""
    return count * (3 * np.dtype(param).itemsize + 4 * np.dtype(state).itemsize)


CASES = tuple(
    Case(
        label,
        adamw,
        lambda call=call: arguments(*call),
        bound="bandwidth",
        bytes=moved(*call),
    )
    for label, call in (
        ("16 Mi, f32", (16 * MIB, F32, F32)),
        ("16 Mi, bf16, state f32", (16 * MIB, BF16, F32)),
        ("16 Mi, bf16, state bf16", (16 * MIB, BF16, BF16)),
        ("1 Mi, f32", (MIB, F32, F32)),
        ("4096, f32", (4096, F32, F32)),
    )
)
