"""`torch.ops.nki_lib.mlp`: checks, the cases without work, launches on rows; its gradient is in `gradients.py`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nki import errors
from nki.torch import nki_op
from nki_lib.common.rows import run_on_rows
from nki_lib.linear.mlp.checks import Options, Tensors, check_arguments, contiguous, in_rows
from nki_lib.linear.mlp.gradients import gradients
from nki_lib.linear.mlp.kernel import mlp as kernel
from nki_lib.linear.mlp.reference import mlp as reference

BIASES = "Tensor? up_bias=None, Tensor? gate_bias=None, Tensor? down_bias=None"
NORM = "Tensor? norm_weight=None, Tensor? norm_bias=None"
SCALES = "Tensor? up_scale=None, Tensor? gate_scale=None, Tensor? down_scale=None"
OPTIONS = 'str activation="silu", str norm="rms", float eps=1e-6, float offset=0.0, float? limit=None'


def _fake(*tensors: Any, **options: Any) -> Tensor:
    given = Tensors(*tensors)
    check_arguments(given, Options(**options))
    return given.x.new_empty(given.x.shape)


@nki_op(
    "nki_lib::mlp",
    fake=_fake,
    schema=f"(Tensor x, Tensor up, Tensor down, Tensor? gate=None, {BIASES}, {NORM}, Tensor? residual=None, "
    f"{SCALES}, *, {OPTIONS}) -> Tensor",
)
def mlp(
    x: Tensor,
    up: Tensor,
    down: Tensor,
    gate: Tensor | None = None,
    up_bias: Tensor | None = None,
    gate_bias: Tensor | None = None,
    down_bias: Tensor | None = None,
    norm_weight: Tensor | None = None,
    norm_bias: Tensor | None = None,
    residual: Tensor | None = None,
    up_scale: Tensor | None = None,
    gate_scale: Tensor | None = None,
    down_scale: Tensor | None = None,
    *,
    activation: str = "silu",
    norm: str = "rms",
    eps: float = 1e-6,
    offset: float = 0.0,
    limit: float | None = None,
) -> Tensor:
    """The operator behind `nki_lib.mlp`, where the arguments are explained."""
    biases, normal = (up_bias, gate_bias, down_bias), (norm_weight, norm_bias)
    given = Tensors(x, up, down, gate, *biases, *normal, residual, up_scale, gate_scale, down_scale)
    options = Options(activation, norm, eps, offset, limit)
    check_arguments(given, options)
    out = x.new_empty(x.shape)
    if x.numel() == 0:
        return out
    if up.numel() == 0:
        named = given._asdict()
        return out.copy_(reference(**named, **options._asdict()))
    before = None if norm_weight is None else (norm, *contiguous(*normal), eps, offset)
    weights = contiguous(gate, up, down)
    columns = contiguous(gate_bias, up_bias, down_bias)
    scales = contiguous(gate_scale, up_scale, down_scale)
    rows = [in_rows(x), in_rows(residual)]
    run_on_rows(in_rows(out), kernel, rows, weights, columns, scales, before, activation, limit)
    return out


def _setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Tensor) -> None:
    given = Tensors(*inputs)
    ctx.quantised = next(
        (name for name in ("up", "gate", "down") if getattr(given, f"{name}_scale") is not None), None
    )
    ctx.save_for_backward(*given._replace(residual=None))
    ctx.options = Options(**keyword_only_inputs)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    if ctx.quantised is not None:
        raise errors.NoBackwardError(
            "mlp: weights in 8 bits have no gradient",
            operand=ctx.quantised,
            found="a backward pass",
            allowed="the forward pass, or weights in the dtype of x",
            remedy="call it under torch.no_grad()",
        )
    given = Tensors(*ctx.saved_tensors)
    count = len(given)
    needed = (*ctx.needs_input_grad, *[False] * count)[:count]  # PyTorch leaves out what a call left out
    return gradients(grad, given, ctx.options, Tensors(*needed))


mlp.register_autograd(_backward, setup_context=_setup_context)

OPERATOR = torch.ops.nki_lib.mlp.default
"""What `nki_lib.mlp` calls."""
