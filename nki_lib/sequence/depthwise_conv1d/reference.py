"""What the convolution computes, in plain PyTorch: the oracle of its tests. In float64 it is the truth."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def depthwise_conv1d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, left: int = 0, right: int = 0, silu: bool = False
) -> Tensor:
    """Dimensions: x [B, C, L], weight [C, K], bias [C] -> [B, C, L + left + right - K + 1]."""
    padded = functional.pad(x, (left, right))
    out = functional.conv1d(padded, weight.unsqueeze(1), bias, groups=x.shape[1])
    return functional.silu(out) if silu else out
