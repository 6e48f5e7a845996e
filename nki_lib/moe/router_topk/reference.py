"""What a router computes, in plain PyTorch. In float64 it is the truth; of equal scores any may be chosen."""

from __future__ import annotations

import torch
from torch import Tensor


def router_topk(
    logits: Tensor,
    k: int,
    *,
    score: str = "softmax",
    normalize: bool = True,
    bias: Tensor | None = None,
    groups: int | None = None,
    topk_groups: int | None = None,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights [T, k], indices [T, k], balance_loss, z_loss of logits [T, E]."""
    scores = logits.sigmoid() if score == "sigmoid" else logits.softmax(-1)
    choice = scores if bias is None else scores + bias
    if groups is not None and topk_groups is not None:
        by_group = choice.unflatten(-1, (groups, -1))
        best = by_group.topk(2, -1).values.sum(-1).topk(topk_groups, -1).indices
        outside = torch.ones_like(by_group[..., 0], dtype=torch.bool).scatter(-1, best, False)
        choice = by_group.masked_fill(outside[..., None], float("-inf")).flatten(-2)
    indices = choice.topk(k, -1).indices
    weights = scores.gather(-1, indices)
    if normalize or score == "topk_softmax":
        weights = weights / (weights.sum(-1, keepdim=True) + (1e-20 if score == "sigmoid" else 0))
    tokens = torch.zeros_like(scores).scatter(1, indices, 1).mean(0)
    shares = scores / scores.sum(-1, keepdim=True)
    balance = logits.shape[1] * (tokens * shares.mean(0)).sum()
    return weights * scale, indices, balance, logits.logsumexp(-1).square().mean()
