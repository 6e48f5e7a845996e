"""What the cross entropy of each row is, in plain PyTorch: the oracle of its tests. In float64 it is the truth."""

from __future__ import annotations

import torch
from torch import Tensor


def cross_entropy(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    softcap: float | None = None,
    z_loss: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """The loss and the log sum exp of every row. Dimensions: logits [N, V], target [N], weight [V] -> [N], [N]."""
    x = logits if softcap is None else softcap * torch.tanh(logits / softcap)
    lse = x.logsumexp(-1)
    missing = lse[:, None] - x
    counted = target != ignore_index
    classes = torch.where(counted, target, 0).long()
    weights = x.new_ones(x.shape[-1]) if weight is None else weight.to(x.dtype)
    loss = (1 - label_smoothing) * weights[classes] * missing.gather(1, classes[:, None])[:, 0]
    if label_smoothing:
        loss = loss + label_smoothing / x.shape[-1] * (missing * weights).sum(-1)
    if z_loss:
        loss = loss + z_loss * lse.square()
    return torch.where(counted, loss, 0), lse
