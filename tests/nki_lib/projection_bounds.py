"""How far projections and rotations may be from the exact result, element by element, derived from the number formats.

Write u = 2^-24 for the unit roundoff of float32, w for that of the tensors' type. As in `attention_bounds.py`, a sum of
n rounded terms is off by less than 4 sqrt(n) u times the sum of magnitudes.

* A product of K terms is off by (4 sqrt(K) + 4) u of its magnitude, sum |x_k w_k| + |bias| + |residual|.
* A normalised x is rounded to the tensors' type, w; its mean square, root and products cost (4 sqrt(K) + 8) u.
* A rotation mixes the errors of both members of a pair, and adds 4 u of |a cos| + |b sin|.
* The result is stored with w of itself; below the smallest normal number of the type nothing is promised.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nki_lib.attention.qkv_projection.reference import qkv_projection
from nki_lib.attention.rope.reference import turned, widened

UNIT = 2.0**-24


def wide(tensor: Tensor | None) -> Tensor | None:
    """The tensor in float64, without its gradient."""
    return None if tensor is None else tensor.detach().double()


def stored(exact: Tensor, error: Tensor, dtype: Any) -> Tensor:
    """The bound of a result in `dtype` that was off by `error` before it was stored."""
    narrow = torch.finfo(dtype)
    return error * (1 + narrow.eps) + narrow.eps / 2 * exact.abs() + narrow.tiny


def product_error(depth: int, magnitude: Tensor, rounded: float = 0.0) -> Tensor:
    """Of a sum of `depth` products, one factor of which carries the relative error `rounded`."""
    return ((4 * depth**0.5 + 4) * UNIT + rounded) * magnitude


def rotation_error(x: Tensor, error: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """Of rotated heads x [B, H, S, D] that were off by `error` before."""
    cos, sin = (widened(t.double(), x.shape[-1], interleaved).abs().unsqueeze(-3) for t in (cos, sin))
    both = error + 4 * UNIT * x.abs()
    return both * cos + turned(both, interleaved).abs() * sin


def qkv_bounds(
    exact: Any, x: Tensor, weight: Tensor, bias: Tensor | None, options: dict[str, Any]
) -> list[Tensor]:
    """What each of q, k and v may be off by; `exact` are they in float64."""
    plain = {name: options[name] for name in ("num_heads", "num_kv_heads")}
    norm, depth, unit = options["norm_weight"], x.shape[2], torch.finfo(x.dtype).eps / 2
    rows, rounded = x.double(), 0.0
    if norm is not None:
        rows = rows * (rows.square().mean(-1, keepdim=True) + options["eps"]).rsqrt() * norm.double()
        rounded = unit + (4 * depth**0.5 + 8) * UNIT
    absolute = None if bias is None else bias.double().abs()
    magnitudes = qkv_projection(rows.abs(), weight.double().abs(), absolute, **plain)
    straight = qkv_projection(rows, weight.double(), wide(bias), **plain)
    bounds = []
    for i, magnitude in enumerate(magnitudes):
        error = product_error(depth, magnitude, rounded)
        if options["cos"] is not None and i < 2:
            tables = (options["cos"], options["sin"], options["interleaved"])
            error = rotation_error(straight[i], error, *tables)
        bounds.append(stored(exact[i], error, x.dtype))
    return bounds
