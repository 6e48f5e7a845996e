"""`torch.ops.nki_lib.selective_scan` and its gradient: checks, fakes, what autograd needs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nki.torch import nki_op
from nki_lib.sequence.selective_scan.channels import parts_of
from nki_lib.sequence.selective_scan.checks import ScanChecks
from nki_lib.sequence.selective_scan.launches import Scan, gradients, scan_into

CHECKS = ScanChecks("selective_scan")
TENSORS = "Tensor u, Tensor delta, Tensor A, Tensor B, Tensor C"
OPTIONS = "Tensor? D=None, Tensor? z=None, Tensor? delta_bias=None, bool delta_softplus=False"


def results(u: Tensor, A: Tensor, z: Tensor | None) -> list[Tensor]:
    """Unwritten: y; ends, the states after each part of the positions; with z, y before the gate."""
    parts = parts_of(u.shape[2], A.shape[1])
    ends = u.new_empty((u.shape[0], parts, *A.shape), dtype=torch.float32)
    return [u.new_empty(u.shape), ends, *([] if z is None else [u.new_empty(u.shape)])]


def _fake(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
) -> list[Tensor]:
    CHECKS.arguments(u, delta, A, B, C, D, z, delta_bias)
    return results(u, A, z)


@nki_op("nki_lib::selective_scan", fake=_fake, schema=f"({TENSORS}, {OPTIONS}) -> Tensor[]")
def selective_scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
) -> list[Tensor]:
    """The operator behind `nki_lib.selective_scan`, where the arguments are explained; a list of `results`."""
    CHECKS.arguments(u, delta, A, B, C, D, z, delta_bias)
    outs = results(u, A, z)
    if u.numel() == 0:
        outs[1].zero_()
        return outs
    scan_into(outs, Scan(u, delta, A, B, C, D, z, delta_bias, delta_softplus))
    return outs


def _fake_backward(
    grad: Tensor,
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    delta_bias: Tensor | None,
    delta_softplus: bool,
    ends: Tensor,
    of_ends: Tensor | None,
    plain: Tensor | None,
) -> list[Tensor]:
    CHECKS.gradient(grad, u, delta, A, B, C, D, z, delta_bias, ends)
    vectors = [A.new_empty(shape) for shape in (A.shape, A.shape[:1], A.shape[:1])]
    gated = [] if z is None else [u.new_empty(u.shape)]
    return [*(t.new_empty(t.shape) for t in (u, u, B, B)), *vectors, *gated]


@nki_op(
    "nki_lib::selective_scan_backward",
    fake=_fake_backward,
    schema=f"(Tensor grad, {TENSORS}, Tensor? D, Tensor? z, Tensor? delta_bias, bool delta_softplus, Tensor ends, "
    "Tensor? of_ends, Tensor? plain) -> Tensor[]",
)
def selective_scan_backward(
    grad: Tensor,
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    delta_bias: Tensor | None,
    delta_softplus: bool,
    ends: Tensor,
    of_ends: Tensor | None,
    plain: Tensor | None,
) -> list[Tensor]:
    """The gradients of u, delta, B, C, then in float32 of A, D, delta_bias, and of z, if there is z.

    ends, plain: the other results of the operator; of_ends: the gradient of ends.
    """
    empty = _fake_backward(grad, u, delta, A, B, C, D, z, delta_bias, delta_softplus, ends, of_ends, plain)
    if u.numel() == 0:
        return [t.zero_() for t in empty]
    return gradients(Scan(u, delta, A, B, C, D, z, delta_bias, delta_softplus), grad, ends, of_ends, plain)


def _setup_context(ctx: Any, inputs: Any, output: list[Tensor]) -> None:
    *tensors, softplus = inputs
    plain = output[2] if len(output) > 2 else None
    ctx.save_for_backward(*tensors, output[1], plain)
    ctx.softplus = softplus


def _backward(ctx: Any, grads: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    *tensors, ends, plain = ctx.saved_tensors
    u, _, _, _, _, D, z, bias = tensors
    grad = torch.zeros_like(u) if grads[0] is None else grads[0]
    found = BACKWARD(grad, *tensors, ctx.softplus, ends, grads[1], plain)
    of_u, of_delta, of_b, of_c, of_a, of_d, of_bias, *of_z = found
    of_vectors = [None if v is None else g.to(v.dtype) for v, g in ((D, of_d), (bias, of_bias))]
    of_gate = None if z is None else of_z[0]
    every = (of_u, of_delta, of_a, of_b, of_c, of_vectors[0], of_gate, of_vectors[1], None)
    return every[: len(ctx.needs_input_grad)]


selective_scan.register_autograd(_backward, setup_context=_setup_context)

OPERATOR = torch.ops.nki_lib.selective_scan.default
"""What `nki_lib.selective_scan` calls."""
BACKWARD = torch.ops.nki_lib.selective_scan_backward.default
"""Its gradients."""
