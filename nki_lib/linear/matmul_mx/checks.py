"""What `matmul_mx` accepts: formats from types, and the shapes that belong together."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nki import errors
from nki_lib.common.arguments import DTYPES, Checks
from nki_lib.quantization.formats import BLOCK, FORMATS, Format
from nki_lib.quantization.tensors import NIBBLES

CHECKS = Checks("matmul_mx")
BY_TYPE = {
    torch.float8_e4m3fn: "mxfp8_e4m3",
    torch.float8_e5m2: "mxfp8_e5m2",
    torch.uint8: "mxfp4_e2m1",
    NIBBLES: "mxfp4_e2m1",
}
ROUNDED = ("mxfp8_e4m3", "mxfp8_e5m2")


@dataclass(frozen=True)
class Formats:
    """Of both factors, by name, and the type of the result."""

    a: str
    b: str
    dtype: torch.dtype

    @staticmethod
    def of_weight(b: Tensor) -> str:
        """The format that a tensor's type says."""
        return BY_TYPE[b.dtype]


def check_arguments(
    a: Tensor,
    b: Tensor,
    b_scale: Tensor,
    a_scale: Tensor | None,
    bias: Tensor | None,
    a_format: str,
    dtype: torch.dtype | None,
) -> Formats:
    """Formats and type of the result; raise for what cannot be computed, naming the argument."""
    made = format_of("b", b)
    if b.dim() != 2:
        raise CHECKS.error(errors.ShapeError, "b", b, "2 dimensions, [contracted, columns]")
    depth = b.shape[0] * made.packed
    check_scales("b", b, b_scale, depth, 0)
    check_options(a_format, dtype, quantized=a_scale is not None)
    left = check_left(a, a_scale, a_format, depth)
    for name, tensor in (("b", b), ("bias", bias)):
        if tensor is not None and tensor.device != a.device:
            raise CHECKS.error(errors.ArgumentError, name, tensor, f"{a.device}, as a")
    if bias is not None:
        CHECKS.tensor("bias", bias, "columns")
        CHECKS.shape("bias", bias, (b.shape[1],), "one for each column of b")
    if dtype is None:
        dtype = a.dtype if a_scale is None else torch.bfloat16
    return Formats(left.name, made.name, dtype)


def check_options(a_format: object, dtype: object, *, quantized: bool) -> None:
    """What is no tensor. The format matters only where a is not quantised yet."""
    remedy = None if quantized else "quantise it first: a, a_scale = nki_lib.quantize(a, 'mxfp4_e2m1')"
    CHECKS.choice("a_format", a_format, FORMATS if quantized else ROUNDED, remedy=remedy)
    CHECKS.dtype("dtype", dtype)


def check_left(a: Tensor, a_scale: Tensor | None, a_format: str, depth: int) -> Format:
    """The format of a, whose last axis is the contracted one."""
    if a.dim() == 0:
        raise CHECKS.error(errors.ShapeError, "a", a, "at least one dimension, the contracted axis last")
    if a_scale is not None:
        made = format_of("a", a)
    elif a.dtype not in DTYPES:
        remedy = "cast it, or pass its scales: a_scale="
        raise CHECKS.error(errors.DtypeError, "a", a, "float32, bfloat16 or float16", remedy)
    else:
        made = FORMATS[a_format]
    count = a.shape[-1] * (1 if a_scale is None else made.packed)
    if count != depth:
        raise CHECKS.error(
            errors.ShapeError, "a", a, f"{depth} values in its last axis, as many as b has rows"
        )
    if a_scale is not None:
        check_scales("a", a, a_scale, depth, a.dim() - 1)
    return made


def format_of(name: str, tensor: Tensor) -> Format:
    """The format of an operand with scales."""
    if tensor.dtype in BY_TYPE:
        return FORMATS[BY_TYPE[tensor.dtype]]
    allowed = "float8_e4m3fn, float8_e5m2, or float4_e2m1fn_x2 or uint8 with two elements in a byte"
    remedy = f"quantise it: {name}, {name}_scale = nki_lib.quantize({name}, 'mxfp8_e4m3')"
    raise CHECKS.error(errors.DtypeError, name, tensor, allowed, remedy)


def check_scales(name: str, data: Tensor, scale: Tensor, depth: int, axis: int) -> None:
    """Whether an operand of `depth` on the contracted axis has a scale for every block."""
    if depth % BLOCK:
        allowed = f"a multiple of {BLOCK} values on the contracted axis, whole blocks"
        raise CHECKS.error(errors.ShapeError, name, data, allowed, "pad it with zeros")
    if scale.dtype not in (torch.float8_e8m0fnu, torch.uint8):
        allowed = "float8_e8m0fnu, or its bytes in uint8"
        raise CHECKS.error(errors.DtypeError, f"{name}_scale", scale, allowed)
    if scale.device != data.device:
        raise CHECKS.error(errors.ArgumentError, f"{name}_scale", scale, f"{data.device}, as {name}")
    expected = (*data.shape[:axis], depth // BLOCK, *data.shape[axis + 1 :])
    CHECKS.shape(f"{name}_scale", scale, tuple(expected), f"one for every {BLOCK} values of {name}")
