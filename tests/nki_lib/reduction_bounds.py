"""How far softmax, running sums and routers may be from the exact result, derived from the number formats.

Write u = 2^-24 for the unit roundoff of float32. As in `format_bounds.py`, a sum of n rounded terms is off by less
than 4 sqrt(n) u times the sum of magnitudes, and a result is stored with the roundoff of its type.

* exp(x - top): the difference is rounded, which changes the power by u |x - top|; exp itself costs a few u.
* Their sum over a line: what its terms are off by on average, and 4 sqrt(n) u; in parts, two more powers.
* So softmax is off by (|x - top| + sum y |x - top| + 4 sqrt(n) + 16) u of itself.
* The gradient (g - sum g y) y: y as it was stored, products and the sum of g y; see `gradient_error`.
* A running sum of n terms: 4 sqrt(n) u of the running sum of magnitudes.
* A weight of a router: a power or sigmoid over a sum of up to k or E of them, with the same bound as softmax.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tests.nki_lib.format_bounds import UNIT, stored


def softmax_error(x: Tensor, exact: Tensor, dim: int) -> Tensor:
    """Of softmax in float32, before it is stored. Dimensions: x, exact in float64."""
    distance = (x.amax(dim, keepdim=True) - x).nan_to_num(0.0, 0.0, 0.0)
    average = (exact * distance).nan_to_num(0.0).sum(dim, keepdim=True)
    return exact * UNIT * (distance + average + 4 * x.shape[dim] ** 0.5 + 16)


def softmax_bound(x: Tensor, exact: Tensor, dim: int, dtype: Any) -> Tensor:
    """Of softmax in `dtype`."""
    return stored(exact, softmax_error(x, exact, dim), dtype)


def gradient_error(y: Tensor, error: Tensor, grad: Tensor, dim: int) -> Tensor:
    """Of (grad - sum grad y) y in float32, if y was off by `error`."""
    count = y.shape[dim]
    magnitude = (grad * y).abs().sum(dim, keepdim=True)
    of_sum = (grad.abs() * error).sum(dim, keepdim=True) + (4 * count**0.5 + 4) * UNIT * magnitude
    inner = (grad - (grad * y).sum(dim, keepdim=True)).abs()
    return (error + 4 * UNIT * y) * (inner + of_sum) + y * (of_sum + 2 * UNIT * (grad.abs() + magnitude))


def sum_bound(x: Tensor, exact: Tensor, dim: int, dtype: Any) -> Tensor:
    """Of running sums in `dtype`; `exact` are they in float64."""
    return stored(exact, 4 * x.shape[dim] ** 0.5 * UNIT * x.abs().cumsum(dim), dtype)
