"""`torch.ops.nki_lib.output_projection`: checks, the cases without work, launches on rows, gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nki import errors
from nki.torch import nki_op
from nki_lib.attention.output_projection.kernel import output_projection as kernel
from nki_lib.attention.output_projection.reference import output_projection as reference
from nki_lib.common.arguments import Checks
from nki_lib.common.rows import run_on_rows
from nki_lib.linear.matmul.op import OPERATOR as MATMUL

CHECKS = Checks("output_projection")


def _fake(attn: Tensor, weight: Tensor, bias: Tensor | None = None, residual: Tensor | None = None) -> Tensor:
    check_arguments(attn, weight, bias, residual)
    return attn.new_empty(attn.shape[0], attn.shape[2], weight.shape[0])


@nki_op(
    "nki_lib::output_projection",
    fake=_fake,
    schema="(Tensor attn, Tensor weight, Tensor? bias=None, Tensor? residual=None) -> Tensor",
)
def output_projection(
    attn: Tensor, weight: Tensor, bias: Tensor | None = None, residual: Tensor | None = None
) -> Tensor:
    """The operator behind `nki_lib.output_projection`, where the arguments are explained."""
    check_arguments(attn, weight, bias, residual)
    batch, _, length, _ = attn.shape
    out = attn.new_empty(batch, length, weight.shape[0])
    if attn.numel() == 0 or weight.numel() == 0:
        return out.copy_(reference(attn, weight, bias, residual))
    added = None if residual is None else residual.flatten(0, 1)
    bias = None if bias is None else bias.contiguous()
    run_on_rows(out.flatten(0, 1), kernel, [merged(attn), added], weight.contiguous(), bias)
    return out


def merged(attn: Tensor) -> Tensor:
    """Heads side by side. Dimensions: [B, Hq, S, D] -> [B * S, Hq * D]."""
    batch, heads, length, depth = attn.shape
    return attn.transpose(1, 2).reshape(batch * length, heads * depth)


def check_arguments(attn: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None) -> None:
    """Raise for what cannot be computed, naming the argument."""
    CHECKS.tensor("attn", attn, "batch, heads, length, head dimension")
    CHECKS.tensor("weight", weight, "width of the model, merged heads", like=attn)
    batch, heads, length, depth = attn.shape
    if weight.shape[1] != heads * depth:
        allowed = f"{heads * depth} columns: {heads} heads of {depth}"
        raise CHECKS.error(
            errors.ShapeError, "weight", weight, allowed, "pass it as torch.nn.Linear keeps it"
        )
    width = weight.shape[0]
    if bias is not None:
        CHECKS.tensor("bias", bias, "width of the model", like=attn)
        CHECKS.shape("bias", bias, (width,), "one for each row of weight")
    if residual is not None:
        CHECKS.tensor("residual", residual, "batch, length, width of the model", like=attn)
        remedy = "expand it first: it is added to the result as it is"
        CHECKS.shape("residual", residual, (batch, length, width), "that of the result", remedy)


def _setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    attn, weight = ctx.saved_tensors
    batch, heads, length, depth = attn.shape
    rows = grad.reshape(batch * length, weight.shape[0])
    needed = (*ctx.needs_input_grad, False, False)  # PyTorch leaves out what a call left out
    of_attn, of_weight, of_bias = None, None, None
    if needed[0]:
        of_attn = MATMUL(rows, weight).view(batch, length, heads, depth).transpose(1, 2)
    if needed[1]:
        of_weight = MATMUL(rows.mT, merged(attn))
    if needed[2]:
        of_bias = rows.sum(0, dtype=torch.float32).to(rows.dtype)
    return of_attn, of_weight, of_bias, grad if needed[3] else None


output_projection.register_autograd(_backward, setup_context=_setup_context)

OPERATOR = torch.ops.nki_lib.output_projection.default
"""What `nki_lib.output_projection` calls."""
