"""The two sides of the backward pass: tiles of queries, gradients in SBUF, and chunks of keys, gradients in PSUM."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.attention.flash_attention.loading import (
    Chunk,
    load_by_partition,
    repeat_row,
    transpose_blocks,
    transpose_rows,
)
from nki_lib.attention.flash_attention.masking import LARGEST
from nki_lib.attention.flash_attention.order import Tile
from nki_lib.common.tiles import column_like, load


class Queries:
    """A tile of queries and what its gradients need. Parts [d, m], rows [m, D], columns [m, 1]."""

    def __init__(self, tile: Tile, q: Any, out: Any, grad: Any, lse: Any, grad_lse: Any) -> None:
        self.tile = tile
        self.tensors = q, out, grad, lse, grad_lse
        self.q = self.dq = None

    def load(self) -> None:
        """Fetch, transpose and sum what is needed, once."""
        if self.q is not None:
            return
        q, out, grad, lse, grad_lse = self.tensors
        tile, mine = self.tile, slice(self.tile.start, self.tile.stop)
        self.q, self.grad = load(q[tile.head, mine, :]), load(grad[tile.head, mine, :])
        self.q_parts, self.grad_parts = transpose_rows(self.q), transpose_rows(self.grad)
        self.low = load(lse[tile.head, mine].expand_dim(1))
        nisa.tensor_scalar(
            dst=self.low, data=self.low, op0=nl.multiply, operand0=-1.0, op1=nl.minimum, operand1=LARGEST
        )
        self.shift = row_sums(self.grad, load(out[tile.head, mine, :]))
        if grad_lse is not None:
            extra = load(grad_lse[tile.head, mine].expand_dim(1))
            nisa.tensor_tensor(dst=self.shift, data1=self.shift, data2=extra, op=nl.subtract)

    def add(self, rows: Any) -> None:
        """dq += rows [m, D]."""
        if self.dq is None:
            self.dq = nl.ndarray(rows.shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(dst=self.dq, src=rows)
        else:
            nisa.tensor_tensor(dst=self.dq, data1=self.dq, data2=rows, op=nl.add)

    def store(self, out: Any, scale: float) -> None:
        """scale * dq to HBM; a tile that saw no key has none."""
        window = out[self.tile.head, self.tile.start : self.tile.stop, :]
        if self.dq is None:
            clear(window)
        else:
            tile = nl.ndarray(window.shape, dtype=window.dtype, buffer=nl.sbuf)
            scaled(tile, self.dq, scale)
            nisa.dma_copy(dst=window, src=tile)


def row_sums(a: Any, b: Any) -> Any:
    """The sums over D of a * b. Dimensions: [m, D] -> [m, 1]."""
    products = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
    sums = column_like(a)
    nisa.tensor_tensor(dst=products, data1=a, data2=b, op=nl.multiply)
    nisa.tensor_reduce(dst=sums, op=nl.add, data=products, axis=1)
    return sums


class KeyGradients:
    """A chunk of c keys in SBUF with the gradients of k and v in PSUM, [128, c/128, D] each.

    complete: every key is seen by some query.
    """

    def __init__(self, k: Any, v: Any, ids: Any, start: int, stop: int) -> None:
        self.tensors = k[start:stop, :], v[start:stop, :], None if ids is None else ids[start:stop]
        self.start, self.stop, self.complete = start, stop, True
        self.k = self.v = self.dk = self.dv = None

    def load(self) -> None:
        """Fetch and transpose the chunk, once."""
        if self.k is None:
            k, v, ids = self.tensors
            rows, values = load_by_partition(k), load_by_partition(v)
            ids = None if ids is None else repeat_row(ids.expand_dim(0))
            self.k = Chunk(transpose_blocks(rows, k.shape[0]), rows, ids)
            self.v = Chunk(transpose_blocks(values, k.shape[0]), values, None)

    def start_sums(self) -> None:
        """Banks for dk and dv; before, they belong to the chunk before."""
        shape = self.k.values.shape
        self.dk, self.dv = (nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum) for _ in range(2))
        if not self.complete:  # the first product overwrites these zeros
            nisa.memset(dst=self.dk, value=0.0)
            nisa.memset(dst=self.dv, value=0.0)

    def store(self, dk: Any, dv: Any, scale: float) -> None:
        """scale * dk and dv to HBM."""
        for out, gradient, factor in ((dk, self.dk, scale), (dv, self.dv, 1.0)):
            tile = nl.ndarray(gradient.shape, dtype=nl.float32, buffer=nl.sbuf)
            side = nl.tile_size.pmax
            full, rest = divmod(self.stop - self.start, side)
            if full:
                scaled(tile[:, :full, :], gradient[:, :full, :], factor)
                rows = out[self.start : self.start + full * side, :]
                blocks = rows.reshape((full, side, rows.shape[1])).permute((1, 0, 2))
                nisa.dma_copy(dst=blocks, src=tile[:, :full, :])
            if rest:
                scaled(tile[:rest, full, :], gradient[:rest, full, :], factor)
                nisa.dma_copy(dst=out[self.start + full * side : self.stop, :], src=tile[:rest, full, :])


def scaled(dst: Any, src: Any, factor: float) -> None:
    """dst = src * factor."""
    nisa.tensor_scalar(dst=dst, data=src, op0=nl.multiply, operand0=factor)


def clear(*windows: Any) -> None:
    """Zeros into windows [c, D] of HBM."""
    side = nl.tile_size.pmax
    for window in windows:
        zeros = nl.ndarray((side, window.shape[1]), dtype=window.dtype, buffer=nl.sbuf)
        nisa.memset(dst=zeros, value=0.0)
        for start in range(0, window.shape[0], side):
            rows = window[start : min(start + side, window.shape[0]), :]
            nisa.dma_copy(dst=rows, src=zeros[: rows.shape[0], :])
