"""Checks and empty results that the norms share."""

from __future__ import annotations

import torch
from torch import Tensor

from nki import errors
from nki_lib.common.arguments import DTYPES, Checks
from nki_lib.common.rows import as_rows as flat_rows
from nki_lib.norm.blocks import ROW_BYTES
from nki_lib.norm.quantizing import FORMATS
from nki_lib.quantization.formats import BLOCK

STORED = {"float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}
STORED |= {"mxfp8_e4m3": torch.float8_e4m3fn, "mxfp8_e5m2": torch.float8_e5m2}


def check(
    checks: Checks,
    x: Tensor,
    residual: Tensor | None,
    eps: float,
    quantize: str | None,
    offset: float = 0.0,
    **vectors: Tensor | None,
) -> None:
    """Raise for what cannot be computed, naming the argument; `vectors` have one number for each column."""
    check_options(checks, eps, quantize, offset)
    if x.dtype not in DTYPES:
        raise checks.error(errors.DtypeError, "x", x, "float32, bfloat16 or float16", "cast it first")
    if x.dim() == 0 or x.shape[-1] == 0:
        raise checks.error(errors.ShapeError, "x", x, "[..., H] with H at least 1")
    for name, vector in vectors.items():
        if vector is None:
            continue
        if vector.device != x.device:
            remedy = f"move it: {name}.to({str(x.device)!r})"
            raise checks.error(errors.ArgumentError, name, vector, f"{x.device}, as x", remedy)
        checks.tensor(name, vector, "width")
        checks.shape(name, vector, (x.shape[-1],), "one for each column of x")
    if residual is not None:
        checks.tensor("residual", residual, ",".join("?" * x.dim()), like=x)
        remedy = "expand it first: it is added to x as it is"
        checks.shape("residual", residual, tuple(x.shape), "that of x", remedy)
    check_format(checks, x, quantize)


def check_options(checks: Checks, eps: object, quantize: object, offset: object = 0.0) -> None:
    """Names and numbers."""
    checks.number("eps", eps, least=0, optional=False)
    checks.number("offset", offset, optional=False)
    checks.choice("quantize", quantize, FORMATS, optional=True)


def check_format(checks: Checks, x: Tensor, quantize: str | None) -> None:
    """Raise for a format that rows of x cannot have."""
    if quantize is None:
        return
    width = x.shape[-1]
    if FORMATS[quantize].blocks and width % BLOCK:
        allowed = f"x with a multiple of {BLOCK} columns for {quantize}, the elements that share a scale"
        raise checks.error(errors.ShapeError, "quantize", f"{width} columns", allowed, "pad them")
    if not FORMATS[quantize].blocks and width * x.element_size() > ROW_BYTES:
        allowed = f"rows of at most {ROW_BYTES} bytes for a scale of the whole row"
        remedy = "take an mxfp8 format"
        raise checks.error(errors.ShapeError, "quantize", f"{width} columns of {x.dtype}", allowed, remedy)


def results(x: Tensor, residual: Tensor | None, quantize: str | None) -> list[Tensor]:
    """Empty results: out, or data and scale; then s if there is a residual. All contiguous, of the shape of x."""
    if quantize is None:
        outs = [x.new_empty(x.shape)]
    elif FORMATS[quantize].blocks:
        scale = (*x.shape[:-1], x.shape[-1] // BLOCK)
        outs = [x.new_empty(x.shape, dtype=STORED[quantize]), x.new_empty(scale, dtype=torch.float8_e8m0fnu)]
    else:
        scale = (*x.shape[:-1], 1)
        outs = [x.new_empty(x.shape, dtype=STORED[quantize]), x.new_empty(scale, dtype=torch.float32)]
    return outs if residual is None else [*outs, x.new_empty(x.shape)]


def as_rows(tensor: Tensor | None) -> Tensor | None:
    """[..., n] as [R, n], contiguous; scales of MX as bytes, which is what kernels write."""
    if tensor is None:
        return None
    rows = flat_rows(tensor).contiguous()
    return rows.view(torch.uint8) if rows.dtype == torch.float8_e8m0fnu else rows


def no_gradient(operator: str, quantize: str | None) -> None:
    """Raise if results are in 8 bits."""
    if quantize is not None:
        raise errors.NoBackwardError(
            f"{operator}: a quantised result has no gradient",
            operand="quantize",
            found=quantize,
            allowed="None where gradients are needed",
            remedy="call it under torch.no_grad(), or quantise afterwards",
        )
