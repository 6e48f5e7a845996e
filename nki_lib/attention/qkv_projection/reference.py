"""What the QKV projection computes, in plain PyTorch: the oracle of its tests. In float64 it is the truth."""

from __future__ import annotations

from torch import Tensor

from nki_lib.attention.rope.reference import rope


def qkv_projection(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    num_heads: int,
    num_kv_heads: int,
    norm_weight: Tensor | None = None,
    eps: float = 1e-6,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    interleaved: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """q [B, Hq, S, D], k and v [B, Hkv, S, D] from x [B, S, H], weight [(Hq + 2 Hkv) D, H], cos and sin [(B,) S, W]."""
    if norm_weight is not None:
        x = (x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * norm_weight).to(x.dtype)
    rows = x @ weight.mT
    if bias is not None:
        rows = rows + bias
    heads = num_heads + 2 * num_kv_heads
    sides = rows.unflatten(-1, (heads, weight.shape[0] // heads)).transpose(1, 2)
    q, k, v = sides.split((num_heads, num_kv_heads, num_kv_heads), 1)
    if cos is not None and sin is not None:
        q, k = (rope(t, cos, sin, interleaved=interleaved) for t in (q, k))
    return q, k, v
