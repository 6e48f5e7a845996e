"""How names, strings and windows are written in the text of a program, and what a written window means.

A window is written the way kernels write it, and always exactly:

    %t                                    all of the buffer
    %t[0:64, 3, ::2]                      slices and indices, where they can express it
    %t.ap([[512, 64], [0, 4]], offset=8)  else the pattern of [stride, size] pairs, as in `tensor.ap`
    %t.view(bfloat16)[:, 0:32]            read as another dtype: slices, strides and offset count its elements

What the device decides follows: the window stands `stride` elements further for each 1 of the index, which is a
register or a window in SBUF and less than `count`.

    %t[0:1, :].at($i, stride=64, count=9)              all of the window
    %t[0:64, :].at_rows(%rows, stride=64, count=200)   each row p by the index of p, from the offset on
    %t[:, 0:8].at_elements(%index, stride=1, count=99) each element of a partition (tensor indirection)

`nki/ir/grammar.lark` holds the syntax of all the rest, `printer.py` and `parser.py` its two directions.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod
from typing import NamedTuple

from nki import errors
from nki.dtypes import DType
from nki.ir.control import Register
from nki.ir.program import Access, Buffer, Shape, row_major

FORMAT_VERSION = 1
"""The number in the first line of a `.nkir` text; texts with another one are refused."""

_PLAIN_STORAGE = re.compile(r"\w+(?:\.[0-9]+)*")
_PLAIN_NAME = re.compile(r"[^\W\d]\w*(?:\.\w+)*")
_RESERVED = {"inf", "nan", "None", "True", "False"}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}


DYNAMIC_WORDS = {"scalar": ".at", "vector": ".at_rows", "indirect": ".at_elements"}
"""How the kinds of `Dynamic` are written."""


class Slice(NamedTuple):
    """`start:stop:step` between a window's brackets; `None` where nothing is written."""

    start: int | None
    stop: int | None
    step: int | None


# names and strings


def name_text(name: str) -> str:
    """A name as a bare word, quoted if it is none."""
    return name if _PLAIN_NAME.fullmatch(name) and name not in _RESERVED else repr(name)


def buffer_text(name: str) -> str:
    """`%acc.1`; a name with odd characters is quoted after the percent sign."""
    return f"%{name}" if _PLAIN_STORAGE.fullmatch(name) else f"%{name!r}"


def register_text(register: Register | None) -> str:
    """`$i`; a name with odd characters is quoted after the dollar sign. `$?` stands for one that is missing."""
    name = "?" if register is None else register.name
    return f"${name}" if register is None or _PLAIN_STORAGE.fullmatch(name) else f"${name!r}"


def default_label(name: str) -> str:
    """The label that is not written: a buffer's name up to the first dot."""
    return name.split(".", 1)[0]


def unquote(text: str) -> str:
    """The string that a quoted text stands for; the escapes are those that Python's `repr` writes."""
    return _ESCAPE.sub(_unescape, text[1:-1]) if "\\" in text else text[1:-1]


