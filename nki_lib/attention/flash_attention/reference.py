"""What flash attention computes, in plain PyTorch: the oracle of its tests. In float64 it is the truth."""

from __future__ import annotations

import torch
from torch import Tensor


def attention(q: Tensor, k: Tensor, v: Tensor, *, sinks: Tensor | None = None, **extras: object) -> Tensor:
    """softmax(scale * q k^T) v, with everything that `nki_lib.flash_attention` takes.

    Dimensions: q [B, Hq, Sq, D]; k, v [B, Hkv, Sk, D], Hq a multiple of Hkv -> [B, Hq, Sq, D]. A query that sees no
    key gets zeros. The whole score matrix is in memory.
    """
    if q.numel() == 0 or k.shape[2] == 0:
        return q.new_zeros(q.shape)
    scores = masked_scores(q, k, **extras)  # type: ignore[arg-type]
    blind = (scores == float("-inf")).all(-1, keepdim=True)
    scores = torch.where(blind, 0.0, scores)  # else their gradient were not a number
    weights = with_sinks(scores, sinks).softmax(-1)[..., : k.shape[2]]
    weights = torch.where(blind, 0.0, weights)
    return weights @ v.repeat_interleave(q.shape[1] // k.shape[1], 1)


def log_sum_exp(q: Tensor, k: Tensor, *, sinks: Tensor | None = None, **extras: object) -> Tensor:
    """The log of the softmax's denominator, [B, Hq, Sq]."""
    return with_sinks(masked_scores(q, k, **extras), sinks).logsumexp(-1)  # type: ignore[arg-type]


def masked_scores(
    q: Tensor,
    k: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
    bias: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    q_segment_ids: Tensor | None = None,
    kv_segment_ids: Tensor | None = None,
) -> Tensor:
    """The scores [B, Hq, Sq, Sk] before the softmax, -inf where a query may not see a key."""
    queries, keys = q.shape[2], k.shape[2]
    k = k.repeat_interleave(q.shape[1] // max(k.shape[1], 1), 1)
    scores = (q @ k.transpose(-1, -2)) * (q.shape[3] ** -0.5 if scale is None else scale)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias
    visible = torch.ones(queries, keys, dtype=torch.bool, device=q.device)
    if causal:
        visible = visible.tril(keys - queries)
    if window is not None:
        visible = visible.triu(keys - queries - window + 1)
    if key_padding_mask is not None:
        visible = visible & key_padding_mask[:, None, None, :]
    if q_segment_ids is not None and kv_segment_ids is not None:
        visible = visible & (q_segment_ids[:, None, :, None] == kv_segment_ids[:, None, None, :])
    return scores.masked_fill(~visible, float("-inf"))


def with_sinks(scores: Tensor, sinks: Tensor | None) -> Tensor:
    """The scores with each head's sink as one more key."""
    if sinks is None:
        return scores
    column = sinks.to(scores.dtype)[None, :, None, None].expand(*scores.shape[:3], 1)
    return torch.cat((scores, column), -1)
