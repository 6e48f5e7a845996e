"""Tokens, weights and vectors on their way from HBM, and which places of an axis lie together on the partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import fetch


@dataclass(frozen=True)
class Slab:
    """The places start, start + step, ... of an axis, `count` of them, up to 128: one for each partition.

    The step is 1, or 2 along the contracted axis of fp4 weights: 128 rows of bytes are two slabs.
    """

    start: int
    count: int
    step: int = 1

    def of(self, first: int = 0) -> slice:
        """The slab as an index into what begins at place `first`."""
        low = self.start - first
        return slice(low, low + (self.count - 1) * self.step + 1, self.step)


def slabs(first: int, stop: int, packed: int = 1) -> list[Slab]:
    """The slabs of the places from first to stop - 1, in the order of the rows of weights that hold them."""
    found = []
    for start in range(first, stop, nl.tile_size.pmax * packed):
        count = min(nl.tile_size.pmax, (stop - start) // packed)
        found.extend([Slab(start + place, count, packed) for place in range(packed)])
    return found


def runs(places: list[Slab], most: int) -> list[Any]:
    """Neighbours of equal size, up to `most` of them, as (first, stop, count): what one instruction may cover."""
    found = []
    for i in range(len(places)):
        if found and places[i].count == found[-1][2] and i - found[-1][0] < most:
            found[-1] = (found[-1][0], i + 1, found[-1][2])
        else:
            found.append((i, i + 1, places[i].count))
    return found


def load_rows(source: Any, dtype: Any) -> Any:
    """Rows of a matrix in HBM as [128, r/128, f] of `dtype`: row i in partition i % 128. The last block may be short.

    Dimensions: source [r, ...], f elements in each row.
    """
    count, side = source.shape[0], nl.tile_size.pmax
    width = source.size // count
    full, left = divmod(count, side)
    tile = nl.ndarray((min(side, count), full + (left > 0), width), dtype=dtype, buffer=nl.sbuf)
    if full:
        blocks = source[: full * side].reshape_dim(0, (full, side))
        fetch(dst=tile[:, :full, :], src=blocks.permute((1, 0, *range(2, len(source.shape) + 1))))
    if left:
        fetch(dst=tile[:left, full, :], src=source[full * side :])
    return tile


def load_tokens(x: Any, places: list[Slab]) -> Any:
    """x transposed, [128, slabs, T]. Dimensions: x [T, H] in HBM, the slabs of H."""
    tokens, width = x.shape
    rows = nl.ndarray((tokens, width), dtype=x.dtype, buffer=nl.sbuf)
    fetch(dst=rows, src=x)
    result = nl.ndarray((nl.tile_size.pmax, len(places), tokens), dtype=x.dtype, buffer=nl.sbuf)
    for first, stop, count in runs(places, nl.tile_size.psum_bank_fmax // tokens):
        turned = nl.ndarray((count, stop - first, tokens), dtype=x.dtype, buffer=nl.psum)
        for i in range(first, stop):
            nisa.nc_transpose(dst=turned[:, i - first, :], data=rows[:, places[i].of()])
        nisa.tensor_copy(dst=result[:count, first:stop, :], src=turned)
    return result


def load_columns(row: Any, places: list[Slab], first: int = 0) -> Any:
    """A vector as a column for each slab, [128, slabs] float32; None if there is no vector.

    Dimensions: row [w] in HBM, the places from `first` on. It is loaded as it lies, in one run, and turned by products
    with 1.
    """
    if row is None:
        return None
    line = nl.ndarray((1, row.shape[0]), dtype=row.dtype, buffer=nl.sbuf)
    fetch(dst=line, src=row.expand_dim(0))
    one = nl.ndarray((1, 1), dtype=row.dtype, buffer=nl.sbuf)
    nisa.memset(dst=one, value=1.0)
    shape = (nl.tile_size.pmax, len(places))
    result = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
    for begin, end, count in runs(places, nl.tile_size.psum_bank_fmax):
        turned = nl.ndarray((count, end - begin), dtype=nl.float32, buffer=nl.psum)
        for i in range(begin, end):
            column = turned[:, i - begin : i - begin + 1]
            nisa.nc_matmul(dst=column, stationary=line[:, places[i].of(first)], moving=one)
        nisa.tensor_copy(dst=result[:count, begin:end], src=turned)
    return result
