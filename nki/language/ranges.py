"""Loop ranges, which are all unrolled while staging, and `nl.ds`."""

from __future__ import annotations

import builtins
from typing import Any

from nki import errors
from nki.ir import builder
from nki.span import capture
from nki.views import DynamicSlice, is_dynamic

range = builtins.range


def ds(start: Any, size: Any) -> DynamicSlice:
    """`size` indices from `start` on, for a subscript: t[nl.ds(8, 4)] is t[8:12]."""
    return DynamicSlice(start, size)


def affine_range(start: Any, stop: Any = None, step: Any = 1) -> builtins.range:
    """An alias of `range`: the loop is unrolled. Deprecated; write `range`."""
    return _unrolled("affine_range", start, stop, step)


def sequential_range(start: Any, stop: Any = None, step: Any = 1) -> builtins.range:
    """An alias of `range`: the loop is unrolled. Deprecated; write `range`."""
    return _unrolled("sequential_range", start, stop, step)


def static_range(start: Any, stop: Any = None, step: Any = 1) -> builtins.range:
    """An alias of `range`: the loop is unrolled. Deprecated; write `range`."""
    return _unrolled("static_range", start, stop, step)


def _unrolled(name: str, start: Any, stop: Any, step: Any) -> builtins.range:
    bounds = (0, start, step) if stop is None else (start, stop, step)
    for value in bounds:
        if not hasattr(value, "__index__") or is_dynamic(value):
            raise errors.ArgumentError(
                f"nl.{name} needs bounds that are known while staging, got {type(value).__name__}",
                found=f"{value!r:.80}",
                allowed="integers",
                remedy="a loop with bounds of the device is not an unrolled one; for a float write int(...)",
                span=capture(2),
            )
    current = builder.current()
    if current is not None:
        current.warn("deprecated", "note", f"nl.{name} is an alias of range; write range", capture(2))
    return builtins.range(*bounds)
