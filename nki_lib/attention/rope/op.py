"""`torch.ops.nki_lib.rope`: checks, launches on rows, gradients.

Rows of all batch elements are one list of rows, so one program serves every batch size, and a few serve every length.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nki import errors
from nki.torch import nki_op
from nki_lib.attention.checks import AttentionChecks
from nki_lib.attention.rope.kernel import TILE_WIDTH
from nki_lib.attention.rope.kernel import rope as kernel
from nki_lib.attention.rope.reference import turned
from nki_lib.common.rows import run_on_rows

CHECKS = AttentionChecks("rope")


def _fake(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool = False) -> Tensor:
    check_arguments(x, cos, sin)
    return x.new_empty(x.shape)


@nki_op(
    "nki_lib::rope",
    fake=_fake,
    schema="(Tensor x, Tensor cos, Tensor sin, *, bool interleaved=False) -> Tensor",
)
def rope(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool = False) -> Tensor:
    """The operator behind `nki_lib.rope`, where the arguments are explained."""
    check_arguments(x, cos, sin)
    if x.numel() == 0:
        return x.new_empty(x.shape)
    batch, heads, length, depth = x.shape
    rows = x.transpose(1, 2).reshape(batch * length, heads, depth)
    out = torch.empty_like(rows, memory_format=torch.contiguous_format)
    run_on_rows(out, kernel, [rows, *(table_rows(t, batch) for t in (cos, sin))], interleaved)
    return out.view(batch, length, heads, depth).transpose(1, 2).clone(memory_format=torch.contiguous_format)


def table_rows(table: Tensor, batch: int) -> Tensor:
    """A row of the table for every row of the batch. Dimensions: [S, W] or [B, S, W] -> [B * S, W]."""
    return table.expand(batch, -1, -1).flatten(0, 1)


def check_arguments(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Raise for what cannot be computed, naming the argument."""
    CHECKS.tensor("x", x, "batch, heads, length, head dimension")
    batch, _, length, depth = x.shape
    CHECKS.rotation(cos, sin, batch, length, depth)
    if depth > TILE_WIDTH:
        raise CHECKS.error(errors.ShapeError, "x", x, f"a head dimension of at most {TILE_WIDTH}")


def opposite(sin: Tensor, depth: int, interleaved: bool) -> Tensor:
    """The sines that turn back: -sin, and where either member of a pair has its own, those of the other."""
    if sin.shape[-1] != depth:
        return -sin
    if interleaved:
        return -sin.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    return -sin.roll(depth // 2, -1)


def _setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Tensor) -> None:
    x, cos, sin = inputs
    learned = ctx.needs_input_grad[1] or ctx.needs_input_grad[2]
    ctx.save_for_backward(x if learned else None, cos, sin)
    ctx.depth, ctx.interleaved = x.shape[-1], keyword_only_inputs["interleaved"]


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, cos, sin = ctx.saved_tensors
    of_x, of_cos, of_sin = None, None, None
    if ctx.needs_input_grad[0]:
        of_x = OPERATOR(grad, cos, opposite(sin, ctx.depth, ctx.interleaved), interleaved=ctx.interleaved)
    if ctx.needs_input_grad[1]:
        of_cos = table_gradient(cos, grad.float() * x.float(), ctx.interleaved)
    if ctx.needs_input_grad[2]:
        of_sin = table_gradient(sin, grad.float() * turned(x.float(), ctx.interleaved), ctx.interleaved)
    return of_x, of_cos, of_sin


def table_gradient(table: Tensor, products: Tensor, interleaved: bool) -> Tensor:
    """Products [B, H, S, D] summed over all that share an entry of the table; in PyTorch, as tables rarely learn."""
    summed = products.sum(1)
    if table.shape[-1] != products.shape[-1]:
        shape, axis = ((-1, 2), -1) if interleaved else ((2, -1), -2)
        summed = summed.unflatten(-1, shape).sum(axis)
    return (summed if table.dim() == 3 else summed.sum(0)).to(table.dtype)


rope.register_autograd(_backward, setup_context=_setup_context)

OPERATOR = torch.ops.nki_lib.rope.default
"""What `nki_lib.rope` calls."""
