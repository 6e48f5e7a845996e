"""`torch.ops.nki_lib.quantize`: checks, vectors as rows, launches."""

from __future__ import annotations

import torch
from torch import Tensor

from nki import errors
from nki.torch import nki_op
from nki_lib.common.arguments import DTYPES, Checks
from nki_lib.common.rows import run_on_rows
from nki_lib.quantization.formats import FORMATS, Format
from nki_lib.quantization.quantize.kernel import quantize_blocks, quantize_vectors
from nki_lib.quantization.tensors import (
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

CHECKS = Checks("quantize")


def _fake(x: Tensor, format: str, *, dim: int = -1) -> tuple[Tensor, Tensor]:
    return empty_results(x, *check_arguments(x, format, dim))


@nki_op(
    "nki_lib::quantize",
    fake=_fake,
    schema="(Tensor x, str format, *, int dim=-1) -> (Tensor, Tensor)",
)
def quantize(x: Tensor, format: str, *, dim: int = -1) -> tuple[Tensor, Tensor]:
    """The operator behind `nki_lib.quantize`, where the arguments are explained."""
    made, axis = check_arguments(x, format, dim)
    data, scale = empty_results(x, made, axis)
    if x.numel() == 0:
        scale.fill_(1)
        return data, scale
    rows = as_rows(x, axis)
    elements, scales = as_rows(data.view(torch.uint8), axis), as_rows(scale, axis)
    if made.blocks:
        # Blocks are what counts: rows may be cut anywhere between them.
        rows = rows.reshape(-1, row_width(rows.shape[1]))
        elements, scales = (out.view(torch.uint8).view(rows.shape[0], -1) for out in (elements, scales))
    if made.element is not None:
        elements = elements.view(data.dtype)
    kernel = quantize_blocks if made.blocks else quantize_vectors
    run_on_rows([elements, scales], kernel, [rows], format)
    return data, scale


def empty_results(x: Tensor, made: Format, axis: int) -> tuple[Tensor, Tensor]:
    """Elements and scales; in memory the quantised axis is the innermost one."""
    count = x.shape[axis]
    data = new_beside(x, resized(x.shape, axis, count // made.packed), axis, element_type(made))
    return data, new_beside(x, resized(x.shape, axis, made.scales(count)), axis, scale_type(made))


def check_arguments(x: Tensor, format: str, dim: int) -> tuple[Format, int]:
    """The format and the axis; raise for what cannot be computed, naming the argument."""
    check_options(CHECKS, format, dim)
    made = FORMATS[format]
    if x.dtype not in DTYPES:
        raise CHECKS.error(errors.DtypeError, "x", x, "float32, bfloat16 or float16", "cast it first")
    if x.dim() == 0:
        raise CHECKS.error(errors.ShapeError, "x", x, "at least one dimension", "pass x[None]")
    axis = checked_axis(CHECKS, x, "x", dim)
    check_blocks(CHECKS, "x", x, made, x.shape[axis])
    return made, axis


OPERATOR = torch.ops.nki_lib.quantize.default
"""What `nki_lib.quantize` calls."""
