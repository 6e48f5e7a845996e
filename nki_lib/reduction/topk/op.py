"""`torch.ops.nki_lib.topk`: checks, launches on rows, gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nki import errors
from nki.torch import nki_op
from nki_lib.common.rows import PIECE, bucket, padded
from nki_lib.reduction.arguments import ReductionChecks
from nki_lib.reduction.topk.kernel import SEGMENT, padded_width
from nki_lib.reduction.topk.kernel import topk as kernel

CHECKS = ReductionChecks("topk")
MOST = SEGMENT // 2  # with more, the candidates of two segments would be no fewer than their elements
WIDEST = 1 << 24  # places are counted in float32


def _fake(x: Tensor, k: int, dim: int = -1, *, largest: bool = True) -> tuple[Tensor, Tensor]:
    shape = shape_of_result(x, k, check_arguments(x, k, dim))
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int64)


@nki_op(
    "nki_lib::topk",
    fake=_fake,
    schema="(Tensor x, int k, int dim=-1, *, bool largest=True) -> (Tensor, Tensor)",
)
def topk(x: Tensor, k: int, dim: int = -1, *, largest: bool = True) -> tuple[Tensor, Tensor]:
    """The operator behind `nki_lib.topk`, where the arguments are explained."""
    dim = check_arguments(x, k, dim)
    shape = shape_of_result(x, k, dim)
    if 0 in shape:
        return x.new_empty(shape), x.new_empty(shape, dtype=torch.int64)
    moved = x.reshape(1) if x.dim() == 0 else x.movedim(dim, -1)
    rows = moved.reshape(-1, moved.shape[-1])
    values, indices = (
        rows.new_empty((rows.shape[0], k)),
        rows.new_empty((rows.shape[0], k), dtype=torch.int64),
    )
    for start in range(0, rows.shape[0], PIECE):
        piece = filled(rows[start : start + PIECE], largest)
        count = piece.shape[0]
        found = kernel(padded(piece, bucket(count)), k, largest)
        for target, each in zip((values, indices), found):
            target[start : start + count] = each[:count]
    by_row = (*moved.shape[:-1], k)
    return place(values, by_row, dim, shape), place(indices, by_row, dim, shape)


def filled(rows: Tensor, largest: bool) -> Tensor:
    """Contiguous rows that can be cut into segments; what they are filled up with comes last in the order."""
    missing = padded_width(rows.shape[1]) - rows.shape[1]
    if missing == 0:
        return rows.contiguous()
    return torch.nn.functional.pad(rows, (0, missing), value=float("-inf") if largest else float("nan"))


def place(rows: Tensor, by_row: tuple[int, ...], dim: int, shape: tuple[int, ...]) -> Tensor:
    """Results of rows where they belong. Dimensions: [rows, k] -> shape."""
    return rows.view(by_row).movedim(-1, dim).reshape(shape).contiguous()


def shape_of_result(x: Tensor, k: int, dim: int) -> tuple[int, ...]:
    """That of x with k along `dim`; a tensor without dimensions stays so."""
    return (*x.shape[:dim], k, *x.shape[dim + 1 :]) if x.dim() else ()


def check_arguments(x: Tensor, k: int, dim: int) -> int:
    """Raise for what cannot be computed, naming the argument; else the dimension counted from the first."""
    CHECKS.values("x", x)
    dim = CHECKS.dimension(x, dim)
    width = x.shape[dim] if x.dim() else 1
    least = 0 if x.dim() else 1
    if not least <= k <= width or k > MOST:
        allowed = f"{least} to {width}, the size of dimension {dim}, and at most {MOST}"
        raise CHECKS.error(errors.ArgumentError, "k", k, allowed)
    if width > WIDEST:
        raise CHECKS.error(errors.ShapeError, "x", x, f"at most {WIDEST} elements along dimension {dim}")
    return dim


def _setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    x, _, ctx.dim = inputs
    ctx.save_for_backward(output[1])
    ctx.shape = x.shape


def _backward(ctx: Any, of_values: Tensor, _: Any) -> tuple[Tensor, None, None]:
    """Every gradient goes where its element stood; no place is named twice."""
    (indices,) = ctx.saved_tensors
    return of_values.new_zeros(ctx.shape).scatter(ctx.dim, indices, of_values), None, None


topk.register_autograd(_backward, setup_context=_setup_context)

OPERATOR = torch.ops.nki_lib.topk.default
"""What `nki_lib.topk` calls."""
