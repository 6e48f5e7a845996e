"""Softmax of the rows or of the columns of a matrix.

Letters, see `nki_lib/common/lines.py`:
  L  lines    W  their width    m  partitions of a block    g  lines in each of them    f  part of a width
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.common.lines import Lines
from nki_lib.common.tiles import LOWEST, column, spans

WHOLE = 8192  # the widest lines whose exponentials stay in SBUF; wider ones are read twice, in parts
PART = 4096
KEPT_BYTES = 1 << 16  # of a line in its partition: such a line is read once, though it is treated in parts


@nki.jit
def softmax(x: Any, columns: bool, dtype: str | None) -> Any:
    """exp(x - max) / sum exp(x - max) of every line, in float32 and rounded once.

    Dimensions: x [L, W], or [W, L] with columns -> the same shape, in `dtype`, by default that of x.

    Pseudocode:
        for each block of lines:
            load it
            Vector: top = max x;  Scalar: e = exp(x - top) and its sum;  Vector: e / sum
            store
        wider lines: top and sum of every part, then of the line; load again what was not kept, exp(x - top) / sum
    """
    out = nl.ndarray(x.shape, dtype=x.dtype if dtype is None else getattr(nl, dtype), buffer=nl.shared_hbm)
    source, target = Lines(x, columns), Lines(out, columns)
    if source.width > WHOLE:
        softmax_in_parts(target, source)
        return out
    for block, tile in source.loaded(source.blocks()):
        m, g, width = tile.shape
        negated, sums, inverse = nl.ndarray((m, g), dtype=x.dtype, buffer=nl.sbuf), column(m, g), column(m, g)
        nisa.tensor_reduce(dst=negated, data=tile, op=nl.maximum, axis=2, negate=True)
        powers = nl.ndarray((m, g, width), dtype=nl.float32, buffer=nl.sbuf)
        for i in range(g):
            mine = slice(i, i + 1)
            exponentials(powers[:, i, :], tile[:, i, :], negated[:, mine], sums[:, mine])
        nisa.reciprocal(dst=inverse, data=sums)
        result = nl.ndarray((m, g, width), dtype=out.dtype, buffer=nl.sbuf)
        for i in range(g):
            nisa.tensor_scalar(
                dst=result[:, i, :], data=powers[:, i, :], op0=nl.multiply, operand0=inverse[:, i : i + 1]
            )
        target.store(result, block)
    return out


def softmax_in_parts(target: Any, source: Any) -> None:
    """Wide lines: the statistics of a block are taken before the one before it is finished, so that no engine waits."""
    parts = spans(source.width, PART)
    blocks = source.blocks(PART)
    following = measure(source, blocks[0], parts)
    for i, block in enumerate(blocks):
        measured = following
        if i + 1 < len(blocks):
            following = measure(source, blocks[i + 1], parts)
        finish(target, source, block, parts, *measured)


def measure(source: Any, block: Any, parts: list[Any]) -> tuple[Any, Any, Any]:
    """The parts of a block if they fit, -top and 1 / sum of its lines. Dimensions: -> parts [m, g, f], [m, g] twice.

    A part that is minus infinity all over adds exp(-inf + 3e38) = 0; a line that is so becomes 0 / 0, as it should.
    """
    m, g = block[1:]
    tops = nl.ndarray((m, g, len(parts)), dtype=nl.float32, buffer=nl.sbuf)
    sums = nl.ndarray((m, g, len(parts)), dtype=nl.float32, buffer=nl.sbuf)
    kept = {}
    for p, span in enumerate(parts):
        tile = source.load(block, *span)
        if g * source.width * source.dtype.itemsize <= KEPT_BYTES:
            kept[p] = tile
        top, negated = tops[:, :, p : p + 1], column(m, g)
        found = nl.ndarray((m, g), dtype=source.dtype, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=found, data=tile, op=nl.maximum, axis=2)
        nisa.tensor_scalar(dst=top, data=found, op0=nl.maximum, operand0=LOWEST)
        nisa.tensor_scalar(dst=negated, data=top, op0=nl.multiply, operand0=-1.0)
        for i in range(g):
            nowhere = nl.ndarray((m, 1), dtype=nl.float32, buffer=nl.sbuf).broadcast(1, span[1] - span[0])
            exponentials(nowhere, tile[:, i, :], negated[:, i : i + 1], sums[:, i, p : p + 1])
    return kept, *totals(tops, sums)


def finish(
    target: Any, source: Any, block: Any, parts: list[Any], kept: Any, negated: Any, inverse: Any
) -> None:
    """exp(x - top) / sum of a block. Dimensions: as `measure` returns them."""
    m, g = block[1:]
    for p, span in enumerate(parts):
        tile = kept[p] if kept else source.load(block, *span)
        result = nl.ndarray(tile.shape, dtype=target.dtype, buffer=nl.sbuf)
        for i in range(g):
            powers = nl.ndarray((m, span[1] - span[0]), dtype=nl.float32, buffer=nl.sbuf)
            mine = slice(i, i + 1)
            nisa.activation(dst=powers, op=nl.exp, data=tile[:, i, :], bias=negated[:, mine])
            nisa.tensor_scalar(dst=result[:, i, :], data=powers, op0=nl.multiply, operand0=inverse[:, mine])
        target.store(result, block, *span)


def totals(tops: Any, sums: Any) -> tuple[Any, Any]:
    """-top and 1 / sum of whole lines, from those of their parts: sum = sum of sums[p] exp(tops[p] - top).

    Dimensions: tops, sums [m, g, parts] -> [m, g] twice.
    """
    m, g, parts = tops.shape
    negated, total, inverse = column(m, g), column(m, g), column(m, g)
    nisa.tensor_reduce(dst=negated, data=tops, op=nl.maximum, axis=2, negate=True)
    shifted = nl.ndarray((m, g, parts), dtype=nl.float32, buffer=nl.sbuf)
    for i in range(g):
        nisa.activation(dst=shifted[:, i, :], op=nl.exp, data=tops[:, i, :], bias=negated[:, i : i + 1])
    nisa.tensor_tensor(dst=shifted, data1=shifted, data2=sums, op=nl.multiply)
    nisa.tensor_reduce(dst=total, data=shifted, op=nl.add, axis=2)
    nisa.reciprocal(dst=inverse, data=total)
    return negated, inverse


def exponentials(dst: Any, data: Any, negated: Any, total: Any) -> None:
    """dst = exp(data + negated), total = its sum. Dimensions: dst, data [m, f], negated, total [m, 1]."""
    nisa.activation_reduce(dst=dst, op=nl.exp, data=data, bias=negated, reduce_op=nl.add, reduce_res=total)
