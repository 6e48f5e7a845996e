"""What the rotary embedding computes, in plain PyTorch: the oracle of its tests. In float64 it is the truth."""

from __future__ import annotations

import torch
from torch import Tensor


def rope(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool = False) -> Tensor:
    """x cos + turned(x) sin. Dimensions: x [B, H, S, D]; cos, sin [S, W] or [B, S, W], W = D or D/2."""
    cos, sin = (widened(table, x.shape[-1], interleaved).unsqueeze(-3) for table in (cos, sin))
    return x * cos + turned(x, interleaved) * sin


def widened(table: Tensor, depth: int, interleaved: bool) -> Tensor:
    """A table of half width with every entry once for either member of its pair."""
    if table.shape[-1] == depth:
        return table
    return table.repeat_interleave(2, -1) if interleaved else torch.cat([table, table], -1)


def turned(x: Tensor, interleaved: bool) -> Tensor:
    """Every pair (a, b) as (-b, a): a quarter turn. Dimensions: [..., D]."""
    if interleaved:
        return torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)
