"""The gradient of the weights and of the losses with respect to the logits, in plain PyTorch: [T, E] is small."""

from __future__ import annotations

import torch
from torch import Tensor

from nki_lib.moe.router_topk.checks import Routing
from nki_lib.moe.router_topk.kernel import TINY


def logits_gradient(
    logits: Tensor, indices: Tensor, routing: Routing, of_weights: Tensor, of_balance: Tensor, of_z: Tensor
) -> Tensor:
    """Given the gradients of the three results. Dimensions: logits [T, E], indices, of_weights [T, k] -> [T, E].

    The choice itself has no gradient, and neither has the number of tokens of an expert.
    """
    wide = logits.float()
    sigmoid = routing.score == "sigmoid"
    scores = wide.sigmoid() if sigmoid else wide.softmax(-1)
    of_chosen = chosen_gradient(scores.gather(1, indices), of_weights.float() * routing.scale, routing)
    of_scores = torch.zeros_like(scores).scatter_add(1, indices, of_chosen)
    if routing.return_losses:
        tokens = torch.zeros_like(scores).scatter(1, indices, 1.0).mean(0)
        of_shares = of_balance * (tokens * (logits.shape[1] / max_one(logits.shape[0])))
        of_scores = of_scores + (of_normalised(scores, of_shares) if sigmoid else of_shares)
    if sigmoid:
        result = of_scores * scores * (1 - scores)
    else:
        result = scores * (of_scores - (of_scores * scores).sum(-1, keepdim=True))
    if routing.return_losses:
        level = wide.logsumexp(-1, keepdim=True)
        result = result + of_z * 2 / max_one(logits.shape[0]) * level * (
            wide.softmax(-1) if sigmoid else scores
        )
    return result.to(logits.dtype)


def chosen_gradient(chosen: Tensor, given: Tensor, routing: Routing) -> Tensor:
    """Of the chosen scores, before they are divided by their sum. Dimensions: [T, k]."""
    if not routing.divides:
        return given
    total = chosen.sum(-1, keepdim=True) + (TINY if routing.score == "sigmoid" else 0.0)
    return (given - (given * chosen / total).sum(-1, keepdim=True)) / total


def of_normalised(scores: Tensor, given: Tensor) -> Tensor:
    """Of scores that are divided by their sum. Dimensions: scores [T, E], given [E] -> [T, E]."""
    total = scores.sum(-1, keepdim=True)
    return (given - (given * scores / total).sum(-1, keepdim=True)) / total


def max_one(count: int) -> int:
    """A number to divide by: without tokens there is nothing to divide."""
    return torch.sym_max(count, 1)
