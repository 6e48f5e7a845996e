"""`torch.ops.nki_lib.matmul_mx`: checks, layouts, launches on rows, the gradient of the activations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nki import errors
from nki.torch import nki_op
from nki_lib.common.rows import as_rows, name_of, run_on_rows
from nki_lib.linear.matmul.op import OPERATOR as MATMUL
from nki_lib.linear.matmul_mx.checks import Formats, check_arguments
from nki_lib.linear.matmul_mx.kernel import matmul_mx as kernel
from nki_lib.quantization.dequantize.op import OPERATOR as DEQUANTIZE


def _fake(
    a: Tensor,
    b: Tensor,
    b_scale: Tensor,
    a_scale: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    a_format: str = "mxfp8_e4m3",
    dtype: torch.dtype | None = None,
) -> Tensor:
    found = check_arguments(a, b, b_scale, a_scale, bias, a_format, dtype)
    return a.new_empty(*a.shape[:-1], b.shape[1], dtype=found.dtype)


@nki_op(
    "nki_lib::matmul_mx",
    fake=_fake,
    schema="(Tensor a, Tensor b, Tensor b_scale, Tensor? a_scale=None, Tensor? bias=None, *, "
    "str a_format='mxfp8_e4m3', ScalarType? dtype=None) -> Tensor",
)
def matmul_mx(
    a: Tensor,
    b: Tensor,
    b_scale: Tensor,
    a_scale: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    a_format: str = "mxfp8_e4m3",
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The operator behind `nki_lib.matmul_mx`, where the arguments are explained."""
    found = check_arguments(a, b, b_scale, a_scale, bias, a_format, dtype)
    out = a.new_empty(*a.shape[:-1], b.shape[1], dtype=found.dtype)
    if a.numel() == 0 or b.numel() == 0:
        return out.zero_() if bias is None else out.copy_(bias.expand(out.shape))
    rows = [as_rows(a)] if a_scale is None else [as_rows(bytes_of(a)), as_rows(bytes_of(a_scale))]
    weight, scale, leading = in_memory(bytes_of(b), bytes_of(b_scale))
    bias = None if bias is None else bias.contiguous()
    rest = (weight, scale, bias, found.a, found.b, leading, name_of(found.dtype))
    if a_scale is None:
        rows.append(None)
    run_on_rows(out.view(-1, b.shape[1]), kernel, rows, *rest)
    return out


def bytes_of(tensor: Tensor) -> Tensor:
    """The same memory as uint8."""
    return tensor.view(torch.uint8)


def in_memory(b: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, bool]:
    """The weight [E, N] and its scales as they lie: [N, E], [N, G] and False, or [E, N], [G, N] and True.

    Only a weight that is neither is copied; the scales are where they lie otherwise than the weight.
    """
    leading = b.is_contiguous() and not (b.mT.is_contiguous() and scale.mT.is_contiguous())
    if leading:
        return b, scale.contiguous(), True
    return b.mT.contiguous(), scale.mT.contiguous(), False


def _setup_context(ctx: Any, inputs: Any, output: Tensor, **_: Any) -> None:
    a, b, b_scale, a_scale, bias = (*inputs, None, None)[:5]
    ctx.quantized = a_scale is not None
    ctx.of_bias = None if bias is None else bias.dtype
    ctx.shape, ctx.dtype = a.shape, a.dtype
    ctx.save_for_backward(b, b_scale)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """Straight through the rounding of the activations: grad b^T. The weights are constants."""
    b, b_scale = ctx.saved_tensors
    rows = as_rows(grad)
    needed = (*ctx.needs_input_grad, *[False] * 5)
    if any(needed[1:4]) or (needed[0] and ctx.quantized):
        raise errors.NoBackwardError(
            "nki_lib::matmul_mx has no gradient of quantised factors and of scales",
            allowed="gradients of `bias`, and of `a` if it comes without `a_scale`",
            remedy="detach them",
        )
    of_a, of_bias = None, None
    if needed[0]:
        weight = DEQUANTIZE(b, b_scale, format=Formats.of_weight(b), dim=0, dtype=grad.dtype)
        of_a = MATMUL(rows, weight.mT).view(ctx.shape).to(ctx.dtype)
    if needed[4]:
        of_bias = rows.sum(0, dtype=torch.float32).to(ctx.of_bias)
    return of_a, None, None, None, of_bias


matmul_mx.register_autograd(_backward, setup_context=_setup_context)

OPERATOR = torch.ops.nki_lib.matmul_mx.default
"""What `nki_lib.matmul_mx` calls."""
