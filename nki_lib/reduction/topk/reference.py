"""Which elements are the largest, in plain PyTorch: a stable sort, so that of equal ones the first comes first."""

from __future__ import annotations

from torch import Tensor


def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
    """values and indices of the k largest (else smallest) elements along `dim`, in order; NaN is the greatest."""
    values, indices = x.sort(stable=True, dim=dim, descending=largest)
    return values.narrow(dim, 0, k), indices.narrow(dim, 0, k)
