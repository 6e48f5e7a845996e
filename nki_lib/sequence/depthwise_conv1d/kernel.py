"""A filter of its own for every channel, moved along the sequence.

Letters used in every docstring here:
  C  channels, m of them in a tile, up to 128    K  taps of a filter
  L  positions of the input, T of the output, w of them in a part
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import fetch, spans
from nki_lib.norm.blocks import Late
from nki_lib.sequence.columns import load_column, load_wide

PART = 2048  # positions of the output at a time: long runs for the DMA, and several parts in flight
MOST_TAPS = 256  # each is an instruction for every part


@nki.jit
def depthwise_conv1d(
    x: Any, weight: Any, bias: Any, left: int, right: int, silu: bool, flipped: bool, dtype: str | None
) -> Any:
    """out[c, t] = f(sum over k of weight[c, k] x[c, t - left + k] + bias[c]), in float32 and rounded once.

    Dimensions: x [C, L], zero outside, weight [C, K], bias [C] or None -> [C, T], T = L + left + right - K + 1, in
    `dtype`, by default that of x. f: silu, or nothing. flipped: the taps from the last to the first, which is the
    gradient.

    Pseudocode:
        for each tile of 128 channels, for each part of the output:
            load the positions that it sees, zeros around the ends
            Scalar: the first tap times its view
            one part late: Vector: each other tap times its view, added; Scalar: bias and silu; store
    """
    channels, length = x.shape
    taps = weight.shape[1]
    positions = length + left + right - taps + 1
    out = nl.ndarray(
        (channels, positions), dtype=x.dtype if dtype is None else getattr(nl, dtype), buffer=nl.shared_hbm
    )
    late = Late(finish)
    for start, stop in spans(channels, nl.tile_size.pmax):
        filters = load_filters(weight[start:stop, :], flipped)
        shift = load_column(None if bias is None else bias[start:stop])
        for low, high in spans(positions, PART):
            seen = load_window(x[start:stop, :], low - left, high - left + taps - 1)
            total = first_tap(seen, filters, None if silu else shift)
            late.call(out[start:stop, low:high], total, seen, filters, shift, silu)
    late.finish()
    return out


def finish(target: Any, total: Any, seen: Any, filters: list[Any], bias: Any, silu: bool) -> None:
    """The other taps, silu, the store. Dimensions: target [m, w] in HBM, total [m, w], seen [m, w + K - 1]."""
    result = nl.ndarray(target.shape, dtype=target.dtype, buffer=nl.sbuf)
    other_taps(total if silu else result, total, seen, filters)
    if silu:
        nisa.activation(dst=result, op=nl.silu, data=total, bias=bias)
    nisa.dma_copy(dst=target, src=result)


def load_filters(weight: Any, flipped: bool) -> list[Any]:
    """The taps as columns, in the order in which they meet the positions. Dimensions: [m, K] -> K of [m, 1] float32."""
    tile = load_wide(weight)
    columns = [tile[:, k : k + 1] for k in range(weight.shape[1])]
    if flipped:
        columns.reverse()
    return columns


def load_window(x: Any, first: int, stop: int) -> Any:
    """Positions first to stop - 1, zero where there are none. Dimensions: [m, L] -> [m, stop - first]."""
    m, length = x.shape
    tile = nl.ndarray((m, stop - first), dtype=x.dtype, buffer=nl.sbuf)
    low, high = min(max(first, 0), stop), max(min(stop, length), first)
    if low >= high:
        nisa.memset(dst=tile, value=0.0)
        return tile
    if first < low:
        nisa.memset(dst=tile[:, : low - first], value=0.0)
    if high < stop:
        nisa.memset(dst=tile[:, high - first :], value=0.0)
    fetch(dst=tile[:, low - first : high - first], src=x[:, low:high])
    return tile


def first_tap(seen: Any, filters: list[Any], bias: Any) -> Any:
    """filters[0] * seen + bias, on the Scalar engine.

    Dimensions: seen [m, w + K - 1], filters K of [m, 1], bias [m, 1] or None -> [m, w] float32.
    """
    m, width = seen.shape[0], seen.shape[1] - len(filters) + 1
    total = nl.ndarray((m, width), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=total, op=nl.copy, data=seen[:, :width], scale=filters[0], bias=bias)
    return total


def other_taps(dst: Any, total: Any, seen: Any, filters: list[Any]) -> None:
    """dst = total + the other taps, each times seen from there on; total is used up. Dimensions: as in first_tap."""
    width = dst.shape[1]
    if len(filters) == 1 and dst is not total:
        nisa.tensor_copy(dst=dst, src=total)
    for k in range(1, len(filters)):
        nisa.scalar_tensor_tensor(
            dst=dst if k == len(filters) - 1 else total,
            data=seen[:, k : k + width],
            op0=nl.multiply,
            operand0=filters[k],
            op1=nl.add,
            operand1=total,
        )
