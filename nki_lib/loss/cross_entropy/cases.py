"""The calls of the kernels that the README shows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from nki_lib.common.cases import Case
from nki_lib.loss.cross_entropy.kernel import cross_entropy, cross_entropy_backward


def forward(rows: int, classes: int, dtype: Any) -> tuple[Any, ...]:
    """The arguments of the way there."""
    return np.zeros((rows, classes), dtype), np.zeros(rows, np.int32)


def backward(rows: int, classes: int, dtype: Any) -> tuple[Any, ...]:
    """The arguments of the way back."""
    column = np.zeros(rows, np.float32)
    return column, *forward(rows, classes, dtype), column


BF16 = ml_dtypes.bfloat16
MODEL, LARGE = (4096, 32768, BF16), (512, 262144, BF16)


def case(way: str, kernel: Any, sizes: tuple[int, int, Any], option: str = "", **options: Any) -> Case:
    """A call, compared with moving logits, and their gradient."""
    make = forward if kernel is cross_entropy else backward
    label = f"{way}, N {sizes[0]}, V {sizes[1]}, bf16{option}"
    return Case(label, kernel, lambda: make(*sizes), options, bound="bandwidth")


CASES = (
    case("forward", cross_entropy, MODEL),
    case("forward", cross_entropy, LARGE),
    case("forward", cross_entropy, MODEL, ", smoothing", smoothing=0.1),
    case("forward", cross_entropy, MODEL, ", softcap", cap=30.0),
    case("backward", cross_entropy_backward, MODEL),
    case("backward", cross_entropy_backward, MODEL, ", softcap", cap=30.0),
)
