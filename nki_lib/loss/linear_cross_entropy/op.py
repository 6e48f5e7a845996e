"""`torch.ops.nki_lib.linear_cross_entropy`: checks, launches on rows, gradients.

The way there never has the logits in memory. The way back makes them again for a piece of up to `rows.PIECE` rows at a
time, with the kernels of `matmul` and `cross_entropy`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nki import errors
from nki.torch import nki_op
from nki_lib.common import rows
from nki_lib.common.arguments import Checks
from nki_lib.linear.matmul.op import FUSED as MATMUL
from nki_lib.loss.cross_entropy.op import MOST_CLASSES, Options, check_classes, check_rows, rows_of
from nki_lib.loss.cross_entropy.op import OPERATOR_BACKWARD as LOGITS_BACKWARD
from nki_lib.loss.linear_cross_entropy.kernel import linear_cross_entropy as kernel

CHECKS = Checks("linear_cross_entropy")
_OPTIONS = "*, int ignore_index=-100, float label_smoothing=0.0, float? softcap=None, float z_loss=0.0"


def _fake(x: Tensor, weight: Tensor, target: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    check_arguments(x, weight, target, Options(**options))
    loss, lse = (x.new_empty(target.shape, dtype=torch.float32) for _ in range(2))
    return loss, lse


@nki_op(
    "nki_lib::linear_cross_entropy",
    fake=_fake,
    schema=f"(Tensor x, Tensor weight, Tensor target, {_OPTIONS}) -> (Tensor, Tensor)",
)
def linear_cross_entropy(x: Tensor, weight: Tensor, target: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """Of every row its loss and its log sum exp. Dimensions: x [N, H], weight [V, H], target [N] -> [N], [N]."""
    chosen = Options(**options)
    check_arguments(x, weight, target, chosen)
    check_classes(CHECKS, target, weight.shape[0], chosen.ignore_index)
    both = x.new_empty(target.shape[0], 2, dtype=torch.float32)
    classes, _ = rows_of(target, None, chosen.ignore_index)
    constants = (chosen.label_smoothing, chosen.z_loss, chosen.softcap)
    rows.run_on_rows(both, kernel, [x.contiguous(), classes], weight.contiguous(), *constants)
    loss, lse = (column.clone(memory_format=torch.contiguous_format) for column in both.unbind(1))
    return loss, lse


def _fake_backward(
    grad: Tensor, x: Tensor, weight: Tensor, target: Tensor, lse: Tensor, **_: Any
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), weight.new_empty(weight.shape)


@nki_op(
    "nki_lib::linear_cross_entropy_backward",
    fake=_fake_backward,
    schema=f"(Tensor grad, Tensor x, Tensor weight, Tensor target, Tensor lse, {_OPTIONS}) -> (Tensor, Tensor)",
)
def linear_cross_entropy_backward(
    grad: Tensor, x: Tensor, weight: Tensor, target: Tensor, lse: Tensor, **options: Any
) -> tuple[Tensor, Tensor]:
    """The gradients of x and weight from that of each row's loss; those of weight are summed in float32."""
    of_x = x.new_empty(x.shape)
    of_weight = weight.new_zeros(weight.shape, dtype=torch.float32)
    for start in range(0, x.shape[0], rows.PIECE):
        piece = slice(start, start + rows.PIECE)
        # lse is that of float32 logits, and goes with no others: of rounded ones probabilities would not sum to 1.
        logits = MATMUL(x[piece], weight.mT, out_dtype=torch.float32)
        slopes = LOGITS_BACKWARD(grad[piece].contiguous(), logits, target[piece], lse[piece], **options)
        slopes = slopes.to(x.dtype)
        of_x[piece] = MATMUL(slopes, weight)
        of_weight += MATMUL(slopes.mT, x[piece], out_dtype=torch.float32)
    return of_x, of_weight.to(weight.dtype)


def check_arguments(x: Tensor, weight: Tensor, target: Tensor, options: Options) -> None:
    """Raise for what cannot be computed, naming the argument."""
    CHECKS.tensor("x", x, "rows, width")
    CHECKS.tensor("weight", weight, "classes, width", like=x)
    if weight.shape[1] != x.shape[1] or x.shape[1] == 0:
        raise CHECKS.error(
            errors.ShapeError, "weight", weight, f"{max(x.shape[1], 1)} columns, the width of x"
        )
    if not 0 < weight.shape[0] <= MOST_CLASSES:
        raise CHECKS.error(errors.ShapeError, "weight", weight, f"from 1 to {MOST_CLASSES} classes")
    check_rows(CHECKS, target, x.shape[0], options)


def _setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.options = keyword_only_inputs


def _backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor, Tensor, None]:
    x, weight, target, lse = ctx.saved_tensors
    return *OPERATOR_BACKWARD(grad, x, weight, target, lse, **ctx.options), None


linear_cross_entropy.register_autograd(_backward, setup_context=_setup_context)

OPERATOR = torch.ops.nki_lib.linear_cross_entropy.default
"""What `nki_lib.linear_cross_entropy` calls."""

OPERATOR_BACKWARD = torch.ops.nki_lib.linear_cross_entropy_backward.default
"""The gradients of x and weight."""
