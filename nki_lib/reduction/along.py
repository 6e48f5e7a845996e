"""Launches of kernels on the lines of a tensor along one dimension: rows, or columns, of a matrix.

The rows if the dimension is the last one in memory; else the columns of [dimension, the later ones], which the kernel
turns on the way, or, where these are few or the kernel cannot turn them, the rows of a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nki.torch import run_into
from nki_lib.common.rows import PIECE, bucket, run_on_rows

FEWEST_COLUMNS = 64  # with fewer the kernel would use less than half of the partitions


def run_along(
    kernel: Any, tensors: Sequence[Tensor], dim: int, dtype: torch.dtype, *rest: Any, columns: bool = True
) -> Tensor:
    """kernel(*tensors, columns, *rest) on all lines along `dim`, which is not negative.

    Dimensions: all tensors of one shape -> the same shape, contiguous, in `dtype`. `columns`: the kernel takes them.
    """
    shape = tensors[0].shape
    if tensors[0].numel() == 0:
        return tensors[0].new_empty(shape, dtype=dtype)
    tensors = [t.reshape(1) if t.dim() == 0 else t for t in tensors]
    width, inner = tensors[0].shape[dim], tensors[0].shape[dim + 1 :].numel()
    moved = [t.movedim(dim, -1) for t in tensors]
    if columns and inner >= FEWEST_COLUMNS and not moved[0].is_contiguous():
        result = tensors[0].new_empty((tensors[0].shape[:dim].numel(), width, inner), dtype=dtype)
        matrices = [t.reshape(result.shape) for t in tensors]
        for i, target in enumerate(result):
            run_on_columns(target, kernel, [m[i] for m in matrices], *rest)
        return result.view(shape)
    rows = torch.empty((tensors[0].numel() // width, width), dtype=dtype, device=tensors[0].device)
    run_on_rows(rows, kernel, [runs(m.reshape(rows.shape)) for m in moved], False, *rest)
    return rows.view(moved[0].shape).movedim(-1, dim).reshape(shape).contiguous()


def runs(rows: Tensor) -> Tensor:
    """Rows that lie in one piece each: the DMA would fetch their elements one by one otherwise."""
    return rows if rows.stride(1) == 1 else rows.contiguous()


def run_on_columns(out: Tensor, kernel: Any, matrices: Sequence[Tensor], *rest: Any) -> None:
    """The columns of matrices [W, L], piece by piece, filled up to one of a few numbers like the rows of others."""
    for start in range(0, out.shape[1], PIECE):
        target = out[:, start : start + PIECE]
        count = target.shape[1]
        missing = bucket(count) - count
        pieces = [m[:, start : start + count] for m in matrices]
        if missing == 0:
            run_into(target, kernel, *pieces, True, *rest)
        else:
            pieces = [torch.nn.functional.pad(p, (0, missing)) for p in pieces]
            target.copy_(kernel(*pieces, True, *rest)[:, :count])
