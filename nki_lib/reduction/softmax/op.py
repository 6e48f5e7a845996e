"""`torch.ops.nki_lib.softmax` and its gradient, which is an operator too: checks, launches, gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nki import errors
from nki.torch import nki_op
from nki_lib.common.rows import name_of
from nki_lib.reduction.along import run_along
from nki_lib.reduction.arguments import ReductionChecks
from nki_lib.reduction.softmax.backward import softmax_backward as backward_kernel
from nki_lib.reduction.softmax.kernel import softmax as kernel

CHECKS = ReductionChecks("softmax")


def _fake(x: Tensor, dim: int = -1, *, dtype: torch.dtype | None = None) -> Tensor:
    check_arguments(x, dim, dtype)
    return x.new_empty(x.shape, dtype=dtype)


@nki_op(
    "nki_lib::softmax",
    fake=_fake,
    schema="(Tensor x, int dim=-1, *, ScalarType? dtype=None) -> Tensor",
)
def softmax(x: Tensor, dim: int = -1, *, dtype: torch.dtype | None = None) -> Tensor:
    """The operator behind `nki_lib.softmax`, where the arguments are explained."""
    dim = check_arguments(x, dim, dtype)
    result = x.dtype if dtype is None else dtype
    if result != torch.float32:
        x = x.to(result)  # PyTorch rounds the argument, not the result
    return run_along(kernel, [x], dim, result, name_of(result))


def check_arguments(x: Tensor, dim: int, dtype: torch.dtype | None) -> int:
    """Raise for what cannot be computed, naming the argument; else the dimension counted from the first."""
    CHECKS.values("x", x)
    CHECKS.result(dtype)
    return CHECKS.dimension(x, dim)


def _backward_fake(y: Tensor, grad: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    check_gradient(y, grad, dim, dtype)
    return y.new_empty(y.shape, dtype=dtype)


@nki_op(
    "nki_lib::softmax_backward",
    fake=_backward_fake,
    schema="(Tensor y, Tensor grad, int dim, ScalarType dtype) -> Tensor",
)
def softmax_backward(y: Tensor, grad: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    """(grad - sum of grad * y along dim) * y in `dtype`: the gradient of x, given the result y and its gradient."""
    dim = check_gradient(y, grad, dim, dtype)
    return run_along(backward_kernel, [y, grad], dim, dtype, name_of(dtype))


def check_gradient(y: Tensor, grad: Tensor, dim: int, dtype: torch.dtype) -> int:
    """Raise for what cannot be computed, naming the argument; else the dimension counted from the first."""
    CHECKS.values("y", y)
    CHECKS.result(dtype)
    if grad.dtype != y.dtype:
        raise CHECKS.error(
            errors.DtypeError, "grad", grad, f"{y.dtype}, as y", f"cast it: grad.to({y.dtype})"
        )
    CHECKS.shape("grad", grad, tuple(y.shape), "as y")
    return CHECKS.dimension(y, dim)


def _setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(output)
    ctx.dim, ctx.dtype = inputs[1], inputs[0].dtype


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    (y,) = ctx.saved_tensors
    return BACKWARD(y, grad, ctx.dim, ctx.dtype), None


softmax.register_autograd(_backward, setup_context=_setup_context)


def _setup_second(ctx: Any, inputs: Any, output: Tensor) -> None:
    y, grad, ctx.dim, _ = inputs
    ctx.save_for_backward(y, grad)


def _second(ctx: Any, v: Tensor) -> tuple[Tensor, Tensor, None, None]:
    """The gradient of the gradient, in PyTorch: rarely asked for."""
    y, grad = ctx.saved_tensors
    wide, given, v = y.float(), grad.float(), v.float()
    of_y = v * given - v * (given * wide).sum(ctx.dim, True) - given * (v * wide).sum(ctx.dim, True)
    of_grad = wide * (v - (v * wide).sum(ctx.dim, True))
    return of_y.to(y.dtype), of_grad.to(grad.dtype), None, None


softmax_backward.register_autograd(_second, setup_context=_setup_second)

OPERATOR = torch.ops.nki_lib.softmax.default
"""What `nki_lib.softmax` calls."""
BACKWARD = torch.ops.nki_lib.softmax_backward.default
