"""Arithmetic on shapes and strides: one window seen in another shape, several windows seen in one common shape.

All strides here count the same unit (elements or bytes); nothing touches data.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import prod

Shape = tuple[int, ...]


def restride(shape: Shape, strides: Shape, wanted: Shape) -> Shape | None:
    """Strides that show the window (shape, strides) as `wanted` in row-major order, or `None` if a copy is needed."""
    if shape == wanted:
        return strides
    old = [(size, stride) for size, stride in zip(shape, strides) if size != 1]
    result = [0] * len(wanted)
    i = len(old) - 1
    have, step = old[i] if old else (1, 0)
    for axis in range(len(wanted) - 1, -1, -1):
        size = wanted[axis]
        if size == 1:
            continue
        while have < size or have % size:
            if i <= 0 or old[i - 1][1] != step * have:
                return None
            i -= 1
            have *= old[i][0]
        result[axis] = step
        have //= size
        step *= size
        if have == 1 and i > 0:
            i -= 1
            have, step = old[i]
    return tuple(result)


@lru_cache(maxsize=65536)
def common_view(
    windows: tuple[tuple[Shape, Shape], ...], keep_first: bool
) -> tuple[Shape, tuple[Shape | None, ...]]:
    """One shape for several windows of equal size, and each one's strides in it (`None`: that one needs a copy).

    With `keep_first`, axis 0 (the partitions, equal in all) is kept apart. The shape has as few axes as possible.
    """
    shapes = {shape for shape, _ in windows}
    if len(shapes) == 1:
        shape = next(iter(shapes))
    elif keep_first:
        rows = windows[0][0][0]
        shape = (rows, *_refine({shape[1:] for shape in shapes}))
    else:
        shape = _refine(shapes)
    views = [restride(s, strides, shape) for s, strides in windows]
    return _coalesce(shape, views, 1 if keep_first else 0)


def _refine(shapes: set[Shape]) -> Shape:
    """The coarsest shape that splits every axis of every shape, or the flat shape if their borders do not nest."""
    total = prod(next(iter(shapes)))
    borders = {1, total}
    for shape in shapes:
        step = 1
        for size in reversed(shape):
            step *= size
            borders.add(step)
    ordered = sorted(borders, reverse=True)
    if any(big % small for big, small in pairwise(ordered)):
        return max(shapes, key=lambda shape: (-len(shape), shape))
    return tuple(big // small for big, small in pairwise(ordered)) or (1,)


def _coalesce(shape: Shape, views: list[Shape | None], first: int) -> tuple[Shape, tuple[Shape | None, ...]]:
    sizes = list(shape)
    strides = [None if view is None else list(view) for view in views]
    axis = len(sizes) - 1
    while axis > first:
        inner = sizes[axis]
        if (
            inner == 1
            or sizes[axis - 1] == 1
            or all(s is None or s[axis - 1] == s[axis] * inner for s in strides)
        ):
            for s in strides:
                if s is not None:
                    s[axis - 1] = s[axis - 1] if inner == 1 else s[axis]
                    del s[axis]
            sizes[axis - 1] *= inner
            del sizes[axis]
        axis -= 1
    if first and len(sizes) == 1:
        sizes.append(1)
        for s in strides:
            if s is not None:
                s.append(0)
    return tuple(sizes), tuple(None if s is None else tuple(s) for s in strides)
