"""Launches on rows of kernels with several results: pieces in few sizes, so that few programs are staged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

import nki.language as nl
from nki.torch import run_into
from nki_lib.common.rows import bucket, padded
from nki_lib.norm.weight_gradients import weight_gradients as kernel

PIECE = 64 * nl.tile_size.pmax
"""The most rows of a launch: enough to hide its start and end."""


def run_on_rows(outs: Sequence[Tensor], kernel: Any, tensors: Sequence[Tensor | None], *rest: Any) -> None:
    """outs[i][r] = the i-th result of kernel(rows r of the tensors, *rest), piece by piece.

    Dimensions: outs, tensors [R, ...] each, or None; the kernel returns as many rows as it is given.
    """
    rows = outs[0].shape[0]
    for start in range(0, rows, PIECE):
        targets = [out[start : start + PIECE] for out in outs]
        count = targets[0].shape[0]
        size = bucket(count)
        pieces = [None if t is None else padded(t[start : start + count], size) for t in tensors]
        if size == count:
            run_into(targets, kernel, *pieces, *rest)
            continue
        found = kernel(*pieces, *rest)
        for target, values in zip(targets, found if isinstance(found, tuple) else (found,)):
            target.copy_(values[:count])


def sums_over_rows(
    x: Tensor, grad: Tensor, negated: Tensor | None, scales: Tensor, with_bias: bool
) -> list[Tensor]:
    """The gradients of weight, and with a bias of it: [H] float32 each. Dimensions: those of the kernel."""
    totals = [scales.new_zeros(x.shape[1]) for _ in range(2 if with_bias else 1)]
    for start in range(0, x.shape[0], PIECE):
        pieces = [None if t is None else t[start : start + PIECE] for t in (x, grad, negated, scales)]
        size = bucket(pieces[0].shape[0])
        found = kernel(*(None if t is None else padded(t, size) for t in pieces), with_bias)
        for total, values in zip(totals, found if with_bias else (found,)):
            total += values[0]
    return totals
