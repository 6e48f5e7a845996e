"""`torch.ops.nki_lib.rms_norm` and its gradient: checks, the cases without work, launches on rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nki.torch import nki_op
from nki_lib.common.arguments import Checks
from nki_lib.norm.arguments import as_rows, check, no_gradient, results
from nki_lib.norm.launches import run_on_rows, sums_over_rows
from nki_lib.norm.rms_norm.backward import rms_norm_backward as backward_kernel
from nki_lib.norm.rms_norm.kernel import rms_norm as kernel

CHECKS = Checks("rms_norm")
OPTIONS = "*, float eps=1e-6, float offset=0.0"


def _fake(
    x: Tensor,
    weight: Tensor | None = None,
    residual: Tensor | None = None,
    *,
    eps: float = 1e-6,
    offset: float = 0.0,
    quantize: str | None = None,
) -> list[Tensor]:
    check(CHECKS, x, residual, eps, quantize, offset, weight=weight)
    return results(x, residual, quantize)


@nki_op(
    "nki_lib::rms_norm",
    fake=_fake,
    schema=f"(Tensor x, Tensor? weight=None, Tensor? residual=None, {OPTIONS}, str? quantize=None) -> Tensor[]",
)
def rms_norm(
    x: Tensor,
    weight: Tensor | None = None,
    residual: Tensor | None = None,
    *,
    eps: float = 1e-6,
    offset: float = 0.0,
    quantize: str | None = None,
) -> list[Tensor]:
    """The operator behind `nki_lib.rms_norm`, where the arguments are explained; a list of what that returns."""
    check(CHECKS, x, residual, eps, quantize, offset, weight=weight)
    outs = results(x, residual, quantize)
    if x.numel():
        weight = None if weight is None else weight.contiguous()
        rows = [as_rows(x), as_rows(residual)]
        run_on_rows([as_rows(out) for out in outs], kernel, rows, weight, eps, offset, quantize)
    return outs


def _fake_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None = None,
    added: Tensor | None = None,
    *,
    eps: float = 1e-6,
    offset: float = 0.0,
    learned: bool = False,
) -> list[Tensor]:
    return [x.new_empty(x.shape), *([weight.new_empty(weight.shape)] if learned else [])]


@nki_op(
    "nki_lib::rms_norm_backward",
    fake=_fake_backward,
    schema=f"(Tensor grad, Tensor x, Tensor? weight=None, Tensor? added=None, {OPTIONS}, bool learned=False) "
    "-> Tensor[]",
)
def rms_norm_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None = None,
    added: Tensor | None = None,
    *,
    eps: float = 1e-6,
    offset: float = 0.0,
    learned: bool = False,
) -> list[Tensor]:
    """The gradient of x, plus `added`; if `learned`, of weight too. All [..., H] as the arguments of `rms_norm`."""
    of_x = x.new_empty(x.shape)
    if x.numel() == 0:
        return [of_x, *([torch.zeros_like(weight)] if learned else [])]
    slopes, rows = as_rows(grad), as_rows(x)
    scales = rows.new_empty((rows.shape[0], 1), dtype=torch.float32)
    factors = None if weight is None else weight.contiguous()
    tensors = [rows, slopes, as_rows(added)]
    run_on_rows([as_rows(of_x), scales], backward_kernel, tensors, factors, eps, offset)
    if not learned:
        return [of_x]
    return [of_x, sums_over_rows(rows, slopes, None, scales, False)[0].to(weight.dtype)]


def _setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: list[Tensor]) -> None:
    x, weight, residual = inputs
    ctx.save_for_backward(x if residual is None else output[-1], weight)
    ctx.has_residual = residual is not None
    ctx.options = keyword_only_inputs


def _backward(ctx: Any, grads: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    no_gradient("rms_norm", ctx.options["quantize"])
    x, weight = ctx.saved_tensors
    added = grads[1] if ctx.has_residual else None
    grad = torch.zeros_like(x) if grads[0] is None else grads[0]
    given = len(ctx.needs_input_grad)  # PyTorch leaves out what a call left out
    needed = (*ctx.needs_input_grad, False, False)
    learned = weight is not None and needed[1]
    eps, offset = ctx.options["eps"], ctx.options["offset"]
    found = BACKWARD(grad, x, weight, added, eps=eps, offset=offset, learned=learned)
    of_residual = found[0] if ctx.has_residual and needed[2] else None
    return (found[0], found[1] if learned else None, of_residual)[:given]


rms_norm.register_autograd(_backward, setup_context=_setup_context)

OPERATOR = torch.ops.nki_lib.rms_norm.default
"""What `nki_lib.rms_norm` calls."""
BACKWARD = torch.ops.nki_lib.rms_norm_backward.default
