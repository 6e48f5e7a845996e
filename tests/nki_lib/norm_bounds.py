"""How far normalised rows may be from the exact result, element by element, derived from the number formats.

Write u = 2^-24 for the unit roundoff of float32, w for that of the rows' type. As in `format_bounds.py`, a sum of n
rounded terms is off by less than 4 sqrt(n) u times the sum of magnitudes.

* A root of a mean of squares, and the products after it: t = (4 sqrt(H) + 16) u of the normalised row.
* A mean is off by 4 sqrt(H) u times the mean magnitude, and subtracting it rounds: t of r (|x| + mean |x|), where r is
  the inverse deviation, scaled by the weight as the row is.
* Where layer_norm works in 16 bits, the normalised row and its product with the weight are rounded by w each: 2 w of
  their product.
* The result is stored with w of itself; below the smallest normal number of the type nothing is promised.
* A gradient of a row is a difference of up to three vectors of the size of r |g|, each off by t of the largest; a
  gradient of a weight is a sum over R rows of such terms, off by (4 sqrt(R) + 16) u + t of the sum of magnitudes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.nki_lib.format_bounds import UNIT, stored, wide


def relative(width: int) -> float:
    """t: what statistics of so many columns and the products after them may be off by."""
    return (4 * width**0.5 + 16) * UNIT


def rms_exact(rows: Tensor, weight: Tensor | None, eps: float, offset: float) -> Tensor:
    """rms_norm in float64."""
    exact = wide(rows)
    normal = exact / torch.sqrt((exact * exact).mean(-1, keepdim=True) + eps)
    return normal if weight is None else normal * (offset + wide(weight))


def rms_bound(exact: Tensor, dtype: Any, weight: Tensor | None, offset: float) -> Tensor:
    """What rms_norm may be off by; a weight near -offset loses the places that the two share."""
    lost = 0.0
    if weight is not None and offset:
        lost = (exact / (offset + wide(weight))).nan_to_num().abs() * (abs(offset) + wide(weight).abs())
    return stored(exact, relative(exact.shape[-1]) * (exact.abs() + lost), dtype)


def layer_exact(rows: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """layer_norm in float64."""
    exact = wide(rows)
    centred = exact - exact.mean(-1, keepdim=True)
    normal = centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + eps)
    scaled = normal if weight is None else normal * wide(weight)
    return scaled if bias is None else scaled + wide(bias)


def layer_bound(rows: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """What layer_norm may be off by."""
    exact, magnitude = wide(rows), wide(rows).abs()
    centred = exact - exact.mean(-1, keepdim=True)
    root = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + eps)
    factor = 1.0 if weight is None else wide(weight).abs()
    narrow = all(t is None or t.dtype != torch.float32 for t in (rows, weight, bias))
    error = (
        relative(rows.shape[-1])
        * root
        * (magnitude + magnitude.mean(-1, keepdim=True) + centred.abs())
        * factor
    )
    if bias is not None:
        error = error + 4 * UNIT * wide(bias).abs()
    if narrow and (weight is not None or bias is not None):
        error = error + torch.finfo(rows.dtype).eps * (centred * root).abs() * factor
    return stored(layer_exact(rows, weight, bias, eps), error, rows.dtype)
