"""Running sums of the rows or of the columns of a matrix.

Letters, see `nki_lib/common/lines.py`:
  L  lines    W  their width    m  partitions of a block    g  lines in each of them    f  part of a width
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.common.lines import Lines
from nki_lib.common.tiles import spans

PART = 8192  # elements of a line that are summed by one instruction
INTEGER_PART = 2048  # of int32, which takes a pass over the part for every doubling


@nki.jit
def cumsum(x: Any, columns: bool, reverse: bool, dtype: str | None) -> Any:
    """out[i] = x[0] + ... + x[i] of every line, or x[i] + ... + x[W - 1] in reverse, in float32 and rounded once.

    Dimensions: x [L, W], or [W, L] with columns -> the same shape, in `dtype`, by default that of x. int32 is summed
    in 32-bit integers, which wrap around.

    Pseudocode:
        for each block of lines, for each part of them, the last one first in reverse:
            load it; Vector: sum on from what its accumulators hold of the part before; store
        many short lines: element i of all lines of the block += element i - 1
    """
    out = nl.ndarray(x.shape, dtype=x.dtype if dtype is None else getattr(nl, dtype), buffer=nl.shared_hbm)
    source, target = Lines(x, columns), Lines(out, columns)
    integers = x.dtype == nl.int32
    longest = INTEGER_PART if integers else PART
    parts = spans(source.width, longest)
    if reverse:
        parts.reverse()
    blocks = source.blocks(min(source.width, longest))
    if len(parts) == 1:
        for block, tile in source.loaded(blocks):
            target.store(sums_of_lines(tile, out.dtype, reverse), block)
        return out
    for block in blocks:
        before = None
        for span in parts:
            tile = source.load(block, *span)
            if integers:
                result = integer_sums(tile, before, reverse)
                before = ends(result, reverse)
            else:
                result = nl.ndarray(tile.shape, dtype=out.dtype, buffer=nl.sbuf)
                sum_on(result, tile, 0, reverse, span == parts[0])
            target.store(result, block, *span)
    return out


def sums_of_lines(tile: Any, dtype: Any, reverse: bool) -> Any:
    """Of lines that lie in SBUF as a whole. Dimensions: [m, g, W] -> [m, g, W]."""
    lines, width = tile.shape[1:]
    if tile.dtype == nl.int32:
        return integer_sums(tile, None, reverse)
    if lines > width:
        return sums_of_short_lines(tile, dtype, reverse)
    result = nl.ndarray(tile.shape, dtype=dtype, buffer=nl.sbuf)
    for i in range(lines):
        sum_on(result, tile, i, reverse, True)
    return result


def sum_on(dst: Any, data: Any, i: int, reverse: bool, first: bool) -> None:
    """Line i: sums that begin with 0 if `first`, else with what the accumulators hold. Dimensions: [m, g, f]."""
    nisa.tensor_scalar_cumulative(
        dst=backwards(dst, i) if reverse else dst[:, i, :],
        src=backwards(data, i) if reverse else data[:, i, :],
        op0=nl.multiply,
        imm0=1.0,
        op1=nl.add,
        reduce_cmd=nisa.reduce_cmd.reset_reduce if first else nisa.reduce_cmd.reduce,
    )


def backwards(tile: Any, i: int) -> Any:
    """Line i from its last element to its first. Dimensions: [m, g, f], a whole tile -> [m, f]."""
    m, _, width = tile.shape
    return tile.ap([[tile.strides[0], m], [-1, width]], offset=(i + 1) * width - 1)


def sums_of_short_lines(tile: Any, dtype: Any, reverse: bool) -> Any:
    """One instruction for an element of all lines, not for a line. Dimensions: [m, g, W] -> [m, g, W]."""
    width = tile.shape[2]
    sums = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
    order = list(range(width))
    if reverse:
        order.reverse()
    nisa.tensor_copy(dst=sums[:, :, order[0]], src=tile[:, :, order[0]])
    for before, here in pairwise(order):
        nisa.tensor_tensor(dst=sums[:, :, here], data1=sums[:, :, before], data2=tile[:, :, here], op=nl.add)
    if dtype == nl.float32:
        return sums
    result = nl.ndarray(tile.shape, dtype=dtype, buffer=nl.sbuf)
    nisa.activation(dst=result, op=nl.copy, data=sums)
    return result


def integer_sums(tile: Any, before: Any, reverse: bool) -> Any:
    """Exact sums of all lines at once: after the step with distance d, an element is the sum of the last 2 d.

    Dimensions: tile [m, g, f] int32, before [m, g, 1] or None, what comes before the lines -> [m, g, f].
    """
    width = tile.shape[2]
    distance = 1
    while distance < width:
        sums = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
        here, there, rest = slice(distance, width), slice(0, width - distance), slice(0, distance)
        if reverse:
            here, there, rest = there, here, slice(width - distance, width)
        nisa.tensor_tensor(dst=sums[:, :, here], data1=tile[:, :, here], data2=tile[:, :, there], op=nl.add)
        nisa.tensor_copy(dst=sums[:, :, rest], src=tile[:, :, rest])
        tile, distance = sums, 2 * distance
    if before is None:
        return tile
    shifted = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=shifted, data1=tile, data2=before.broadcast(2, width), op=nl.add)
    return shifted


def ends(sums: Any, reverse: bool) -> Any:
    """The last sum of every line, copied so that the rest of the tile is free. Dimensions: [m, g, f] -> [m, g, 1]."""
    last = 0 if reverse else sums.shape[2] - 1
    result = nl.ndarray((*sums.shape[:2], 1), dtype=sums.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=sums[:, :, last : last + 1])
    return result
