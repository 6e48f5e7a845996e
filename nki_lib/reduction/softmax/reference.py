"""What softmax computes, in plain PyTorch. In float64 it is the truth."""

from __future__ import annotations

from torch import Tensor


def softmax(x: Tensor, dim: int = -1) -> Tensor:
    """exp(x - max) / sum exp(x - max) along `dim`."""
    powers = (x - x.amax(dim, keepdim=True)).exp()
    return powers / powers.sum(dim, keepdim=True)
