"""What running sums are, in plain PyTorch. In float64 it is the truth."""

from __future__ import annotations

from torch import Tensor


def cumsum(x: Tensor, dim: int = -1, *, reverse: bool = False) -> Tensor:
    """x[0] + ... + x[i] along `dim`, or x[i] + ... + x[-1] in reverse."""
    if reverse:
        return x.flip(dim).cumsum(dim, dtype=x.dtype).flip(dim)
    return x.cumsum(dim, dtype=x.dtype)
