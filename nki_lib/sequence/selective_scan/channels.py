"""What the kernels of the selective scan keep for a tile of channels, and what they load for a part of the sequence.

Letters used in every docstring of this folder:
  d  channels, m of them in a tile, up to 128, one on each partition
  l  positions, w of them in a part    n  states of a channel, i one of them
"""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import fetch, load, spans, wide_like
from nki_lib.sequence.columns import load_column, load_wide

LONGEST_PART = nl.tile_size.psum_bank_fmax  # positions
SHARED_NUMBERS = 1 << 12  # of B, and of C, that every partition holds of a part
MOST_STATES = nl.tile_size.pmax  # one on each partition, where the gradients of B and C are summed
ELEMENTS = 2048  # of a partition in one instruction
# Tiles that are prepared together, as each of their functions is another table of the Scalar engine.
GROUP = 4


def part_width(states: int) -> int:
    """The positions of a part: a power of two, fewer for more states."""
    return min(LONGEST_PART, 1 << (SHARED_NUMBERS // states).bit_length() - 1)


def parts_of(length: int, states: int) -> int:
    """How many parts the positions have; at least one, whose states are zeros if there are no positions."""
    width = part_width(states)
    return max(-(-length // width), 1)


def together(width: int, elements: int = ELEMENTS) -> int:
    """How many states one instruction takes at once: enough elements to hide its start."""
    return max(1, elements // width)


class Channels:
    """A tile of channels: their rows, and what is the same at all positions.

    Dimensions: rates (A) [m, n], skip (D) [m, 1] or None, bias [m, 1] or None, all float32. carried [m, n]: what goes
    on to the next part.
    """

    def __init__(self, rows: Any, rates: Any, skip: Any, bias: Any) -> None:
        self.rows = slice(*rows)
        self.size = rows[1] - rows[0]
        self.rates = load_wide(rates[self.rows, :])
        self.skip, self.bias = (load_column(None if v is None else v[self.rows]) for v in (skip, bias))
        self.carried = nl.ndarray(self.rates.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=self.carried, value=0.0)

    def load(self, tensor: Any, span: Any) -> Any:
        """Their part of a tensor [d, l], or None. Dimensions: -> [m, w]."""
        return None if tensor is None else load(tensor[self.rows, span[0] : span[1]])


def groups_of(rates: Any, skip: Any, bias: Any) -> list[list[Channels]]:
    """All tiles of channels, up to GROUP in a group."""
    tiles = [Channels(rows, rates, skip, bias) for rows in spans(rates.shape[0], nl.tile_size.pmax)]
    return [tiles[i : i + GROUP] for i in range(0, len(tiles), GROUP)]


def load_shared(rows: Any, span: Any) -> Any:
    """A part of B or C, the same on every partition. Dimensions: rows [n, l] -> [128, n, w]."""
    source = rows[:, span[0] : span[1]]
    side = nl.tile_size.pmax
    tile = nl.ndarray((side, *source.shape), dtype=rows.dtype, buffer=nl.sbuf)
    fetch(dst=tile, src=source.expand_dim(0).broadcast(0, side))
    return tile


def applied(op: Any, tile: Any, bias: Any = None) -> Any:
    """op(tile + bias), on the Scalar engine. Dimensions: [m, w], bias [m, 1] or None -> [m, w] float32."""
    result = wide_like(tile)
    nisa.activation(dst=result, op=op, data=tile, bias=bias)
    return result


def combined(op: Any, left: Any, right: Any, gpsimd: bool = False) -> Any:
    """left op right, on the Vector engine, or on the slower GpSimd. Dimensions: [m, w] -> [m, w] float32."""
    result = wide_like(left)
    engine = nisa.engine.gpsimd if gpsimd else nisa.engine.vector
    nisa.tensor_tensor(dst=result, data1=left, data2=right, op=op, engine=engine)
    return result


def copied(dst: Any, src: Any, bias: Any = None) -> None:
    """dst = src + bias, a column each, on the Scalar engine. Dimensions: [m, 1]."""
    nisa.activation(dst=dst, op=nl.copy, data=src, bias=bias)


def summed(total: Any, terms: Any) -> Any:
    """Terms of some more states, added in place to the first ones. Dimensions: [m, up to k, w] -> [m, k, w]."""
    if total is None:
        return terms
    mine = total[:, : terms.shape[1], :]
    nisa.tensor_tensor(dst=mine, data1=mine, data2=terms, op=nl.add)
    return total


def folded(total: Any) -> Any:
    """The sum over the middle axis, half added to half until one is left. Dimensions: [m, k, w] -> [m, w]."""
    count = total.shape[1]
    while count > 1:
        half = count // 2
        mine = total[:, :half, :]
        nisa.tensor_tensor(dst=mine, data1=mine, data2=total[:, count - half : count, :], op=nl.add)
        count -= half
    return total[:, 0, :]
