"""`torch.ops.nki_lib.matmul`: the product of two matrices, with gradients that are such products again.

The gradients of the projections call it, so all their large products run on the tiled kernel.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nki import errors
from nki.torch import nki_op
from nki_lib.common.arguments import Checks
from nki_lib.common.rows import bucket, padded, run_on_rows
from nki_lib.linear.matmul.kernel import matmul as kernel

CHECKS = Checks("matmul")


def _fake(a: Tensor, b: Tensor) -> Tensor:
    check_arguments(a, b)
    return a.new_empty(a.shape[0], b.shape[1])


@nki_op("nki_lib::matmul", fake=_fake, schema="(Tensor a, Tensor b) -> Tensor")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """a b, summed in float32. Dimensions: a [M, K], b [K, N], one dtype, any strides -> [M, N], contiguous.

    A matrix that is the transpose of a contiguous one (`weight.mT`) is read as it lies. What varies from call to call
    in
    a model is the number of rows of a tensor in memory: M of `x @ weight`, K of `grad.mT @ x`. Both are filled up to a
    few sizes (`rows.py`), so they stage few programs.
    """
    check_arguments(a, b)
    if a.numel() == 0 or b.numel() == 0:
        return a.new_zeros(a.shape[0], b.shape[1])
    (left, a_leading), (right, b_leading) = in_memory(a), in_memory(b.mT)
    out = a.new_empty(a.shape[0], b.shape[1])
    if not a_leading:
        run_on_rows(out, kernel, [left], right, False, b_leading)
    else:
        if b_leading:
            size = bucket(left.shape[0])
            left, right = padded(left, size), padded(right, size)
        out = kernel(left, right, True, b_leading)
    return out


def in_memory(factor: Tensor) -> tuple[Tensor, bool]:
    """A factor [F, K] as a contiguous matrix: itself, or its transpose [K, F] and True."""
    if not factor.is_contiguous() and factor.mT.is_contiguous():
        return factor.mT, True
    return factor.contiguous(), False


def check_arguments(a: Tensor, b: Tensor) -> None:
    """Raise for what cannot be computed, naming the argument."""
    CHECKS.tensor("a", a, "rows, contracted")
    CHECKS.tensor("b", b, "contracted, columns", like=a)
    if a.shape[1] != b.shape[0]:
        raise CHECKS.error(errors.ShapeError, "b", b, f"{a.shape[1]} rows, as many as a has columns")


def _setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    a, b = ctx.saved_tensors
    of_a = OPERATOR(grad, b.mT) if ctx.needs_input_grad[0] else None
    of_b = OPERATOR(a.mT, grad) if ctx.needs_input_grad[1] else None
    return of_a, of_b


matmul.register_autograd(_backward, setup_context=_setup_context)

OPERATOR = torch.ops.nki_lib.matmul.default
"""What the gradients of the projections call."""
