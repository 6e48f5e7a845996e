"""The operators behind `nki_lib.cross_entropy`: checks, launches on rows, gradients.

* `torch.ops.nki_lib.cross_entropy`: the loss and the log sum exp of every row.
* `torch.ops.nki_lib.cross_entropy_backward`: the gradient of the logits; it has none itself.

The mean or the sum over the rows is PyTorch's, in `api.py`. Rows go to the kernels in few sizes (`common/rows.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nki import errors
from nki.torch import nki_op
from nki_lib.common.arguments import Checks
from nki_lib.common.kinds import check_whole
from nki_lib.common.rows import run_on_rows
from nki_lib.loss.cross_entropy.kernel import cross_entropy as kernel
from nki_lib.loss.cross_entropy.kernel import cross_entropy_backward as backward_kernel

CHECKS = Checks("cross_entropy")
REDUCTIONS = ("mean", "sum", "none")
MOST_CLASSES = 2**19  # so that a 32-bit integer counts the elements of the rows of a launch

_OPTIONS = "*, int ignore_index=-100, float label_smoothing=0.0, float? softcap=None, float z_loss=0.0"


@dataclass(frozen=True)
class Options:
    """What a call says beside its tensors; PyTorch leaves out what is the default."""

    ignore_index: int = -100
    label_smoothing: float = 0.0
    softcap: float | None = None
    z_loss: float = 0.0


def _fake(
    logits: Tensor, target: Tensor, weight: Tensor | None = None, **options: Any
) -> tuple[Tensor, Tensor]:
    check_arguments(logits, target, weight, Options(**options))
    return tuple(logits.new_empty(target.shape, dtype=torch.float32) for _ in range(2))  # type: ignore[return-value]


@nki_op(
    "nki_lib::cross_entropy",
    fake=_fake,
    schema=f"(Tensor logits, Tensor target, Tensor? weight=None, {_OPTIONS}) -> (Tensor, Tensor)",
)
def cross_entropy(
    logits: Tensor, target: Tensor, weight: Tensor | None = None, **options: Any
) -> tuple[Tensor, Tensor]:
    """Of every row its loss, 0 if it is ignored, and its log sum exp. Dimensions: [N, V], [N], [V] -> [N], [N]."""
    chosen = Options(**options)
    check_arguments(logits, target, weight, chosen)
    check_classes(CHECKS, target, logits.shape[1], chosen.ignore_index)
    both = logits.new_empty(target.shape[0], 2, dtype=torch.float32)
    rows = [logits.contiguous(), *rows_of(target, weight, chosen.ignore_index)]
    run_on_rows(both, kernel, rows, *constants(weight, chosen))
    loss, lse = (column.clone(memory_format=torch.contiguous_format) for column in both.unbind(1))
    return loss, lse


def _fake_backward(grad: Tensor, logits: Tensor, *_: Any, **__: Any) -> Tensor:
    return logits.new_empty(logits.shape)


@nki_op(
    "nki_lib::cross_entropy_backward",
    fake=_fake_backward,
    schema=f"(Tensor grad, Tensor logits, Tensor target, Tensor lse, Tensor? weight=None, {_OPTIONS}) -> Tensor",
)
def cross_entropy_backward(
    grad: Tensor, logits: Tensor, target: Tensor, lse: Tensor, weight: Tensor | None = None, **options: Any
) -> Tensor:
    """The gradient of the logits from that of each row's loss. Dimensions: grad, lse [N] -> [N, V]."""
    out = logits.new_empty(logits.shape)
    chosen = Options(**options)
    classes, row_weight = rows_of(target, weight, chosen.ignore_index)
    rows = [grad.contiguous(), logits.contiguous(), classes, lse, row_weight]
    run_on_rows(out, backward_kernel, rows, *constants(weight, chosen))
    return out


