"""The calls whose times the README shows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from nki_lib.common.cases import Case
from nki_lib.moe.router_topk.kernel import router_topk

BF16 = ml_dtypes.bfloat16


def case(label: str, tokens: int, experts: int, *rest: Any, dtype: Any = BF16, losses: bool = False) -> Case:
    """A call with a bias if the scores are sigmoids."""

    def arguments() -> tuple[Any, ...]:
        bias = np.zeros(experts, np.float32) if rest[1] == "sigmoid" else None
        valid = np.ones(tokens, np.float32) if losses else None
        return np.zeros((tokens, experts), dtype), bias, valid, *rest

    return Case(label, router_topk, arguments)


CASES = (
    case("T 4096, 8 of 128, softmax, bf16", 4096, 128, 8, "softmax", True, 1, 1, 1.0),
    case("the same with losses", 4096, 128, 8, "softmax", True, 1, 1, 1.0, losses=True),
    case("T 4096, 4 of 32, topk_softmax, bf16", 4096, 32, 4, "topk_softmax", True, 1, 1, 1.0),
    case("T 4096, 8 of 256 in 8 groups, f32", 4096, 256, 8, "sigmoid", True, 8, 4, 2.5, dtype=np.float32),
    case("T 16, 8 of 128, softmax, bf16", 16, 128, 8, "softmax", True, 1, 1, 1.0),
)
