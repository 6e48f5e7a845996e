"""`torch.ops.nki_lib.adamw`: checks, and launches on pieces of the flattened tensors, which are written in place.

The numbers of a step reach the kernel as eight coefficients in a tensor: a schedule of learning rates stages nothing.
A program is staged for each size of a parameter, up to `PIECE`; larger ones go in pieces of that size.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nki.torch import nki_op
from nki_lib.optimizer.adamw.checks import (
    check_apart,
    check_method,
    check_numbers,
    check_tensors,
    check_values,
)
from nki_lib.optimizer.adamw.kernel import adamw as kernel

PIECE = 2**24


def _fake(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    step: Tensor,
    lr: Tensor,
    grad_scale: Tensor | None = None,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
) -> None:
    check_tensors(param, grad, exp_avg, exp_avg_sq)
    check_numbers(param, step, lr, grad_scale)
    check_method((beta1, beta2), eps, weight_decay)


@nki_op(
    "nki_lib::adamw",
    fake=_fake,
    mutates_args=("param", "exp_avg", "exp_avg_sq"),
    schema="(Tensor(a!) param, Tensor grad, Tensor(b!) exp_avg, Tensor(c!) exp_avg_sq, Tensor step, Tensor lr, "
    "Tensor? grad_scale=None, *, float beta1=0.9, float beta2=0.999, float eps=1e-8, float weight_decay=1e-2) -> ()",
)
def adamw(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    step: Tensor,
    lr: Tensor,
    grad_scale: Tensor | None = None,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
) -> None:
    """The operator behind `nki_lib.adamw`, where the arguments are explained; step, lr, grad_scale have one element."""
    check_tensors(param, grad, exp_avg, exp_avg_sq)
    check_numbers(param, step, lr, grad_scale)
    check_method((beta1, beta2), eps, weight_decay)
    check_values(step, lr, grad_scale)
    check_apart(param, grad, exp_avg, exp_avg_sq)
    factors = coefficients(step, lr, grad_scale, (beta1, beta2), eps, weight_decay)
    tensors = [t.detach() for t in (param, grad, exp_avg, exp_avg_sq)]
    flat = in_one_order(tensors)
    for start in range(0, param.numel(), PIECE):
        kernel(*(t[start : start + PIECE] for t in flat), factors)
    for place in (0, 2, 3):
        if flat[place].data_ptr() != tensors[place].data_ptr():
            tensors[place].copy_(flat[place].view(param.shape))


def as_tensor(number: Tensor | float | None) -> Tensor | None:
    """A number as the operator takes it."""
    if number is None or isinstance(number, Tensor):
        return number
    return torch.tensor(float(number), dtype=torch.float64, device="cpu")


def in_one_order(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors as vectors, equal elements at equal places: views if all lie densely in one order, else copies."""
    axes = sorted(range(tensors[0].dim()), key=lambda axis: -tensors[0].stride(axis))
    turned = [t.permute(axes) for t in tensors]
    if all(t.is_contiguous() for t in turned):
        return [t.view(-1) for t in turned]
    return [t.contiguous().view(-1) for t in tensors]


def coefficients(
    step: Tensor,
    lr: Tensor,
    grad_scale: Tensor | None,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> Tensor:
    """The eight numbers of a step in the order of the kernel, made in float64. Dimensions: -> [8] float32."""
    step, lr = (t.detach().double().reshape(()) for t in (step, lr))
    scale = torch.ones_like(lr) if grad_scale is None else grad_scale.detach().double().reshape(())
    first, second = (torch.full_like(lr, beta) for beta in betas)
    numbers = (
        first,
        (1 - first) / scale,
        second,
        (1 - second).sqrt() / scale,
        1 / (1 - second**step),
        torch.full_like(lr, eps),
        -lr / (1 - first**step),
        1 - lr * weight_decay,
    )
    return torch.stack(numbers).float()


OPERATOR = torch.ops.nki_lib.adamw.default
"""What `nki_lib.adamw` and `nki_lib.AdamW` call."""
