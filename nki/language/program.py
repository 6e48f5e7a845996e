"""Where a kernel runs: its core and the number of cores it was launched on (semantics rule 131)."""

from __future__ import annotations

from typing import Any

from nki import errors
from nki.ir import builder
from nki.span import capture
from nki.views import as_index


def program_id(axis: int = 0) -> int:
    """Number of this core within the launch, 0 without brackets."""
    current = builder.require("nl.program_id")
    _check_axis("program_id", axis)
    return current.core


def num_programs(axes: Any = 0) -> int:
    """Number of cores the kernel was launched on, 1 without brackets."""
    current = builder.require("nl.num_programs")
    for axis in axes if isinstance(axes, (tuple, list)) else () if axes is None else (axes,):
        _check_axis("num_programs", axis)
    return current.grid or 1


def program_ndim() -> int:
    """Dimensions of the launch grid: 1 after `kernel[n]`, 0 without brackets."""
    return 0 if builder.require("nl.program_ndim").grid is None else 1


def _check_axis(name: str, axis: Any) -> None:
    if axis != 0 or isinstance(axis, bool):
        raise errors.ArgumentError(
            f"nl.{name}: the launch grid has one axis, there is no axis {axis!r}",
            operand="axis",
            found=repr(axis),
            allowed="0",
            remedy="launch with kernel[n] and compute further coordinates from program_id(0)",
            span=capture(2),
        )


def nc(cores: int) -> int:
    """`cores` physical cores, in a launch bracket: kernel[nl.nc(2)] is kernel[2]."""
    return as_index(cores, "`cores`")


def spmd_dim(outer: int, inner: int) -> int:
    """A dimension of the launch bracket from two, one of them `nl.nc(...)`. All that fits on the cores of a launch is
    kernel[nl.spmd_dim(1, nl.nc(2))], which is kernel[2]."""
    return as_index(outer, "`outer`") * as_index(inner, "`inner`")
