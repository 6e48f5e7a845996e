"""What a step of AdamW is, in plain PyTorch: the oracle of its tests. In float64 it is the truth."""

from __future__ import annotations

from torch import Tensor


def adamw(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    step: int,
    *,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
    grad_scale: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """New parameter and moments; step counts from 1 and includes this one."""
    grad = grad / grad_scale
    first = betas[0] * exp_avg + (1 - betas[0]) * grad
    second = betas[1] * exp_avg_sq + (1 - betas[1]) * grad.square()
    denominator = (second / (1 - betas[1] ** step)).sqrt() + eps
    moved = param * (1 - lr * weight_decay) - lr / (1 - betas[0] ** step) * first / denominator
    return moved, first, second
