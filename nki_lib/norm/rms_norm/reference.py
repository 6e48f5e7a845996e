"""What rms_norm computes, in plain PyTorch, before any quantisation. In float64 it is the truth."""

from __future__ import annotations

from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor | None = None, *, eps: float = 1e-6, offset: float = 0.0) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * (offset + weight), of every row. Dimensions: x [..., H], weight [H]."""
    normal = x * (x.square().mean(-1, keepdim=True) + eps).rsqrt()
    return normal if weight is None else normal * (offset + weight)
