"""Steps of every choice of the largest elements: numbers that order like the elements, and rounds of eight.

Letters:  m  partitions   g  lines in each   w  width of a line   k  elements chosen, n of them up to whole eights
"""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl

EIGHT = 8  # elements that one instruction finds
GONE = float("-inf")  # what stands where an element has been taken away: below everything else
STEP = 2.0**104  # between the largest float32 numbers
NAN_KEY = 2.0**128 - STEP  # the largest of them
INF_KEY = NAN_KEY - STEP
FINITE = INF_KEY - STEP
NUDGE = 2.0**-26  # x + NUDGE x is rounded to x


def order_keys(tile: Any, largest: bool) -> Any:
    """Finite float32 numbers in the order of the elements, or in the opposite one; NaN is the greatest, as in PyTorch.

    The elements themselves would not do: NaN is never found again, and minus infinity looks like what has been taken
    away. Infinities and NaN become the two largest numbers; the float32 magnitudes from 3.4028230e38 on, which they
    displace, count as equal. Lines of less than eight elements get some that are gone already.

    Dimensions: [m, g, w] -> [m, g, w or 8] float32.
    """
    m, g, width = tile.shape
    keys = nl.ndarray((m, g, max(width, EIGHT)), dtype=nl.float32, buffer=nl.sbuf)
    if width < EIGHT:
        nisa.memset(dst=keys, value=GONE)
    order(keys[:, :, :width], tile, 1.0 if largest else -1.0)
    unordered = nl.ndarray(tile.shape, dtype=nl.uint8, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=unordered, data1=tile, data2=tile, op=nl.not_equal)
    value = NAN_KEY if largest else -NAN_KEY
    nisa.tensor_copy_predicated(dst=keys[:, :, :width], src=value, predicate=unordered)
    return keys


def order(keys: Any, tile: Any, sign: float) -> None:
    """keys = sign * tile, infinities replaced. Dimensions: [m, g, w].

    What float32 infinities add to FINITE is x NUDGE, cut to one STEP; it changes no other number. Numbers of 16 bits
    are all below INF_KEY.
    """
    if tile.dtype != nl.float32:
        nisa.tensor_scalar(
            dst=keys, data=tile, op0=nl.multiply, operand0=sign, op1=nl.maximum, operand1=-INF_KEY
        )
        nisa.tensor_scalar(dst=keys, data=keys, op0=nl.minimum, operand0=INF_KEY)
        return
    bounded = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(
        dst=bounded, data=tile, op0=nl.minimum, operand0=FINITE, op1=nl.maximum, operand1=-FINITE
    )
    nisa.tensor_scalar(
        dst=keys, data=tile, op0=nl.multiply, operand0=sign * NUDGE, op1=nl.minimum, operand1=STEP
    )
    op = nl.add if sign > 0 else nl.subtract
    nisa.scalar_tensor_tensor(dst=keys, data=keys, op0=nl.maximum, operand0=-STEP, op1=op, operand1=bounded)


def whole_eights(k: int) -> int:
    """How many elements the rounds for k find."""
    return -(-k // EIGHT) * EIGHT


def choose(keys: Any, k: int) -> tuple[Any, Any]:
    """The k largest of every line in descending order, and where they stand; of equal ones the first comes first.

    Dimensions: keys [m, w], from which they are taken away -> best [m, n] float32, places [m, n] uint32, of which k
    columns count.
    """
    m, count = keys.shape[0], whole_eights(k)
    best = nl.ndarray((m, count), dtype=nl.float32, buffer=nl.sbuf)
    places = nl.ndarray((m, count), dtype=nl.uint32, buffer=nl.sbuf)
    for first in range(0, count, EIGHT):
        nisa.max8(dst=best[:, first : first + EIGHT], src=keys)
        if first + EIGHT > k:  # what is gone may be taken away again
            nisa.memset(dst=best[:, k:], value=GONE)
        # Of equal values the last one searched for gets the first place: search from the smallest to the largest.
        nisa.nc_match_replace8(
            dst=keys,
            data=keys,
            vals=eight_backwards(best, first),
            imm=GONE,
            dst_idx=eight_backwards(places, first),
        )
    return best, places


def eight_backwards(tile: Any, first: int) -> Any:
    """Columns first + 7 down to first. Dimensions: [m, n], a whole tile -> [m, 8]."""
    return tile.ap([[tile.strides[0], tile.shape[0]], [-1, EIGHT]], offset=first + EIGHT - 1)


def gathered(data: Any, places: Any) -> Any:
    """The elements that stand there. Dimensions: data [m, w], places [m, k] uint32 -> [m, k]."""
    result = nl.ndarray(places.shape, dtype=data.dtype, buffer=nl.sbuf)
    nisa.nc_n_gather(dst=result, data=data, indices=places)
    return result
