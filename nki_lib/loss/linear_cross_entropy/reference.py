"""What the fused loss is, in plain PyTorch: the oracle of its tests. In float64 it is the truth."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from nki_lib.loss.cross_entropy.reference import cross_entropy


def linear_cross_entropy(x: Tensor, weight: Tensor, target: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """The loss and the log sum exp of every row. Dimensions: x [N, H], weight [V, H], target [N] -> [N], [N]."""
    return cross_entropy(x @ weight.mT, target, **options)
