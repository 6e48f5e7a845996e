"""What the functions of `nl` have in common: checked operands, result types, broadcasting, fresh tiles.

Semantics rules 21, 22 and 156. A function's result type is `dtype=` if given, else that of its operands; where two
differ the wider one that holds both (the promotion of the older API), and a float number makes integers float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nki import dtypes, errors
from nki.dtypes import DType, as_dtype
from nki.ir.program import Shape
from nki.language.creation import ndarray
from nki.language.instructions import nisa
from nki.language.memory import psum, sbuf
from nki.span import capture
from nki.tensor import NkiTensor

_PAIRS = {
    frozenset((dtypes.float16, dtypes.bfloat16)): dtypes.float32,
    frozenset((dtypes.float8_e4m3, dtypes.float8_e5m2)): dtypes.bfloat16,
    frozenset((dtypes.float8_e4m3fn, dtypes.float8_e5m2)): dtypes.bfloat16,
    frozenset((dtypes.float8_e4m3fn, dtypes.float8_e4m3)): dtypes.bfloat16,
    frozenset((dtypes.int8, dtypes.uint8)): dtypes.int16,
    frozenset((dtypes.int8, dtypes.uint16)): dtypes.int32,
    frozenset((dtypes.int16, dtypes.uint16)): dtypes.int32,
    frozenset((dtypes.int32, dtypes.uint32)): dtypes.float32,
    frozenset((dtypes.int16, dtypes.uint32)): dtypes.float32,
    frozenset((dtypes.int8, dtypes.uint32)): dtypes.float32,
}


def named(function: Callable[..., NkiTensor], name: str, doc: str, token: str | None = None) -> Any:
    """`function` as `nl.<name>`; with `token` it also stands for that operator in instructions."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    if token is not None:
        function.nki_token = token  # type: ignore[attr-defined]
    return function


def require_tile(what: str, x: Any, name: str = "x") -> NkiTensor:
    """`x`, if it is a tensor."""
    if isinstance(x, NkiTensor):
        return x
    raise errors.ArgumentError(
        f"nl.{what}: `{name}` must be a tensor, got {type(x).__name__}",
        operand=name,
        found=f"{x!r:.80}",
        allowed="a tile",
        remedy="compute with plain numbers in Python; make a tile with nl.full or nl.load",
        span=capture(2),
    )


def as_number(x: Any) -> float | int | bool | None:
    """A number that Python or NumPy knows while staging; None for anything else."""
    if isinstance(x, (bool, int, float)):
        return x
    if isinstance(x, np.generic):
        value = x.item()
        return value if isinstance(value, (bool, int, float)) else float(value)
    return None


def operand_pair(what: str, x: Any, y: Any) -> tuple[Any, Any]:
    """Two operands, each a tensor or a number, at least one of them a tensor."""
    pair = []
    for name, value in (("x", x), ("y", y)):
        number = value if isinstance(value, NkiTensor) else as_number(value)
        if number is None:
            raise errors.ArgumentError(
                f"nl.{what}: `{name}` must be a tile or a number, got {type(value).__name__}",
                operand=name,
                found=f"{value!r:.80}",
                allowed="a tile or a number",
                remedy="load arrays with nl.load; pass numbers as int or float",
                span=capture(2),
            )
        pair.append(number)
    if not any(isinstance(value, NkiTensor) for value in pair):
        raise errors.ArgumentError(
            f"nl.{what}: at least one of x and y must be a tile",
            found=f"{x!r} and {y!r}",
            allowed="two tiles, or a tile and a number",
            remedy="compute with plain numbers in Python",
            span=capture(2),
        )
    return pair[0], pair[1]


def fresh(shape: Shape, dtype: DType, buffer: Any = sbuf, name: str = "") -> NkiTensor:
    """A new tile for a result, or, with a name, for an intermediate value."""
    return ndarray(shape, dtype, buffer, name)


def as_kind(dtype: Any, otherwise: DType) -> DType:
    """The result type that the user asked for."""
    return otherwise if dtype is None else as_dtype(dtype)


def promoted(x: NkiTensor | float, y: NkiTensor | float) -> DType:
    """The type of the result of two operands, at least one of them a tensor."""
    if isinstance(x, NkiTensor) and isinstance(y, NkiTensor):
        return _wider(x.dtype, y.dtype)
    tile, number = (x, y) if isinstance(x, NkiTensor) else (y, x)
    assert isinstance(tile, NkiTensor)
    return tile.dtype if tile.dtype.is_float or not isinstance(number, float) else dtypes.float32


def _wider(a: DType, b: DType) -> DType:
    if a == b:
        return a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    found = _PAIRS.get(frozenset((a, b)))
    if found is not None:
        return found
    if a.itemsize == b.itemsize:
        return dtypes.float32 if a.is_float else a
    return a if a.itemsize > b.itemsize else b


def common_shape(what: str, *tiles: NkiTensor) -> Shape:
    """The shape that the tiles broadcast to: equal ranks, and sizes that agree or are 1."""
    first = tiles[0].shape
    if all(t.shape == first for t in tiles):
        return first
    ranks = {t.ndim for t in tiles}
    sizes = [{n for n in column if n != 1} for column in zip(*(t.shape for t in tiles))]
    if len(ranks) > 1 or any(len(found) > 1 for found in sizes):
        raise errors.ShapeError(
            f"nl.{what}: shapes {' and '.join(str(list(t.shape)) for t in tiles)} do not fit together",
            found="; ".join(t.access.describe() for t in tiles),
            allowed="equal ranks, and in each dimension equal sizes or 1",
            remedy="insert dimensions with expand_dim, or reshape one side",
            span=capture(3),
        )
    return tuple(found.pop() if found else 1 for found in sizes)


def stretched(what: str, x: NkiTensor, shape: Shape) -> NkiTensor:
    """`x` as a view of `shape`: free dimensions of size 1 are repeated. Partitions cannot be."""
    if x.shape == shape:
        return x
    if x.shape[0] != shape[0]:
        raise errors.ShapeError(
            f"nl.{what}: a tile of {x.shape[0]} partition cannot be read by {shape[0]} partitions",
            operand=x.access.describe(),
            found=f"{x.shape[0]} partition",
            allowed=f"{shape[0]} partitions: each engine lane reads its own partition",
            remedy=f"copy it to all partitions first: nl.broadcast_to(x, {(shape[0], *x.shape[1:])})",
            span=capture(3),
        )
    for dim, size in enumerate(shape):
        if x.shape[dim] != size:
            x = x.broadcast(dim, size)
    return x


def in_sbuf(x: NkiTensor) -> NkiTensor:
    """`x`, copied to SBUF if it lives in PSUM."""
    if x.buffer is not psum:
        return x
    copied = fresh(x.shape, x.dtype, name="in_sbuf")
    nisa.tensor_copy(copied, x)
    return copied


def is_column(x: NkiTensor) -> bool:
    """Whether a tile has one element per partition."""
    return x.size == x.shape[0]
