"""What the output projection computes, in plain PyTorch: the oracle of its tests. In float64 it is the truth."""

from __future__ import annotations

from torch import Tensor


def output_projection(
    attn: Tensor, weight: Tensor, bias: Tensor | None = None, residual: Tensor | None = None
) -> Tensor:
    """Merged heads times weight^T, plus bias, plus residual.

    Dimensions: attn [B, Hq, S, D], weight [H, Hq * D], bias [H], residual [B, S, H] -> [B, S, H].
    """
    result = attn.transpose(1, 2).flatten(2) @ weight.mT
    if bias is not None:
        result = result + bias
    return result if residual is None else result + residual
