"""Calls whose predicted time the README shows."""

from __future__ import annotations

from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from nki_lib.common.cases import Case
from nki_lib.moe.moe_decode.kernel import moe_decode

BF16 = ml_dtypes.bfloat16
EXPERTS, CHOICES, WIDTH, INNER = 64, 8, 2048, 768


def call(tokens: int, kind: Any = BF16) -> tuple[Any, ...]:
    """Random choices; everything else is zero, as times do not depend on it."""
    random = np.random.default_rng(0)
    indices = random.random((tokens, EXPERTS)).argsort(1)[:, :CHOICES].astype(np.int32)
    given = np.zeros((tokens, CHOICES), np.float32)
    gate_up, down = np.zeros((EXPERTS, WIDTH, 2, INNER), kind), np.zeros((EXPERTS, INNER, WIDTH), kind)
    return np.zeros((tokens, WIDTH), BF16), gate_up, down, given, indices


def bytes_of_chosen(tokens: int, itemsize: int = 2) -> int:
    """Of the weights of the distinct experts that the tokens of `call` choose."""
    indices = call(tokens)[4]
    return len(np.unique(indices)) * 3 * WIDTH * INNER * itemsize


def with_blocks(packed: int, kind: Any) -> tuple[Any, ...]:
    """The arguments for one token with MX weights."""
    x, gate_up, down, *routing = call(1, kind)
    scales = (
        np.zeros((EXPERTS, WIDTH // 32, 2, INNER), np.uint8),
        np.zeros((EXPERTS, INNER // 32, WIDTH), np.uint8),
    )
    return x, gate_up[:, ::packed].copy(), down[:, ::packed].copy(), *routing, None, None, *scales


SCALES = {
    "gate_up_scale": np.zeros((EXPERTS, 2, INNER), np.float32),
    "down_scale": np.zeros((EXPERTS, WIDTH), np.float32),
}
MODEL = "8 of 64, H 2048, I 768"
CASES = (
    *(
        Case(
            f"T {tokens}, {MODEL}, bf16",
            moe_decode,
            partial(call, tokens),
            bound="bandwidth",
            bytes=bytes_of_chosen(tokens),
        )
        for tokens in (1, 16, 128)
    ),
    Case(
        "T 128, all experts, bf16",
        moe_decode,
        partial(call, 128),
        {"chosen": False},
        bound="bandwidth",
        bytes=EXPERTS * 3 * WIDTH * INNER * 2,
    ),
    *(
        Case(
            f"T 1, fp8 by channel ({name})",
            moe_decode,
            partial(call, 1, kind),
            SCALES,
            bound="bandwidth",
            bytes=bytes_of_chosen(1, 1),
        )
        for name, kind in (("e5m2", ml_dtypes.float8_e5m2), ("e4m3fn", ml_dtypes.float8_e4m3fn))
    ),
    *(
        Case(
            f"T 1, {name}",
            moe_decode,
            partial(with_blocks, packed, kind),
            bound="bandwidth",
            bytes=bytes_of_chosen(1, 1) * (32 // packed + 1) // 32,
        )
        for name, packed, kind in (("MXFP8", 1, ml_dtypes.float8_e4m3fn), ("MXFP4", 2, np.uint8))
    ),
)
