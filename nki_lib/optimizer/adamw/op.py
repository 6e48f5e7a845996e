"""`torch.ops.nki_lib.adamw`: checks, and launches on pieces of the flattened tensors, which are written in place.

The numbers of a step reach the kernel as eight coefficients in a tensor: a schedule of learning rates stages nothing.
A program is staged for each size of a parameter, up to `PIECE`; larger ones go in pieces of that size.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nki import errors
from nki.torch import nki_op
from nki_lib.common.arguments import DTYPES, Checks
from nki_lib.optimizer.adamw.kernel import adamw as kernel

CHECKS = Checks("adamw")
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
    check_numbers((step, lr, grad_scale), (beta1, beta2, eps, weight_decay))


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
    check_numbers((step, lr, grad_scale), (beta1, beta2, eps, weight_decay))
    check_values(step, lr, grad_scale)
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
    return (
        number if number is None or isinstance(number, Tensor) else torch.tensor(number, dtype=torch.float64)
    )


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


# ---- checks -------------------------------------------------------------------------------------------------------


def check_tensors(param: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor) -> None:
    """Raise for what cannot be updated, naming the argument."""
    either = (param.dtype, torch.float32)
    allowed = {"param": DTYPES, "grad": either, "exp_avg": either, "exp_avg_sq": (exp_avg.dtype,)}
    for name, tensor in (("param", param), ("grad", grad), ("exp_avg", exp_avg), ("exp_avg_sq", exp_avg_sq)):
        if tensor.dtype not in allowed[name]:
            kinds = " or ".join(str(dtype) for dtype in dict.fromkeys(allowed[name]))
            raise CHECKS.error(
                errors.DtypeError, name, tensor, kinds, f"cast it: {name}.to({allowed[name][0]})"
            )
        CHECKS.shape(name, tensor, tuple(param.shape), "as param")
        repeats = any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape))
        if name != "grad" and repeats:
            remedy = f"copy it first: {name}.clone()"
            raise CHECKS.error(
                errors.ArgumentError, name, "an expanded tensor", "elements of its own", remedy
            )


def check_numbers(tensors: Sequence[Tensor | None], numbers: Sequence[float]) -> None:
    """Raise unless each of step, lr and grad_scale is one number, and those of the method are in their ranges."""
    for name, tensor in zip(("step", "lr", "grad_scale"), tensors):
        if tensor is not None and tensor.numel() != 1:
            raise CHECKS.error(errors.ShapeError, name, tensor, "a number, or a tensor of one element")
    for beta in numbers[:2]:
        if not 0.0 <= beta < 1.0:
            raise CHECKS.error(errors.ArgumentError, "betas", beta, "two numbers from 0 to less than 1")
    for name, number in zip(("eps", "weight_decay"), numbers[2:]):
        CHECKS.number(name, number, optional=False)
        if number < 0:
            raise CHECKS.error(errors.ArgumentError, name, number, "0 or a positive number")


def check_values(step: Tensor, lr: Tensor, grad_scale: Tensor | None) -> None:
    """Raise for numbers that no step can have. Needs values, so no fake asks."""
    if not step.item() >= 1:
        raise CHECKS.error(
            errors.ArgumentError, "step", step.item(), "1 for the first step, 2 for the next, ..."
        )
    if not lr.item() >= 0:
        raise CHECKS.error(errors.ArgumentError, "lr", lr.item(), "0 or a positive number")
    if grad_scale is not None and grad_scale.item() == 0:
        raise CHECKS.error(errors.ArgumentError, "grad_scale", 0, "what the gradient is to be divided by")


OPERATOR = torch.ops.nki_lib.adamw.default
"""What `nki_lib.adamw` and `nki_lib.AdamW` call."""
