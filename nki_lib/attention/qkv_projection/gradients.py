"""The backward pass of the QKV projection, composed of our operators: `rope` turns back, `matmul` multiplies.

What is left to PyTorch is linear in the tensors' sizes: the normalisation, recomputed instead of kept, and sums.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nki import errors
from nki_lib.attention.rope.op import OPERATOR as ROPE
from nki_lib.attention.rope.op import opposite
from nki_lib.linear.matmul.op import OPERATOR as MATMUL


def setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    """Keep the inputs; nothing of the results is needed."""
    x, weight, _, norm_weight, cos, sin = inputs
    ctx.eps, ctx.interleaved = keyword_only_inputs["eps"], keyword_only_inputs["interleaved"]
    ctx.save_for_backward(x, weight, norm_weight, cos, sin)


def backward(ctx: Any, of_q: Tensor, of_k: Tensor, of_v: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients of x, weight, bias and norm_weight.

    Dimensions: of_q [B, Hq, S, D], of_k, of_v [B, Hkv, S, D]; rows [B * S, (Hq + 2 Hkv) D] is the gradient of the
    product.
    """
    x, weight, norm_weight, cos, sin = ctx.saved_tensors
    needed = (*ctx.needs_input_grad, False, False, False, False)  # PyTorch leaves out what a call left out
    refuse_tables(needed)
    rows = gradient_of_rows(of_q, of_k, of_v, cos, sin, ctx.interleaved)
    normal, scale = normalised(x.flatten(0, 1), norm_weight, ctx.eps)
    of_x, of_weight, of_bias, of_norm = None, None, None, None
    if needed[1]:
        of_weight = MATMUL(rows.mT, normal)
    if needed[2]:
        of_bias = rows.sum(0, dtype=torch.float32).to(rows.dtype)
    if needed[0] or needed[3]:
        of_x = MATMUL(rows, weight)
        if norm_weight is not None:
            of_x, of_norm = through_normalisation(of_x, x.reshape(of_x.shape), scale, norm_weight)
        of_x = of_x.to(x.dtype).view(x.shape)
    return of_x, of_weight, of_bias, of_norm, None, None


def refuse_tables(needed: Any) -> None:
    """Raise if cos or sin is to be learned: that would need the heads before the rotation."""
    if needed[4] or needed[5]:
        raise errors.NoBackwardError(
            "qkv_projection: cos and sin have no gradient",
            operand="cos" if needed[4] else "sin",
            found="a table that requires a gradient",
            allowed="tables without gradients",
            remedy="detach them, or leave them out and call nki_lib.rope on q and k, which has these gradients",
        )


def gradient_of_rows(
    of_q: Tensor, of_k: Tensor, of_v: Tensor, cos: Tensor | None, sin: Tensor | None, interleaved: bool
) -> Tensor:
    """The gradients of the heads, turned back, side by side: [B * S, (Hq + 2 Hkv) D]."""
    if cos is not None and sin is not None:
        back = opposite(sin, of_q.shape[-1], interleaved)
        of_q, of_k = (ROPE(t, cos, back, interleaved=interleaved) for t in (of_q, of_k))
    with torch.autocast("cpu", enabled=False):  # which may not take their type
        sides = torch.cat([of_q, of_k, of_v], 1).transpose(1, 2)
    batch, length, heads, depth = sides.shape
    return sides.reshape(batch * length, heads * depth)


def normalised(rows: Tensor, norm_weight: Tensor | None, eps: float) -> tuple[Tensor, Tensor | None]:
    """What was multiplied, and 1 / sqrt(mean(x^2) + eps) in float32. Dimensions: rows [R, K] -> [R, K], [R, 1]."""
    if norm_weight is None:
        return rows, None
    wide = rows.float()
    scale = (wide.square().mean(-1, keepdim=True) + eps).rsqrt()
    return (wide * scale * norm_weight).to(rows.dtype), scale


def through_normalisation(
    grad: Tensor, rows: Tensor, scale: Tensor, norm_weight: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of x and norm_weight. Dimensions: grad of the normalised rows, rows [R, K], scale [R, 1]."""
    unit = rows.float() * scale
    of_unit = grad.float() * norm_weight
    of_x = scale * (of_unit - unit * (of_unit * unit).mean(-1, keepdim=True))
    return of_x, (grad.float() * unit).sum(0).to(norm_weight.dtype)