def rows_of(target: Tensor, weight: Tensor | None, ignore_index: int) -> tuple[Tensor, Tensor | None]:
    """Of every row its class as the kernels take it, -1 if ignored, and the weight of that class. [N] int32, [N]."""
    counted = target != ignore_index
    row_weight = None
    if weight is not None:
        row_weight = weight.detach().float()[torch.where(counted, target, 0).long()]
    return torch.where(counted, target, -1).int(), row_weight


def constants(weight: Tensor | None, options: Options) -> tuple[Any, ...]:
    """What the kernels take after the rows."""
    class_weight = None
    if options.label_smoothing and weight is not None:
        class_weight = weight.detach().float().contiguous()
    return class_weight, options.label_smoothing, options.z_loss, options.softcap


# ---- checks -------------------------------------------------------------------------------------------------------


def check_arguments(logits: Tensor, target: Tensor, weight: Tensor | None, options: Options) -> None:
    """Raise for what cannot be computed, naming the argument."""
    CHECKS.tensor("logits", logits, "rows, classes")
    if not 0 < logits.shape[1] <= MOST_CLASSES:
        raise CHECKS.error(errors.ShapeError, "logits", logits, f"from 1 to {MOST_CLASSES} classes")
    check_rows(CHECKS, target, logits.shape[0], options)
    if weight is not None:
        CHECKS.tensor("weight", weight, "classes")
        CHECKS.shape("weight", weight, (logits.shape[1],), "one for each class")


def check_rows(checks: Checks, target: Tensor, rows: int, options: Options) -> None:
    """Raise for targets and options that no loss can have."""
    if target.dtype not in (torch.int64, torch.int32):
        remedy = "pass the index of a class for each row: probabilities of classes are not taken"
        raise checks.error(errors.DtypeError, "target", target, "int64 or int32", remedy)
    checks.shape("target", target, (rows,), "one for each row")
    check_numbers(checks, options)


def check_options(checks: Checks, reduction: object, options: Options) -> None:
    """What a front door is told beside tensors: of the right kinds, before PyTorch's schema asks."""
    checks.choice("reduction", reduction, REDUCTIONS)
    check_whole(checks, "ignore_index", options.ignore_index)
    check_numbers(checks, options)


def check_numbers(checks: Checks, options: Options) -> None:
    """The numbers, in their ranges."""
    smoothing = options.label_smoothing
    checks.number("label_smoothing", smoothing, optional=False)
    if not 0.0 <= smoothing <= 1.0:
        raise checks.error(errors.ArgumentError, "label_smoothing", smoothing, "a number from 0 to 1")
    checks.number("softcap", options.softcap, positive=True)
    checks.number("z_loss", options.z_loss, optional=False)


def check_classes(checks: Checks, target: Tensor, classes: int, ignore_index: int) -> None:
    """Raise unless every target is a class or the index that is ignored. Needs values, so no fake asks."""
    wrong = (target != ignore_index) & ((target < 0) | (target >= classes))
    if wrong.any():
        row = int(wrong.nonzero()[0])
        found = f"{int(target[row])} in row {row}"
        allowed = f"classes 0 to {classes - 1}, or {ignore_index} for rows to ignore"
        raise checks.error(
            errors.ArgumentError, "target", found, allowed, "pass ignore_index=, or mend the labels"
        )


# ---- gradients ----------------------------------------------------------------------------------------------------


def _setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.options = keyword_only_inputs


def _backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    logits, target, *weight, lse = ctx.saved_tensors
    if any(ctx.needs_input_grad[2:]):
        allowed, remedy = "weights that need no gradient", "pass weight.detach()"
        raise CHECKS.error(errors.NoBackwardError, "weight", weight[0], allowed, remedy)
    of_logits = OPERATOR_BACKWARD(grad, logits, target, lse, *weight, **ctx.options)
    return of_logits, None, *[None] * len(weight)


cross_entropy.register_autograd(_backward, setup_context=_setup_context)

OPERATOR = torch.ops.nki_lib.cross_entropy.default
"""What `nki_lib.cross_entropy` calls."""

OPERATOR_BACKWARD = torch.ops.nki_lib.cross_entropy_backward.default
"""The gradient of the logits."""
