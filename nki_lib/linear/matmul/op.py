"""`torch.ops.nki_lib.matmul` and `matmul_fused`: products of two matrices, whose gradients are such products again.

The gradients of the projections call the first, so all their large products run on the tiled kernel.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from nki import errors
from nki.torch import nki_op
from nki_lib.common.rows import bucket, name_of, padded, run_on_rows
from nki_lib.linear.matmul.arguments import (
    check_arguments,
    check_matrix,
    check_pair,
    is_narrow,
    result_dtype,
)
from nki_lib.linear.matmul.derivatives import derivative
from nki_lib.linear.matmul.fused import matmul_fused as fused_kernel
from nki_lib.linear.matmul.kernel import matmul as kernel
from nki_lib.linear.matmul.reference import matmul as reference


def _fake(a: Tensor, b: Tensor) -> Tensor:
    check_pair(a, b)
    return a.new_empty(a.shape[0], b.shape[1])


@nki_op("nki_lib::matmul", fake=_fake, schema="(Tensor a, Tensor b) -> Tensor")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """a b, summed in float32. Dimensions: a [M, K], b [K, N], one dtype, any strides -> [M, N], contiguous.

    A matrix that is the transpose of a contiguous one (`weight.mT`) is read as it lies. What varies from call to call
    in a model is the number of rows of a tensor in memory: M of `x @ weight`, K of `grad.mT @ x`. Both are filled up to
    a few sizes (`rows.py`), so they stage few programs; so is M of `x.mT @ weight.mT`.
    """
    check_pair(a, b)
    if a.numel() == 0 or b.numel() == 0:
        return a.new_zeros(a.shape[0], b.shape[1])
    left, right, leading = as_they_lie(a, b)
    if leading[0]:
        return kernel(left, right, *leading)
    out = a.new_empty(a.shape[0], b.shape[1])
    run_on_rows(out, kernel, [left], right, *leading)
    return out


def as_they_lie(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, tuple[bool, bool]]:
    """Both factors as contiguous matrices, and which of them have the contracted axis first, filled up if both have.

    If a alone has, its columns are the rows of the result, whose number may vary: it is copied to rows, as these are
    what `run_on_rows` fills up.
    """
    a_leads, b_leads = bool(leads(a)), leads(b.mT)
    if b_leads is None:  # either order is as good: K is filled up if a has it first too
        b_leads = a_leads
    a_leads = a_leads and b_leads
    left, right = (a.mT if a_leads else a).contiguous(), (b if b_leads else b.mT).contiguous()
    if a_leads:
        size = bucket(left.shape[0])
        left, right = padded(left, size), padded(right, size)
    return left, right, (a_leads, b_leads)


def leads(factor: Tensor) -> bool | None:
    """Whether the contracted axis of a factor [F, K] is the outer one in memory; None if both are or neither is."""
    direct, turned = factor.is_contiguous(), factor.mT.is_contiguous()
    if not direct and not turned:
        free, contracted = (stride or math.inf for stride in factor.stride())  # an expanded axis is outermost
        direct, turned = free > contracted, free < contracted
    return None if direct == turned else turned


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


def _fused_fake(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    a_scale: Tensor | None = None,
    b_scale: Tensor | None = None,
    *,
    activation: str | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    check_matrix(a)
    check_arguments(a, b, bias, a_scale, b_scale, activation, out_dtype)
    return a.new_empty(a.shape[0], b.shape[1], dtype=result_dtype(a, out_dtype))


@nki_op(
    "nki_lib::matmul_fused",
    fake=_fused_fake,
    schema="(Tensor a, Tensor b, Tensor? bias=None, Tensor? a_scale=None, Tensor? b_scale=None, *, "
    "str? activation=None, ScalarType? out_dtype=None) -> Tensor",
)
def matmul_fused(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    a_scale: Tensor | None = None,
    b_scale: Tensor | None = None,
    *,
    activation: str | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """The operator behind `nki_lib.matmul`, where the arguments are explained; a has two axes here."""
    check_matrix(a)
    check_arguments(a, b, bias, a_scale, b_scale, activation, out_dtype)
    out = a.new_empty(a.shape[0], b.shape[1], dtype=result_dtype(a, out_dtype))
    if a.numel() == 0 or b.numel() == 0:
        return out.copy_(reference(a, b, bias, a_scale, b_scale, activation))
    left, right, leading = as_they_lie(a, b)
    scales = one_each(a_scale, a.shape[0])
    rest = (one_each(b_scale, b.shape[1]), None if bias is None else bias.contiguous(), *leading)
    last = (activation, name_of(out.dtype))
    if leading[0]:
        return fused_kernel(left, scales, right, *rest, *last)
    run_on_rows(out, fused_kernel, [left, scales], right, *rest, *last)
    return out


def one_each(scale: Tensor | None, count: int) -> Tensor | None:
    """A scale for each of `count` channels. Dimensions: one element, [count] or with axes of one -> [count]."""
    return None if scale is None else scale.reshape(-1).expand(count).contiguous()


def _fused_setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Tensor) -> None:
    a, b, bias, _, b_scale = (*inputs, None, None, None)[:5]
    ctx.save_for_backward(a, b, bias, b_scale)
    ctx.activation = keyword_only_inputs.get("activation")


def _fused_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    a, b, bias, b_scale = ctx.saved_tensors
    needed = (*ctx.needs_input_grad, *[False] * 5)[:5]
    if is_narrow(a) or needed[3] or needed[4] or (needed[1] and is_narrow(b)):
        raise errors.NoBackwardError(
            "nki_lib::matmul_fused has no gradient of 8-bit factors and of scales",
            allowed="gradients of `a` and `bias`, and of `b` if it is not of 8 bits",
            remedy="detach them",
        )
    grad = grad.float()
    if ctx.activation is not None:
        straight = FUSED(a, b, bias, None, b_scale, out_dtype=torch.float32)
        grad = derivative(ctx.activation, grad, straight)
    of_a, of_b, of_bias = None, None, None
    if needed[0]:
        scaled = grad if b_scale is None else grad * b_scale.reshape(-1)
        of_a = FUSED(scaled.to(a.dtype), b.mT)
    if needed[1]:
        of_b = OPERATOR(a.mT, grad.to(a.dtype))
    if needed[2]:
        of_bias = grad.sum(0).to(bias.dtype)
    return of_a, of_b, of_bias, None, None


matmul_fused.register_autograd(_fused_backward, setup_context=_fused_setup_context)

FUSED = torch.ops.nki_lib.matmul_fused.default
"""What `nki_lib.matmul` calls if there is more to do than to multiply."""
