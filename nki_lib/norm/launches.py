"""Launches on rows of kernels with several results: pieces in few sizes, so that few programs are staged."""

from __future__ import annotations

from functools import partial

from torch import Tensor

import nki.language as nl
from nki_lib.common import rows
from nki_lib.common.rows import bucket, padded
from nki_lib.norm.weight_gradients import weight_gradients as kernel

PIECE = 64 * nl.tile_size.pmax
"""The most rows of a launch: enough to hide its start and end."""


run_on_rows = partial(rows.run_on_rows, piece=PIECE)
"""`common.rows.run_on_rows` in pieces of this size."""


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
