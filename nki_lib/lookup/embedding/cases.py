"""The calls of the kernels that the README shows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from nki_lib.common.cases import Case
from nki_lib.lookup.embedding.kernel import embedding, embedding_backward

BF16 = ml_dtypes.bfloat16
TABLE = 32768


def ids(count: int) -> np.ndarray[Any, Any]:
    """Ids without order, a few of them more than once."""
    return np.random.default_rng(0).integers(0, TABLE, count, np.int32)


def forward(count: int, width: int, scale: float | None) -> tuple[Any, ...]:
    """The arguments of the lookup."""
    return ids(count), np.zeros((TABLE, width), BF16), scale


def backward(count: int, width: int) -> tuple[Any, ...]:
    """The arguments of the way back."""
    return np.zeros((TABLE, width), np.float32), np.zeros((count, width), BF16), ids(count), None


def bytes_of_lookup(count: int, width: int) -> int:
    """A row read and written for each id."""
    return count * (2 * width * 2 + 4)


def bytes_of_gradient(count: int, width: int) -> int:
    """A gradient read, a row of sums read and written for each id."""
    return count * ((2 + 4 + 4) * width + 4)


CASES = (
    *(
        Case(
            f"forward, N {count}, H {width}, bf16{', scaled' if scale else ''}",
            embedding,
            lambda count=count, width=width, scale=scale: forward(count, width, scale),
            bound="bandwidth",
            bytes=bytes_of_lookup(count, width),
        )
        for count, width, scale in (
            (2048, 4096, None),
            (2048, 4096, 64.0),
            (2048, 256, None),
            (64, 4096, None),
        )
    ),
    *(
        Case(
            f"backward, N {count}, H {width}, bf16",
            embedding_backward,
            lambda count=count, width=width: backward(count, width),
            bound="bandwidth",
            bytes=bytes_of_gradient(count, width),
        )
        for count, width in ((2048, 4096), (2048, 256))
    ),
)
