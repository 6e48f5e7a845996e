"""How PyTorch holds the formats: types, checks, and vectors as contiguous rows."""

from __future__ import annotations

import torch
from torch import Tensor

from nki import errors
from nki_lib.common.arguments import Checks
from nki_lib.common.kinds import check_whole
from nki_lib.quantization.formats import BLOCK, FORMATS, Format

NIBBLES = getattr(torch, "float4_e2m1fn_x2", torch.uint8)
"""Two elements of four bits to a byte, the first in the lower half."""

WIDEST_ROW = 2048


def element_type(made: Format) -> torch.dtype:
    """The type of quantised data."""
    return NIBBLES if made.element is None else getattr(torch, made.element)


def scale_type(made: Format) -> torch.dtype:
    """The type of scales."""
    return torch.float8_e8m0fnu if made.blocks else torch.float32


def check_options(checks: Checks, format: object, dim: object, *, optional: bool = False) -> None:
    """The name of a format, which may be left out if it is optional, and the number of an axis."""
    checks.choice("format", format, FORMATS, optional=optional)
    check_whole(checks, "dim", dim)


def checked_axis(checks: Checks, tensor: Tensor, name: str, dim: int) -> int:
    """`dim`, counted from the first."""
    if not -tensor.dim() <= dim < tensor.dim():
        allowed = f"a dimension of `{name}`, which has {tensor.dim()}"
        raise checks.error(errors.ArgumentError, "dim", dim, allowed)
    return dim % tensor.dim()


def check_blocks(checks: Checks, name: str, tensor: Tensor, made: Format, count: int) -> None:
    """Whether `count`, the size of the quantised axis, is whole blocks."""
    if made.blocks and count % BLOCK:
        allowed = f"a multiple of {BLOCK} values on the quantised axis: {made.name} scales {BLOCK} together"
        raise checks.error(errors.ShapeError, name, tensor, allowed, "pad it with zeros")


def resized(shape: torch.Size, dim: int, size: int) -> list[int]:
    """The shape with another size of one axis."""
    return [*shape[:dim], size, *shape[dim + 1 :]]


def new_beside(tensor: Tensor, shape: list[int], dim: int, dtype: torch.dtype) -> Tensor:
    """An empty tensor whose axis `dim` is the innermost in memory, the others contiguous in order."""
    order = [*shape[:dim], *shape[dim + 1 :], shape[dim]]
    return tensor.new_empty(order, dtype=dtype).movedim(-1, dim)


def as_rows(tensor: Tensor, dim: int) -> Tensor:
    """The vectors along `dim` as rows, without a copy where they lie in memory like that."""
    last = tensor.movedim(dim, -1)
    return last.reshape(-1, last.shape[-1])


def row_width(count: int) -> int:
    """How to cut vectors of `count` values, whole MX blocks, into rows: the widest that a tile holds."""
    return max(width for width in range(BLOCK, min(count, WIDEST_ROW) + 1, BLOCK) if count % width == 0)
