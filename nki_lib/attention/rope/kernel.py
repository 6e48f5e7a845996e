"""Rotary position embedding of rows of heads, and the rotation of one tile, which the QKV projection uses too.

Letters used in every docstring here:
  R  rows: a position of a batch element each     m  rows of a tile, up to 128
  H  heads, h of them in one tile                 D  head dimension, even
  W  width of the tables: D, or D/2 if both members of a pair share their entry
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import load

TILE_WIDTH = 2048  # elements of a row in one tile: enough to keep an engine busy, and three such tiles fit


@nki.jit
def rope(x: Any, cos: Any, sin: Any, interleaved: bool) -> Any:
    """Every pair (a, b) of a head becomes (a cos - b sin, b cos + a sin), in float32 and rounded once.

    Dimensions: x [R, H, D], cos, sin [R, W] -> [R, H, D]. Pairs are (i, i + D/2), or (2i, 2i + 1) if interleaved.

    Pseudocode:
        for each tile of 128 rows:
            load its rows of the tables
            for each group of heads: load, rotate, store
    """
    rows, heads, depth = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    group = max(TILE_WIDTH // depth, 1)
    for start in range(0, rows, nl.tile_size.pmax):
        stop = min(start + nl.tile_size.pmax, rows)
        cosines, sines = load(cos[start:stop]), load(sin[start:stop])
        for first in range(0, heads, group):
            last = min(first + group, heads)
            tile = load(x[start:stop, first:last, :])
            turned = nl.ndarray(tile.shape, dtype=x.dtype, buffer=nl.sbuf)
            rotate(turned, tile, cosines, sines, interleaved)
            nisa.dma_copy(dst=out[start:stop, first:last, :], src=turned)
    return out


def rotate(dst: Any, x: Any, cos: Any, sin: Any, interleaved: bool) -> None:
    """dst = x with every pair rotated; rounded once, to the type of dst.

    Dimensions: dst [m, h, D] in SBUF, x [m, h, D] in SBUF or PSUM, cos, sin [m, W] in SBUF. W = D keeps an entry for
    either member: first' = first cos1 - second sin1, second' = second cos2 + first sin2.
    """
    heads, depth = x.shape[1:]
    first, second = pairs(x, interleaved)
    new_first, new_second = pairs(dst, interleaved)
    cos1, cos2 = table_views(cos, heads, depth, interleaved)
    sin1, sin2 = table_views(sin, heads, depth, interleaved)
    combine(new_first, first, cos1, second, sin1, nl.subtract)
    combine(new_second, second, cos2, first, sin2, nl.add)


def pairs(tile: Any, interleaved: bool) -> Any:
    """The first and the second members of all pairs, as views. Dimensions: [m, h, D] -> two of [m, h, D/2]."""
    depth = tile.shape[2]
    if interleaved:
        return tile.slice(2, 0, depth, 2), tile.slice(2, 1, depth, 2)
    return tile[:, :, : depth // 2], tile[:, :, depth // 2 :]


def table_views(table: Any, heads: int, depth: int, interleaved: bool) -> Any:
    """The entries of first and of second members, repeated for every head. Dimensions: [m, W] -> two of [m, h, D/2]."""
    repeated = table.expand_dim(1)
    first, second = pairs(repeated, interleaved) if table.shape[1] == depth else (repeated, repeated)
    return first.broadcast(1, heads), second.broadcast(1, heads)


def combine(dst: Any, a: Any, by_a: Any, b: Any, by_b: Any, op: Any) -> None:
    """dst = a * by_a op b * by_b, products in float32. Dimensions: all [m, h, D/2]."""
    straight = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
    crossed = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=straight, data1=a, data2=by_a, op=nl.multiply)
    nisa.tensor_tensor(dst=crossed, data1=b, data2=by_b, op=nl.multiply)
    nisa.tensor_tensor(dst=dst, data1=straight, data2=crossed, op=op)
