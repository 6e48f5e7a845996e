"""How far projections and rotations may be from the exact result, element by element, derived from the number formats.

Write u = 2^-24 for the unit roundoff of float32, w for that of the tensors' type. A sum of n
rounded terms is off by less than 4 sqrt(n) u times the sum of magnitudes, see `format_bounds.py`.

* A product of K terms is off by (4 sqrt(K) + 4) u of its magnitude, sum |x_k w_k| + |bias| + |residual|.
* A normalised x is rounded to the tensors' type, w; its mean square, root and products cost (4 sqrt(K) + 8) u.
* A rotation mixes the errors of both members of a pair, and adds 4 u of |a cos| + |b sin|.
* The result is stored with w of itself; below the smallest normal number of the type nothing is promised.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.nki_lib.format_bounds import UNIT, product_error, stored, wide


def members(x: Tensor, interleaved: bool) -> tuple[Tensor, Tensor]:
    """Both members of every pair: neighbours, or one of either half. Dimensions: [..., D] -> two [..., D / 2]."""
    half = x.shape[-1] // 2
    return (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])


def joined(first: Tensor, second: Tensor, interleaved: bool) -> Tensor:
    """The inverse of `members`."""
    return torch.stack([first, second], -1).flatten(-2) if interleaved else torch.cat([first, second], -1)


def by_member(table: Tensor, depth: int, interleaved: bool) -> tuple[Tensor, Tensor]:
    """What a table has for each member, with an axis for heads; in one of half width it is the same."""
    table = table.unsqueeze(-3)
    return members(table, interleaved) if table.shape[-1] == depth else (table, table)


def rotated(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Tensor:
    """Heads turned: a pair is a complex number, times cos + i sin. Dimensions: [B, H, S, D], [(B,) S, W] float64.

    In tables of full width each member has a factor of its own: the first gets the real part of the product with its
    factor, the second the imaginary part of that with its.
    """
    pairs = torch.complex(*members(x, interleaved))
    cosines, sines = (by_member(t, x.shape[-1], interleaved) for t in (cos, sin))
    first, second = (pairs * torch.complex(c, s) for c, s in zip(cosines, sines))
    return joined(first.real, second.imag, interleaved)


def rotation_error(x: Tensor, error: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """Of rotated heads x [B, H, S, D] that were off by `error` before."""
    first, second = members(error + 4 * UNIT * x.abs(), interleaved)
    cosines, sines = (by_member(t.double().abs(), x.shape[-1], interleaved) for t in (cos, sin))
    return joined(first * cosines[0] + second * sines[0], second * cosines[1] + first * sines[1], interleaved)


def projected(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    num_heads: int,
    num_kv_heads: int,
    norm_weight: Tensor | None = None,
    eps: float = 1e-6,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    interleaved: bool = False,
) -> list[Tensor]:
    """q, k and v by three products, all in float64. Dimensions: as `nki_lib.qkv_projection` has them."""
    if norm_weight is not None:
        x = x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * norm_weight
    batch, length, width = x.shape
    depth = weight.shape[0] // (num_heads + 2 * num_kv_heads)
    results, at = [], 0
    for heads in (num_heads, num_kv_heads, num_kv_heads):
        part = slice(at, at + heads * depth)
        rows = torch.matmul(x.reshape(batch * length, width), weight[part].T)
        rows = rows if bias is None else rows + bias[part]
        results.append(rows.reshape(batch, length, heads, depth).permute(0, 2, 1, 3))
        at = part.stop
    if cos is not None and sin is not None:
        results[:2] = [rotated(t, cos, sin, interleaved) for t in results[:2]]
    return results


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
    magnitudes = projected(rows.abs(), weight.double().abs(), absolute, **plain)
    straight = projected(rows, weight.double(), wide(bias), **plain)
    bounds = []
    for i, magnitude in enumerate(magnitudes):
        error = product_error(depth, magnitude, rounded)
        if options["cos"] is not None and i < 2:
            tables = (options["cos"], options["sin"], options["interleaved"])
            error = rotation_error(straight[i], error, *tables)
        bounds.append(stored(exact[i], error, x.dtype))
    return bounds
