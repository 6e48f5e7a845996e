"""What layer_norm computes, in plain PyTorch, before any quantisation. In float64 it is the truth."""

from __future__ import annotations

from torch import Tensor


def layer_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-5
) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias, of every row. Dimensions: x [..., H], weight, bias [H]."""
    centred = x - x.mean(-1, keepdim=True)
    normal = centred * (centred.square().mean(-1, keepdim=True) + eps).rsqrt()
    scaled = normal if weight is None else normal * weight
    return scaled if bias is None else scaled + bias
