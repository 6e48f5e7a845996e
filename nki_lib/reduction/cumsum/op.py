"""`torch.ops.nki_lib.cumsum`: checks, launches, gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nki.torch import nki_op
from nki_lib.common.arguments import DTYPES
from nki_lib.common.rows import name_of
from nki_lib.reduction.along import run_along
from nki_lib.reduction.arguments import ReductionChecks
from nki_lib.reduction.cumsum.kernel import cumsum as kernel

CHECKS = ReductionChecks("cumsum", (*DTYPES, torch.int32))


def _fake(x: Tensor, dim: int = -1, *, dtype: torch.dtype | None = None, reverse: bool = False) -> Tensor:
    check_arguments(x, dim, dtype)
    return x.new_empty(x.shape, dtype=dtype)


@nki_op(
    "nki_lib::cumsum",
    fake=_fake,
    schema="(Tensor x, int dim=-1, *, ScalarType? dtype=None, bool reverse=False) -> Tensor",
)
def cumsum(x: Tensor, dim: int = -1, *, dtype: torch.dtype | None = None, reverse: bool = False) -> Tensor:
    """The operator behind `nki_lib.cumsum`, where the arguments are explained."""
    dim = check_arguments(x, dim, dtype)
    result = x.dtype if dtype is None else dtype
    if result != torch.float32 or x.dtype == torch.int32:
        x = x.to(result)  # PyTorch converts the argument, not the result
    whole = result == torch.int32
    return run_along(kernel, [x], dim, result, reverse, name_of(result), columns=not whole)


def check_arguments(x: Tensor, dim: int, dtype: torch.dtype | None) -> int:
    """Raise for what cannot be computed, naming the argument; else the dimension counted from the first."""
    CHECKS.values("x", x)
    CHECKS.result(dtype)
    return CHECKS.dimension(x, dim)


def _setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Tensor) -> None:
    ctx.dim, ctx.dtype, ctx.reverse = inputs[1], inputs[0].dtype, keyword_only_inputs["reverse"]


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    """Element i went into the sums from i on: the gradients are summed from the other end."""
    summed = OPERATOR(grad, ctx.dim, reverse=not ctx.reverse)
    return summed.to(ctx.dtype), None


cumsum.register_autograd(_backward, setup_context=_setup_context)

OPERATOR = torch.ops.nki_lib.cumsum.default
"""What `nki_lib.cumsum` calls."""
