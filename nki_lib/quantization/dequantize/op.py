"""`torch.ops.nki_lib.dequantize`: checks, vectors as rows, launches."""

from __future__ import annotations

import torch
from torch import Tensor

from nki import errors
from nki.torch import nki_op
from nki_lib.common.arguments import Checks
from nki_lib.common.rows import name_of, run_on_rows
from nki_lib.quantization.dequantize.kernel import dequantize as kernel
from nki_lib.quantization.formats import FORMATS, Format
from nki_lib.quantization.tensors import (
    NIBBLES,
    as_rows,
    check_blocks,
    check_options,
    checked_axis,
    element_type,
    new_beside,
    resized,
    row_width,
    scale_type,
)

CHECKS = Checks("dequantize")


def _fake(
    data: Tensor,
    scale: Tensor,
    *,
    format: str | None = None,
    dim: int = -1,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    return empty_result(data, *check_arguments(data, scale, format, dim, dtype), dtype)


@nki_op(
    "nki_lib::dequantize",
    fake=_fake,
    schema="(Tensor data, Tensor scale, *, str? format=None, int dim=-1, ScalarType dtype=float32) -> Tensor",
)
def dequantize(
    data: Tensor,
    scale: Tensor,
    *,
    format: str | None = None,
    dim: int = -1,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """The operator behind `nki_lib.dequantize`, where the arguments are explained."""
    made, axis = check_arguments(data, scale, format, dim, dtype)
    out = empty_result(data, made, axis, dtype)
    if data.numel() == 0:
        return out
    rows, scales, values = as_rows(data.view(torch.uint8), axis), scale, as_rows(out, axis)
    if made.blocks:
        width = row_width(values.shape[1])
        values = values.view(-1, width)
        rows = rows.reshape(values.shape[0], -1)
        scales = as_rows(scale.view(torch.uint8), axis).reshape(values.shape[0], -1)
    else:
        scales = as_rows(scale, axis)
    run_on_rows([values], kernel, [rows, scales], made.name, name_of(dtype))
    return out


def empty_result(data: Tensor, made: Format, axis: int, dtype: torch.dtype) -> Tensor:
    """Values; in memory the quantised axis is the innermost one."""
    return new_beside(data, resized(data.shape, axis, data.shape[axis] * made.packed), axis, dtype)


def format_of(data: Tensor, scale: Tensor) -> str | None:
    """The format that has these types, if there is one."""
    for name, made in FORMATS.items():
        types = (torch.uint8, NIBBLES) if made.element is None else (element_type(made),)
        if data.dtype in types and scale.dtype == scale_type(made):
            return name
    return None


def check_arguments(
    data: Tensor, scale: Tensor, format: str | None, dim: int, dtype: torch.dtype
) -> tuple[Format, int]:
    """The format and the axis; raise for what cannot be computed, naming the argument."""
    check_options(CHECKS, format, dim, optional=True)
    CHECKS.dtype("dtype", dtype, optional=False)
    name = format_of(data, scale) if format is None else format
    if name is None:
        allowed = (
            "types that a format has: float8_e4m3fn or float8_e5m2 with float32 or float8_e8m0fnu scales, "
        )
        remedy = "pass format="
        raise CHECKS.error(errors.DtypeError, "data", data, allowed + "uint8 with float8_e8m0fnu", remedy)
    made = FORMATS[name]
    wanted = element_type(made)
    if data.dtype not in (wanted, torch.uint8):
        raise CHECKS.error(errors.DtypeError, "data", data, f"{wanted}, or its bytes in uint8")
    if scale.dtype != scale_type(made) and not (made.blocks and scale.dtype == torch.uint8):
        allowed = f"{scale_type(made)}" + (", or its bytes in uint8" if made.blocks else "")
        raise CHECKS.error(errors.DtypeError, "scale", scale, allowed)
    if data.dim() == 0:
        raise CHECKS.error(errors.ShapeError, "data", data, "at least one dimension")
    if scale.device != data.device:
        raise CHECKS.error(errors.ArgumentError, "scale", scale, f"{data.device}, as data")
    axis = checked_axis(CHECKS, data, "data", dim)
    count = data.shape[axis] * made.packed
    check_blocks(CHECKS, "data", data, made, count)
    expected = tuple(resized(data.shape, axis, made.scales(count)))
    CHECKS.shape("scale", scale, expected, "one for each vector or block of data")
    return made, axis


OPERATOR = torch.ops.nki_lib.dequantize.default
"""What `nki_lib.dequantize` calls."""
