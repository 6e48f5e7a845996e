"""What all bounds of results share: the number formats, and what rounding to them costs.

u = UNIT = 2^-24 is the unit roundoff of float32, in which kernels compute. A sum of n rounded terms is off by less than
4 sqrt(n) u times the sum of their magnitudes, as rounding errors are as good as independent.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

UNIT = 2.0**-24
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def wide(tensor: Tensor | None) -> Tensor | None:
    """The tensor in float64, without its gradient."""
    return None if tensor is None else tensor.detach().double()


def stored(exact: Tensor, error: Tensor, dtype: Any) -> Tensor:
    """The bound of a result in `dtype` that was off by `error` before it was stored.

    Half a step of the type, relative; below its smallest normal number nothing is promised.
    """
    narrow = torch.finfo(dtype)
    return error * (1 + narrow.eps) + narrow.eps / 2 * exact.abs() + narrow.tiny


def product_error(depth: int, magnitude: Tensor, rounded: float = 0.0) -> Tensor:
    """Of a sum of `depth` products, one factor of which carries the relative error `rounded`."""
    return ((4 * depth**0.5 + 4) * UNIT + rounded) * magnitude
