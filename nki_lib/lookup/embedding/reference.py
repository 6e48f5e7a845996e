"""What the lookup computes, in plain PyTorch: the oracle of its tests. In float64 it is the truth."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def embedding(
    input: Tensor, weight: Tensor, *, padding_idx: int | None = None, scale: float | None = None
) -> Tensor:
    """weight[input] * scale. Dimensions: input [...], weight [V, H] -> [..., H]."""
    rows = functional.embedding(input, weight, padding_idx)
    return rows if scale is None else rows * scale
