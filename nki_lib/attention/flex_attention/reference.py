"""What flex attention computes, in plain PyTorch: the oracle of its tests. In float64 it is the truth."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    score_mod: Callable[..., Tensor] | None = None,
    mask_mod: Callable[..., Tensor] | None = None,
    scale: float | None = None,
) -> Tensor:
    """softmax(mask_mod(score_mod(scale * q k^T))) v.

    Dimensions: q [B, Hq, Sq, D]; k, v [B, Hkv, Sk, D], Hq a multiple of Hkv -> [B, Hq, Sq, D]. The functions have the
    signatures of PyTorch's flex_attention and take indices that broadcast. A query that sees no key gets zeros.
    """
    out = q.new_zeros(q.shape)
    if q.numel() == 0 or k.shape[2] == 0:
        return out
    group = q.shape[1] // k.shape[1]
    scale = q.shape[3] ** -0.5 if scale is None else scale
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            place = indices(b, h, q.shape[2], k.shape[2])
            scores = scale * (q[b, h] @ k[b, h // group].T)
            if score_mod is not None:
                scores = score_mod(scores, *place)
            seen = None if mask_mod is None else mask_mod(*place)
            out[b, h] = weights(scores, seen) @ v[b, h // group]
    return out


def indices(b: int, h: int, queries: int, keys: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """b, h, q_idx [Sq, 1] and kv_idx [1, Sk] for one head."""
    return torch.tensor(b), torch.tensor(h), torch.arange(queries)[:, None], torch.arange(keys)[None]


def weights(scores: Tensor, seen: Tensor | None) -> Tensor:
    """softmax over the keys that are seen, and zeros for a query without one. Dimensions: [Sq, Sk]."""
    if seen is not None:
        scores = torch.where(seen, scores, float("-inf"))
    blind = (scores == float("-inf")).all(-1, keepdim=True)
    return torch.where(blind, 0.0, scores.softmax(-1))
