"""Calls whose predicted time the README shows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from nki_lib.common.cases import Case
from nki_lib.moe.moe_prefill.kernel import moe_prefill

BF16 = ml_dtypes.bfloat16
FP8 = ml_dtypes.float8_e4m3fn


def call(
    tokens: int, experts: int, choices: int, width: int, inner: int, kind: Any = BF16, dtype: Any = BF16
) -> tuple[Any, ...]:
    """Random choices; everything else is zero, as times do not depend on it."""
    random = np.random.default_rng(0)
    indices = random.random((tokens, experts)).argsort(1)[:, :choices].astype(np.int32)
    packed = 2 if kind == np.uint8 else 1
    weights = (
        np.zeros((experts, width // packed, 2, inner), kind),
        np.zeros((experts, inner // packed, width), kind),
    )
    return np.zeros((tokens, width), dtype), *weights, np.zeros((tokens, choices), np.float32), indices


def with_scales(*sizes: int) -> tuple[Any, ...]:
    """The arguments with fp8 weights and a scale for each channel."""
    _, experts, _, width, inner = sizes
    scales = np.zeros((experts, 2, inner), np.float32), np.zeros((experts, width), np.float32)
    return *call(*sizes, kind=FP8), "swiglu", 1.702, 7.0, 0, None, None, *scales


def with_blocks(*sizes: int, kind: Any = FP8) -> tuple[Any, ...]:
    """The arguments with MX weights."""
    _, experts, _, width, inner = sizes
    scales = (
        np.zeros((experts, width // 32, 2, inner), np.uint8),
        np.zeros((experts, inner // 32, width), np.uint8),
    )
    return *call(*sizes, kind=kind), "swiglu", 1.702, 7.0, 0, None, None, *scales


LARGE = (4096, 64, 8, 2048, 768)
SMALL = (1024, 16, 8, 2048, 768)
CASES = (
    Case("T 4096, 8 of 64, H 2048, I 768, bf16", moe_prefill, lambda: call(*LARGE)),
    Case("T 1024, 8 of 16, H 2048, I 768, bf16", moe_prefill, lambda: call(*SMALL)),
    Case(
        "T 1024, 4 of 8, H 1024, I 768, f32",
        moe_prefill,
        lambda: call(1024, 8, 4, 1024, 768, kind=np.float32, dtype=np.float32),
    ),
    Case("bf16 as above, fp8 by channel", moe_prefill, lambda: with_scales(*SMALL)),
    Case("bf16 as above, MXFP8", moe_prefill, lambda: with_blocks(*SMALL)),
    Case("bf16 as above, MXFP4", moe_prefill, lambda: with_blocks(*SMALL, kind=np.uint8)),
)
