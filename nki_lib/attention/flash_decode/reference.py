"""What decoding against a cache computes, in plain PyTorch: the oracle of its tests. In float64 it is the truth."""

from __future__ import annotations

import torch
from torch import Tensor


def contiguous_cache(cache: Tensor, block_table: Tensor, length: int, sequence: int) -> Tensor:
    """The first `length` keys of a sequence. Dimensions: [num_blocks, Hkv, block_size, D] -> [Hkv, length, D]."""
    used = block_table[sequence, : -(-length // cache.shape[2])].long()
    return cache[used].transpose(0, 1).flatten(1, 2)[:, :length]


def decode(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    seq_lens: Tensor,
    *,
    block_table: Tensor | None = None,
    scale: float | None = None,
    window: int | None = None,
    sinks: Tensor | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Token t of T sees the keys j <= seq_len - T + t of its sequence, the last `window` of them; none gives zeros.

    Dimensions: q [B, Hq, T, D]; caches [B, Hkv, S, D], or [num_blocks, Hkv, block_size, D] with block_table; seq_lens
    [B]; sinks [Hq] -> [B, Hq, T, D]. What lies in the cache after the end of a sequence is not looked at.
    """
    out = q.new_zeros(q.shape)
    for b, length in enumerate(seq_lens.tolist()):
        if length == 0 or q.numel() == 0:
            continue
        if block_table is None:
            k, v = k_cache[b, :, :length], v_cache[b, :, :length]
        else:
            k, v = (contiguous_cache(c, block_table, length, b) for c in (k_cache, v_cache))
        out[b] = attend(q[b], k, v, scale, window, sinks, softcap)
    return out


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None,
    window: int | None,
    sinks: Tensor | None,
    softcap: float | None,
) -> Tensor:
    """One sequence without what follows its end. Dimensions: q [Hq, T, D]; k, v [Hkv, n, D] -> [Hq, T, D]."""
    heads, tokens, depth = q.shape
    shared, keys = heads // k.shape[0], k.shape[1]
    k, v = k.repeat_interleave(shared, 0), v.repeat_interleave(shared, 0)
    scores = (q @ k.transpose(-1, -2)) * (depth**-0.5 if scale is None else scale)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    ahead = torch.arange(keys) - (torch.arange(tokens)[:, None] + keys - tokens)
    seen = ahead <= 0 if window is None else (ahead <= 0) & (ahead > -window)
    scores = scores.masked_fill(~seen, float("-inf"))
    if sinks is not None:
        column = sinks.to(scores.dtype)[:, None, None].expand(-1, tokens, 1)
        scores = torch.cat([scores, column], -1)
    weights = scores.softmax(-1)[..., :keys]
    weights = weights.masked_fill(~seen.any(-1)[:, None], 0.0)
    return weights @ v