def _unescape(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code is None and match[4] in _ESCAPED:
        return _ESCAPED[match[4]]
    if code is None or int(code, 16) > 0x10FFFF:
        raise errors.IrSyntaxError(
            f"{match[0]} is no escape sequence",
            found=match[0],
            allowed=r"\\, \', \", \n, \r, \t, \xhh, \uhhhh or \Uhhhhhhhh",
            remedy=r"write \\ for a backslash",
        )
    return chr(int(code, 16))


# from a window to its text


@lru_cache(maxsize=4096)
def _grid(shape: Shape, itemsize: int, view_itemsize: int) -> tuple[Shape, Shape] | None:
    """Shape and strides of a buffer read with another item size; `None` if its rows do not divide."""
    last, rest = divmod((shape[-1] if shape else 1) * itemsize, view_itemsize)
    if rest or not shape or not prod(shape):
        return None
    seen = (*shape[:-1], last)
    return (seen, row_major(seen)) if last else None


def access_text(access: Access) -> str:
    """A window as the text of a program shows it."""
    dynamic = access.dynamic
    if dynamic is None:
        return _fixed_text(access)
    index = dynamic.index
    where = register_text(index) if isinstance(index, Register) else access_text(index)
    word = DYNAMIC_WORDS.get(dynamic.kind, ".at?")
    return f"{_fixed_text(access)}{word}({where}, stride={dynamic.stride}, count={dynamic.count})"


def _fixed_text(access: Access) -> str:
    """The window at index 0."""
    buffer = access.buffer
    text = buffer_text(buffer.name)
    if access.dtype != buffer.dtype:
        text += f".view({access.dtype})"
    grid = _grid(buffer.shape, buffer.dtype.itemsize, access.dtype.itemsize)
    if grid is not None:
        shape, steps = grid
        if access.strides == steps and access.shape == shape and access.offset == 0:
            return text
        inside = _slices(access, shape, steps)
        if inside is not None:
            return f"{text}[{inside}]"
    pairs = ", ".join(f"[{stride}, {size}]" for stride, size in zip(access.strides, access.shape))
    offset = f", offset={access.offset}" if access.offset else ""
    return f"{text}.ap([{pairs}]{offset})"


def _slices(access: Access, shape: Shape, steps: Shape) -> str | None:
    """The window as slices and indices; `None` if it has no such form. Each dimension that fits takes a slice."""
    sizes, strides = access.shape, access.strides
    parts = []
    used = 0
    rest = access.offset
    for length, step in zip(shape, steps):
        start, rest = divmod(rest, step)
        if not 0 <= start < length:
            return None
        if used < len(sizes) and strides[used] > 0 and strides[used] % step == 0:
            stride = strides[used] // step
            if start + (sizes[used] - 1) * stride < length:
                stop = min(start + sizes[used] * stride, length)
                parts.append(_slice_text(start, stop, stride, length))
                used += 1
                continue
        parts.append(str(start))
    return ", ".join(parts) if used == len(sizes) else None


def _slice_text(start: int, stop: int, stride: int, length: int) -> str:
    if stride != 1:
        return f"{start}:{stop}:{stride}"
    return ":" if stop - start == length else f"{start}:{stop}"


# from a text to the window


def whole_window(buffer: Buffer, dtype: DType) -> Access:
    """`%t` or `%t.view(dtype)`."""
    shape, steps = _shape_as(buffer, dtype)
    return Access(buffer, dtype, 0, shape, steps)


def sliced_window(buffer: Buffer, dtype: DType, index: tuple[int | Slice, ...]) -> Access:
    """`%t[...]`: one entry per dimension of the buffer; an integer drops its dimension."""
    shape, steps = _shape_as(buffer, dtype)
    if len(index) != len(shape):
        raise errors.IrSyntaxError(
            f"{buffer_text(buffer.name)} has {len(shape)} dimensions, {len(index)} indices are given",
            found=f"{len(index)} indices",
            allowed=f"{len(shape)}, one per dimension of {list(shape)}",
            remedy="write `:` for a dimension that is taken whole",
        )
    offset = 0
    sizes, strides = [], []
    for axis, (entry, length, step) in enumerate(zip(index, shape, steps)):
        start, stop, stride = _limits(entry, length)
        if not (0 <= start < stop <= length and stride > 0):
            raise _outside(buffer, axis, entry, length)
        offset += start * step
        if isinstance(entry, Slice):
            sizes.append(-((start - stop) // stride))
            strides.append(stride * step)
    return Access(buffer, dtype, offset, tuple(sizes), tuple(strides))


def pattern_window(buffer: Buffer, dtype: DType, pairs: tuple[tuple[int, int], ...], offset: int) -> Access:
    """`%t.ap([[stride, size], ...], offset=...)`."""
    return Access(buffer, dtype, offset, tuple(size for _, size in pairs), tuple(step for step, _ in pairs))


def _shape_as(buffer: Buffer, dtype: DType) -> tuple[Shape, Shape]:
    grid = _grid(buffer.shape, buffer.dtype.itemsize, dtype.itemsize)
    if grid is None:
        raise errors.ShapeError(
            f"the rows of {buffer.describe()} hold no whole number of {dtype} elements",
            operand=buffer_text(buffer.name),
            found=f"{buffer.shape[-1] * buffer.dtype.itemsize} bytes in the last dimension",
            allowed=f"a multiple of {dtype.itemsize} bytes",
            remedy="give the window as a pattern: %t.view(...).ap([[stride, size], ...])",
        )
    return grid


def _limits(entry: int | Slice, length: int) -> tuple[int, int, int]:
    if not isinstance(entry, Slice):
        return entry, entry + 1, 1
    start, stop, step = entry
    return start or 0, length if stop is None else stop, 1 if step is None else step


def _outside(buffer: Buffer, axis: int, entry: int | Slice, length: int) -> errors.BoundsError:
    shown = str(entry)
    if isinstance(entry, Slice):
        limits = entry[:2] if entry.step is None else entry
        shown = ":".join("" if limit is None else str(limit) for limit in limits)
    return errors.BoundsError(
        f"index {shown} leaves dimension {axis} of {buffer_text(buffer.name)}",
        operand=buffer.describe(),
        found=f"{shown} in dimension {axis}",
        allowed=f"0 to {length}, at least one element, steps of at least 1",
        remedy="keep the window inside the buffer",
    )
