"""The gradient of the MLP: tiled products, and one kernel for what lies between them.

Pseudocode:
    n = the normalised x; its products with up and gate again
    dh = dy down; hidden, du, dg by `backward.py`
    of down = dy^T hidden, of up = du^T n, of gate = dg^T n
    of n = du up + dg gate; through the norm to x
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nki.torch import nki_op
from nki_lib.common.rows import as_rows
from nki_lib.linear.matmul.op import OPERATOR as MATMUL
from nki_lib.linear.mlp.backward import mlp_backward as kernel
from nki_lib.linear.mlp.checks import Options, Tensors, column_sum
from nki_lib.norm.launches import run_on_rows
from nki_lib.norm.layer_norm.op import BACKWARD as LAYER_NORM_BACKWARD
from nki_lib.norm.layer_norm.op import OPERATOR as LAYER_NORM
from nki_lib.norm.rms_norm.op import BACKWARD as RMS_NORM_BACKWARD
from nki_lib.norm.rms_norm.op import OPERATOR as RMS_NORM


def _fake(grad: Tensor, up: Tensor, gate: Tensor | None = None, *_: Any, **__: Any) -> list[Tensor]:
    return [torch.empty_like(up) for _ in range(2 if gate is None else 3)]


@nki_op(
    "nki_lib::mlp_backward",
    fake=_fake,
    schema="(Tensor grad, Tensor up, Tensor? gate=None, Tensor? up_bias=None, Tensor? gate_bias=None, *, "
    'str activation="silu", float? limit=None) -> Tensor[]',
)
def mlp_backward(
    grad: Tensor,
    up: Tensor,
    gate: Tensor | None = None,
    up_bias: Tensor | None = None,
    gate_bias: Tensor | None = None,
    *,
    activation: str = "silu",
    limit: float | None = None,
) -> list[Tensor]:
    """hidden, of up and, with a gate, of gate: the elementwise part, see the kernel. All [R, I], contiguous."""
    outs = [torch.empty_like(up) for _ in range(2 if gate is None else 3)]
    if up.numel():
        biases = [None if b is None else b.contiguous() for b in (up_bias, gate_bias)]
        run_on_rows(outs, kernel, [grad, up, gate], *biases, activation, limit)
    return outs


BACKWARD = torch.ops.nki_lib.mlp_backward.default


def normalised(given: Tensors, options: Options) -> Tensor:
    """The rows that are multiplied."""
    if given.norm_weight is None:
        return given.x
    if options.norm == "rms":
        return RMS_NORM(given.x, given.norm_weight, eps=options.eps, offset=options.offset)[0]
    return LAYER_NORM(given.x, given.norm_weight, given.norm_bias, eps=options.eps)[0]


def through_the_norm(grad: Tensor, given: Tensors, options: Options, learned: bool) -> list[Tensor | None]:
    """From the gradient of the normalised rows those of x, norm_weight and norm_bias."""
    if given.norm_weight is None:
        return [grad, None, None]
    chosen = {"eps": options.eps, "learned": learned}
    if options.norm == "rms":
        found = RMS_NORM_BACKWARD(grad, given.x, given.norm_weight, offset=options.offset, **chosen)
    else:
        found = LAYER_NORM_BACKWARD(grad, given.x, given.norm_weight, given.norm_bias, **chosen)
    return [*found, None, None][:3]


def gradients(grad: Tensor, given: Tensors, options: Options, needed: Tensors) -> tuple[Tensor | None, ...]:
    """Of all tensors, in the operator's order; None where none is needed."""
    shape = given.x.shape
    if shape[-1] == 0:  # nothing to normalise, and nothing comes of it
        wanted = zip(given._replace(residual=given.x), needed)
        return tuple(torch.zeros_like(t) if need and t is not None else None for t, need in wanted)
    slopes, rows = as_rows(grad).contiguous(), as_rows(normalised(given, options))
    of_hidden = MATMUL(slopes, given.down)
    above = MATMUL(rows, given.up.mT)
    opened = None if given.gate is None else MATMUL(rows, given.gate.mT)
    biases = (given.up_bias, given.gate_bias)
    found = BACKWARD(of_hidden, above, opened, *biases, activation=options.activation, limit=options.limit)
    hidden, of_up = found[:2]
    of_gate = None if given.gate is None else found[2]
    result: dict[str, Tensor | None] = dict.fromkeys(Tensors._fields)
    if needed.x or needed.norm_weight or needed.norm_bias:
        of_rows = MATMUL(of_up, given.up)
        if of_gate is not None:
            of_rows = of_rows + MATMUL(of_gate, given.gate)
        learned = bool(needed.norm_weight or needed.norm_bias)
        of_norm = through_the_norm(of_rows.reshape(shape), given, options, learned)
        result |= dict(zip(("x", "norm_weight", "norm_bias"), of_norm))
    for name, of_product in (("up", of_up), ("gate", of_gate)):
        if of_product is not None and getattr(needed, name):
            result[name] = MATMUL(of_product.mT, rows)
        if getattr(needed, f"{name}_bias"):
            result[f"{name}_bias"] = column_sum(of_product, grad.dtype)
    if needed.down:
        result["down"] = MATMUL(slopes.mT, hidden)
    if needed.down_bias:
        result["down_bias"] = column_sum(slopes, grad.dtype)
    if needed.residual:
        result["residual"] = grad
    return tuple(result[name] for name in Tensors._fields)
