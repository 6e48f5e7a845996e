"""What flash attention computes, in plain PyTorch: the oracle of its tests. In float64 it is the truth."""

from __future__ import annotations

import torch
from torch import Tensor


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None) -> Tensor:
    """softmax(scale * q k^T) v over all keys, or over the keys j <= i + Sk - Sq of query i.

    Dimensions: q [B, Hq, Sq, D]; k, v [B, Hkv, Sk, D], Hq a multiple of Hkv -> [B, Hq, Sq, D]. A query that sees no
    key gets zeros. The whole score matrix is in memory.
    """
    heads, queries, depth = q.shape[1:]
    keys = k.shape[2]
    if q.numel() == 0 or keys == 0:
        return q.new_zeros(q.shape)
    shared = heads // k.shape[1]
    k, v = k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
    scores = (q @ k.transpose(-1, -2)) * (depth**-0.5 if scale is None else scale)
    if causal:
        visible = torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(keys - queries)
        scores = scores.masked_fill(~visible, float("-inf"))
    weights = scores.softmax(-1)
    if causal and queries > keys:
        weights = weights.index_fill(2, torch.arange(queries - keys, device=q.device), 0.0)
    return weights @ v
