"""Operators that treat every row alike, whatever batch element or position it belongs to: one program for all lengths.

Rows go to the kernel in pieces of at most `PIECE`, and each piece is filled up with zeros to one of a few sizes. So the
programs of an operator are counted: nineteen for all batch sizes and lengths together, and usually two or three.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import nki.language as nl
from nki.torch import run_into

PIECE = 16 * nl.tile_size.pmax


def bucket(count: int) -> int:
    """The size that `count` is filled up to: a power of two within one tile of rows, else whole tiles.

    Their number has three leading binary digits, so that at most a fifth of the tiles is filling: 1, 2, ... 8, 10, ...
    """
    side = nl.tile_size.pmax
    if count <= side:
        return 1 << (count - 1).bit_length()
    tiles = -(-count // side)
    step = 1 << max(tiles.bit_length() - 3, 0)
    return -(-tiles // step) * step * side


def name_of(dtype: torch.dtype) -> str:
    """What nki.language calls it."""
    return str(dtype).removeprefix("torch.")


def as_rows(tensor: Tensor) -> Tensor:
    """[..., n] as [R, n], of empty tensors too, whose R a -1 would not tell; a copy only where strides ask for it."""
    return tensor.unsqueeze(0).flatten(0, -2)


def padded(rows: Tensor, size: int) -> Tensor:
    """`rows` with zero rows after them, `size` in all; the same tensor if it has as many."""
    missing = size - rows.shape[0]
    if missing == 0:
        return rows
    filled = rows.new_zeros(size, *rows.shape[1:])
    filled[: rows.shape[0]].copy_(rows)  # torch.cat would refuse types under torch.autocast
    return filled


def run_on_rows(
    outs: Tensor | Sequence[Tensor],
    kernel: Any,
    tensors: Sequence[Tensor | None],
    *rest: Any,
    piece: int = PIECE,
) -> None:
    """outs[i][r] = the i-th result of kernel(rows r of the tensors, *rest), or the only one, piece by piece.

    Dimensions: outs [R, ...] each, tensors [R, ...] each or None; the kernel returns one row for each that it is given.
    """
    results = [outs] if isinstance(outs, Tensor) else list(outs)
    for start in range(0, results[0].shape[0], piece):
        targets = [out[start : start + piece] for out in results]
        count = targets[0].shape[0]
        size = bucket(count)
        pieces = [None if t is None else padded(t[start : start + count], size) for t in tensors]
        if size == count:
            run_into(targets if len(targets) > 1 else targets[0], kernel, *pieces, *rest)
            continue
        found = kernel(*pieces, *rest)
        for target, values in zip(targets, found if isinstance(found, tuple) else (found,)):
            target.copy_(values[:count])
