"""Transfers between a dynamic place and a fixed one without the scratch memory between.

An instruction with a dynamic operand is bound as fetch, calls, store (`moving.py`). Where all that the calls do is to
copy what was fetched, or what will be stored, the transfer can use the other window itself: one pass over memory
instead of two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from interpreter.dynamic import READERS, WRITERS
from interpreter.moving import bits_of

Call = tuple[Callable[..., Any], tuple[Any, ...]]


def straightened(before: list[Call], calls: list[Call], after: list[Call], fixed: set[int]) -> list[Call]:
    """The calls of one instruction in order. fixed: ids of the arrays that must stay arguments as they are."""
    if len(calls) == 1 and calls[0][0] is np.copyto and len(calls[0][1]) == 2:
        dst, src = calls[0][1]
        if len(before) == 1 and not after and before[0][0] in READERS.values() and id(dst) not in fixed:
            read, (out, places, index, place, mark) = before[0]
            target = _instead(dst, src, out, places)
            if target is not None and mark is None:
                return [(read, (target, places, index, place))]
        if len(after) == 1 and not before and after[0][0] in WRITERS.values() and id(src) not in fixed:
            write, (places, values, index, place, mark) = after[0]
            source = _instead(src, dst, values, places)
            if source is not None and mark is None:
                return [(write, (places, source, index, place))]
    return before + calls + after


def _instead(
    window: np.ndarray, scratch: np.ndarray, bits: np.ndarray, places: np.ndarray
) -> np.ndarray | None:
    """The window, seen as `bits` sees the scratch memory; None if it cannot stand for it, or may lie where the device
    points to."""
    same = bits.ctypes.data == scratch.ctypes.data and bits.nbytes == scratch.nbytes
    alike = window.dtype == scratch.dtype and window.shape == scratch.shape
    whole = scratch.flags.c_contiguous and bits.flags.c_contiguous
    if not (same and alike and whole) or np.may_share_memory(window, places):
        return None
    if window.shape == bits.shape:
        return bits_of(window)
    return bits_of(window).reshape(bits.shape) if window.flags.c_contiguous else None
