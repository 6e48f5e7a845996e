"""`torch.ops.nki_lib.embedding` and its gradient: checks, launches on ids.

Ids of all shapes are one list, which goes to the kernels in few sizes (`common/rows.py`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nki import errors
from nki.torch import nki_op
from nki_lib.common.arguments import Checks
from nki_lib.common.rows import PIECE, bucket, padded, run_on_rows
from nki_lib.lookup.embedding.kernel import embedding as kernel
from nki_lib.lookup.embedding.kernel import embedding_backward as backward_kernel

CHECKS = Checks("embedding")
MOST_ROWS = 2**24 - 1  # ids that float32 holds exactly: the kernel of the gradient compares them so


def _fake(
    input: Tensor, weight: Tensor, *, padding_idx: int | None = None, scale: float | None = None
) -> Tensor:
    check_arguments(input, weight, padding_idx, scale)
    return weight.new_empty(*input.shape, weight.shape[1])


@nki_op(
    "nki_lib::embedding",
    fake=_fake,
    schema="(Tensor input, Tensor weight, *, SymInt? padding_idx=None, float? scale=None) -> Tensor",
)
def embedding(
    input: Tensor, weight: Tensor, *, padding_idx: int | None = None, scale: float | None = None
) -> Tensor:
    """The operator behind `nki_lib.embedding`, where the arguments are explained."""
    check_arguments(input, weight, padding_idx, scale)
    check_ids(input, weight)
    out = weight.new_empty(*input.shape, weight.shape[1])
    if out.numel():
        ids = input.reshape(-1).int()
        run_on_rows(out.view(ids.shape[0], -1), kernel, [ids], weight.contiguous(), scale)
    return out


def _fake_backward(
    grad: Tensor, input: Tensor, rows: int, *, padding_idx: int | None = None, scale: float | None = None
) -> Tensor:
    return grad.new_empty(rows, grad.shape[-1])


@nki_op(
    "nki_lib::embedding_backward",
    fake=_fake_backward,
    schema="(Tensor grad, Tensor input, SymInt rows, *, SymInt? padding_idx=None, float? scale=None) -> Tensor",
)
def embedding_backward(
    grad: Tensor, input: Tensor, rows: int, *, padding_idx: int | None = None, scale: float | None = None
) -> Tensor:
    """The gradient of a table of `rows` rows: sums in float32, in a fixed order, rounded once."""
    sums = grad.new_zeros(rows, grad.shape[-1], dtype=torch.float32)
    if grad.numel() == 0:
        return sums.to(grad.dtype)
    ids, of_ids = input.reshape(-1).int(), grad.reshape(-1, grad.shape[-1])
    if padding_idx is not None:
        ids = torch.where(ids == padding_idx % rows, rows, ids)
    if of_ids.isfinite().all():
        for start in range(0, ids.shape[0], PIECE):
            size = bucket(min(PIECE, ids.shape[0] - start))
            piece = slice(start, start + size)
            backward_kernel(sums, padded(of_ids[piece].contiguous(), size), padded(ids[piece], size), scale)
    else:  # in the kernel's products a NaN or an infinity would reach the other ids of its tile
        kept = ids < rows
        sums.index_add_(0, ids[kept], of_ids[kept].float() * (1.0 if scale is None else scale))
    return sums.to(grad.dtype)


def check_arguments(input: Tensor, weight: Tensor, padding_idx: int | None, scale: float | None) -> None:
    """Raise for what cannot be looked up, naming the argument."""
    if input.dtype not in (torch.int64, torch.int32):
        raise CHECKS.error(errors.DtypeError, "input", input, "int64 or int32", "cast it: input.long()")
    CHECKS.tensor("weight", weight, "rows, width")
    rows = weight.shape[0]
    if rows > MOST_ROWS:
        raise CHECKS.error(errors.ShapeError, "weight", weight, f"at most {MOST_ROWS} rows")
    if padding_idx is not None and not -rows <= padding_idx < rows:
        allowed = f"None, or a row from {-rows} to {rows - 1}"
        raise CHECKS.error(errors.ArgumentError, "padding_idx", padding_idx, allowed)
    CHECKS.number("scale", scale)


def check_ids(input: Tensor, weight: Tensor) -> None:
    """Raise unless every id is a row of the table. Needs values, so no fake asks."""
    wrong = (input < 0) | (input >= weight.shape[0])
    if wrong.any():
        place = wrong.nonzero()[0].tolist()
        found = f"{int(input[tuple(place)])} at {place}"
        remedy = "mend the ids, or pass a table with more rows"
        raise CHECKS.error(errors.ArgumentError, "input", found, f"rows 0 to {weight.shape[0] - 1}", remedy)


def _setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Tensor) -> None:
    ids, weight = inputs
    ctx.save_for_backward(ids)
    ctx.rows, ctx.options = weight.shape[0], keyword_only_inputs


def _backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
    (ids,) = ctx.saved_tensors
    return None, BACKWARD_OPERATOR(grad, ids, ctx.rows, **ctx.options)


embedding.register_autograd(_backward, setup_context=_setup_context)

OPERATOR = torch.ops.nki_lib.embedding.default
"""What `nki_lib.embedding` calls."""

BACKWARD_OPERATOR = torch.ops.nki_lib.embedding_backward.default
"""The gradient of the table."""
