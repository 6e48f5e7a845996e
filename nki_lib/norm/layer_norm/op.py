"""`torch.ops.nki_lib.layer_norm` and its gradient: checks, the cases without work, launches on rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nki.torch import nki_op
from nki_lib.common.arguments import Checks
from nki_lib.norm.arguments import as_rows, check, no_gradient, results
from nki_lib.norm.launches import run_on_rows, sums_over_rows
from nki_lib.norm.layer_norm.backward import layer_norm_backward as backward_kernel
from nki_lib.norm.layer_norm.kernel import layer_norm as kernel

CHECKS = Checks("layer_norm")
TENSORS = "Tensor? weight=None, Tensor? bias=None"


def _fake(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    *,
    eps: float = 1e-5,
    quantize: str | None = None,
) -> list[Tensor]:
    check(CHECKS, x, residual, eps, quantize, weight=weight, bias=bias)
    return results(x, residual, quantize)


@nki_op(
    "nki_lib::layer_norm",
    fake=_fake,
    schema=f"(Tensor x, {TENSORS}, Tensor? residual=None, *, float eps=1e-5, str? quantize=None) -> Tensor[]",
)
def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    *,
    eps: float = 1e-5,
    quantize: str | None = None,
) -> list[Tensor]:
    """The operator behind `nki_lib.layer_norm`, where the arguments are explained; a list of what that returns."""
    check(CHECKS, x, residual, eps, quantize, weight=weight, bias=bias)
    outs = results(x, residual, quantize)
    if x.numel():
        affine = [None if vector is None else vector.contiguous() for vector in (weight, bias)]
        rows = [as_rows(x), as_rows(residual)]
        run_on_rows([as_rows(out) for out in outs], kernel, rows, *affine, eps, quantize)
    return outs


def _fake_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    added: Tensor | None = None,
    *,
    eps: float = 1e-5,
    learned: bool = False,
) -> list[Tensor]:
    vectors = [v for v in (weight, bias) if v is not None] if learned else []
    return [x.new_empty(x.shape), *(v.new_empty(v.shape) for v in vectors)]


@nki_op(
    "nki_lib::layer_norm_backward",
    fake=_fake_backward,
    schema=f"(Tensor grad, Tensor x, {TENSORS}, Tensor? added=None, *, float eps=1e-5, bool learned=False) "
    "-> Tensor[]",
)
def layer_norm_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    added: Tensor | None = None,
    *,
    eps: float = 1e-5,
    learned: bool = False,
) -> list[Tensor]:
    """The gradient of x, plus `added`; if `learned`, those of weight and bias too, as far as they are there."""
    of_x = x.new_empty(x.shape)
    vectors = [v for v in (weight, bias) if v is not None] if learned else []
    if x.numel() == 0:
        return [of_x, *(torch.zeros_like(v) for v in vectors)]
    slopes, rows = as_rows(grad), as_rows(x)
    means, scales = (rows.new_empty((rows.shape[0], 1), dtype=torch.float32) for _ in range(2))
    factors = None if weight is None else weight.contiguous()
    tensors = [rows, slopes, as_rows(added)]
    run_on_rows([as_rows(of_x), means, scales], backward_kernel, tensors, factors, eps)
    if not vectors:
        return [of_x]
    sums = sums_over_rows(rows, slopes, means, scales, bias is not None)
    mine = sums if weight is not None else sums[1:]
    return [of_x, *(total.to(v.dtype) for total, v in zip(mine, vectors))]


def _setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: list[Tensor]) -> None:
    x, weight, bias, residual = inputs
    ctx.save_for_backward(x if residual is None else output[-1], weight, bias)
    ctx.has_residual = residual is not None
    ctx.options = keyword_only_inputs


def _backward(ctx: Any, grads: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    no_gradient("layer_norm", ctx.options["quantize"])
    x, weight, bias = ctx.saved_tensors
    added = grads[1] if ctx.has_residual else None
    grad = torch.zeros_like(x) if grads[0] is None else grads[0]
    given = len(ctx.needs_input_grad)  # PyTorch leaves out what a call left out
    needed = (*ctx.needs_input_grad, False, False, False)
    learned = needed[1] or needed[2]
    found = BACKWARD(grad, x, weight, bias, added, eps=ctx.options["eps"], learned=learned)
    of_vectors = list(found[1:])
    of_weight = of_vectors.pop(0) if learned and weight is not None else None
    of_bias = of_vectors.pop(0) if learned and bias is not None else None
    of_residual = found[0] if ctx.has_residual and needed[3] else None
    return (found[0], of_weight if needed[1] else None, of_bias if needed[2] else None, of_residual)[:given]


layer_norm.register_autograd(_backward, setup_context=_setup_context)

OPERATOR = torch.ops.nki_lib.layer_norm.default
"""What `nki_lib.layer_norm` calls."""
BACKWARD = torch.ops.nki_lib.layer_norm_backward.default
