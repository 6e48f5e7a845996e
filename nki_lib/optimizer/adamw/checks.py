"""What a step of AdamW refuses; every error names the argument. Nothing has been written by then."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nki import errors
from nki_lib.common.arguments import DTYPES, LARGEST, Checks
from nki_lib.common.kinds import check_flags
from nki_lib.optimizer.adamw.memory import shared

CHECKS = Checks("adamw")
RATES = "0 or a positive number"


def check_places(
    param: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, **numbers: Tensor | float | None
) -> None:
    """The tensors in one place; numbers that are tensors on the CPU, or where the parameter is."""
    tensors = {"param": param, "grad": grad, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
    CHECKS.required(**tensors)
    CHECKS.places(**tensors)
    for name, tensor in tensors.items():
        if not torch.compiler.is_compiling() and tensor.is_neg():
            remedy = f"make its numbers real ones: {name}.resolve_neg()"
            raise CHECKS.error(errors.ArgumentError, name, "a negated view", "numbers as they lie", remedy)
    for name, number in numbers.items():
        if isinstance(number, Tensor):
            CHECKS.places(**{name: number})
            check_number_tensor(name, number, param)
        else:
            CHECKS.number(name, number, optional=name == "grad_scale")


def check_tensors(param: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor) -> None:
    """Dtypes, shapes and devices of what is updated and of its gradient."""
    either = (param.dtype, torch.float32)
    allowed = {"param": DTYPES, "grad": either, "exp_avg": either, "exp_avg_sq": (exp_avg.dtype,)}
    for name, tensor in (("param", param), ("grad", grad), ("exp_avg", exp_avg), ("exp_avg_sq", exp_avg_sq)):
        if tensor.dtype not in allowed[name]:
            kinds = " or ".join(str(dtype) for dtype in dict.fromkeys(allowed[name]))
            raise CHECKS.error(
                errors.DtypeError, name, tensor, kinds, f"cast it: {name}.to({allowed[name][0]})"
            )
        if tensor.device != param.device:
            raise CHECKS.error(errors.ArgumentError, name, tensor, f"{param.device}, as param")
        CHECKS.shape(name, tensor, tuple(param.shape), "as param")
        repeats = any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape))
        if name != "grad" and repeats:
            remedy = f"copy it first: {name}.clone()"
            raise CHECKS.error(
                errors.ArgumentError, name, "an expanded tensor", "elements of its own", remedy
            )


def check_apart(param: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor) -> None:
    """Memory that is written belongs to one element. Needs addresses, so no fake asks."""
    name = shared({"param": param, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}, grad)
    if name is not None:
        found, allowed = (
            "elements that share memory",
            "elements of its own: those of a step are written at once",
        )
        raise CHECKS.error(errors.ArgumentError, name, found, allowed, f"copy it first: {name}.clone()")


def check_numbers(param: Tensor, step: Tensor, lr: Tensor, grad_scale: Tensor | None) -> None:
    """Each is one real number."""
    for name, number in (("step", step), ("lr", lr), ("grad_scale", grad_scale)):
        if number is not None:
            check_number_tensor(name, number, param)


def check_number_tensor(name: str, number: Tensor, param: Tensor | None = None) -> None:
    """One real number, on the CPU or where the parameter is: elsewhere PyTorch would choose what computes nothing."""
    if number.numel() != 1:
        raise CHECKS.error(errors.ShapeError, name, number, "a number, or a tensor of one element")
    if number.dtype == torch.bool or number.dtype.is_complex:
        raise CHECKS.error(errors.DtypeError, name, number, "a real number")
    if number.device.type != "cpu" and (param is None or number.device != param.device):
        raise CHECKS.error(errors.ArgumentError, name, number, "a number, or a tensor on the CPU")


def check_method(betas: object, eps: object, weight_decay: object) -> None:
    """The numbers of the method, in their ranges."""
    pair = tuple(betas) if isinstance(betas, (tuple, list)) else ()
    allowed = "two numbers from 0 to less than 1"
    if len(pair) != 2:
        raise CHECKS.error(errors.ArgumentError, "betas", repr(betas), allowed)
    for beta in pair:
        CHECKS.number("betas", beta, optional=False)
        if not 0.0 <= beta < 1.0:
            raise CHECKS.error(errors.ArgumentError, "betas", beta, allowed)
    for name, number in (("eps", eps), ("weight_decay", weight_decay)):
        CHECKS.number(name, number, least=0, optional=False)


def check_values(step: Tensor, lr: Tensor, grad_scale: Tensor | None) -> None:
    """Raise for numbers that no step can have. Needs values, so no fake asks."""
    if not 1 <= step.item() <= LARGEST:
        raise CHECKS.error(
            errors.ArgumentError, "step", step.item(), "1 for the first step, 2 for the next, ..."
        )
    if not 0 <= lr.item() <= LARGEST:
        raise CHECKS.error(errors.ArgumentError, "lr", lr.item(), RATES)
    if grad_scale is not None and not 0 < abs(grad_scale.item()) <= LARGEST:
        allowed = "what the gradient is to be divided by: finite, not 0"
        raise CHECKS.error(errors.ArgumentError, "grad_scale", grad_scale.item(), allowed)


def check_group(group: dict[str, Any]) -> None:
    """Raise for what a group of parameters cannot ask for."""
    if group["amsgrad"]:
        raise CHECKS.error(errors.ArgumentError, "amsgrad", True, "False", "use torch.optim.AdamW for it")
    check_flags(CHECKS, maximize=group["maximize"])
    lr = group["lr"]
    if isinstance(lr, Tensor):
        CHECKS.places(lr=lr)
        check_number_tensor("lr", lr)
    else:
        CHECKS.number("lr", lr, optional=False)
    if not 0 <= float(lr.detach() if isinstance(lr, Tensor) else lr) <= LARGEST:
        raise CHECKS.error(errors.ArgumentError, "lr", lr, RATES)
    check_method(group["betas"], group["eps"], group["weight_decay"])


def check_step(param: Tensor, state: dict[str, Any], lr: Tensor) -> None:
    """All that a step of the optimiser could fail on, of one parameter and its state."""
    tensors = param, param.grad, state.get("exp_avg"), state.get("exp_avg_sq")
    step = state.get("step")
    CHECKS.required(step=step)
    CHECKS.places(step=step)
    check_places(*tensors, step=step, lr=lr)
    check_tensors(*tensors)
    if param.device.type == "cpu":
        check_values(step + 1, lr, None)
        check_apart(*tensors)
