"""What `nki_lib.matmul` accepts; every error names the argument. The results are the same for fake tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from nki import errors
from nki_lib.common.arguments import DTYPES, FLOAT8, Checks, same_shape
from nki_lib.linear.matmul.epilogue import FUNCTIONS

CHECKS = Checks("matmul")
MICROSCALES = torch.float8_e8m0fnu


def is_narrow(tensor: Tensor) -> bool:
    """Whether its numbers have 8 bits."""
    return tensor.dtype in FLOAT8


def result_dtype(a: Tensor, out_dtype: torch.dtype | None) -> torch.dtype:
    """That of the result: as asked, else that of a, or bfloat16 if a is of 8 bits."""
    if out_dtype is not None:
        return out_dtype
    return torch.bfloat16 if is_narrow(a) else a.dtype


def check_pair(a: Tensor, b: Tensor) -> None:
    """Two matrices of one of the wider types that can be multiplied."""
    CHECKS.tensor("a", a, "rows, contracted")
    CHECKS.tensor("b", b, "contracted, columns", like=a)
    check_contracted(a, b)


def check_contracted(a: Tensor, b: Tensor) -> None:
    """The contracted axis."""
    if a.shape[-1] != b.shape[0]:
        raise CHECKS.error(errors.ShapeError, "b", b, f"{a.shape[-1]} rows, as many as a has columns")


def check_arguments(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None,
    a_scale: Tensor | None,
    b_scale: Tensor | None,
    activation: str | None,
    out_dtype: torch.dtype | None,
) -> None:
    """Raise for what cannot be computed. Dimensions: a [..., M, K]."""
    check_factors(a, b)
    check_contracted(a, b)
    check_scale("a_scale", a_scale, "a", a, tuple(a.shape[:-1]))
    check_scale("b_scale", b_scale, "b", b, (b.shape[1],))
    if bias is not None:
        if bias.dtype not in DTYPES:
            allowed = "float32, bfloat16 or float16"
            raise CHECKS.error(errors.DtypeError, "bias", bias, allowed, "cast it first")
        check_device("bias", bias, a)
        CHECKS.shape("bias", bias, (b.shape[1],), "one for each column of b")
    check_options(activation, out_dtype)


def check_options(activation: object, out_dtype: object) -> None:
    """What is no tensor."""
    CHECKS.choice("activation", activation, FUNCTIONS, optional=True)
    CHECKS.dtype("out_dtype", out_dtype, remedy="cast the result")


def check_matrix(a: Tensor) -> None:
    """Two axes of a: the operator, unlike `nki_lib.matmul`, takes no more."""
    if a.dim() != 2:
        allowed = "2 dimensions, [rows, contracted]"
        raise CHECKS.error(errors.ShapeError, "a", a, allowed, "call nki_lib.matmul, which takes more")


def check_factors(a: Tensor, b: Tensor) -> None:
    """Ranks, dtypes and devices of both factors."""
    allowed = "float32, bfloat16, float16, float8_e4m3fn or float8_e5m2"
    if a.dtype not in (*DTYPES, *FLOAT8):
        raise CHECKS.error(errors.DtypeError, "a", a, allowed, "cast it first")
    beside = f"{a.dtype}, as a," if not is_narrow(a) else "float8_e4m3fn or float8_e5m2, as a has 8 bits,"
    if b.dtype not in FLOAT8 and (is_narrow(a) or b.dtype != a.dtype):
        remedy = f"cast it: b.to({a.dtype})" if not is_narrow(a) else "widen a: a.to(b.dtype)"
        allowed = beside if is_narrow(a) else f"{beside} or float8_e4m3fn or float8_e5m2"
        raise CHECKS.error(errors.DtypeError, "b", b, allowed, remedy)
    if a.dim() < 2:
        raise CHECKS.error(errors.ShapeError, "a", a, "2 dimensions or more, [..., rows, contracted]")
    if b.dim() != 2:
        raise CHECKS.error(errors.ShapeError, "b", b, "2 dimensions, [contracted, columns]")
    check_device("b", b, a)


def check_device(name: str, tensor: Tensor, a: Tensor) -> None:
    """That of a."""
    if tensor.device != a.device:
        remedy = f"move it: {name}.to({str(a.device)!r})"
        raise CHECKS.error(errors.ArgumentError, name, tensor, f"{a.device}, as a", remedy)


def check_scale(name: str, scale: Tensor | None, of: str, factor: Tensor, channels: tuple[int, ...]) -> None:
    """One number for all, or one for each channel: [...channels] or that with an axis of one for the contracted."""
    if scale is None:
        return
    if not is_narrow(factor):
        remedy = f"multiply {of} by it first, or leave it out"
        raise CHECKS.error(errors.ArgumentError, name, scale, f"None, as {of} is {factor.dtype}", remedy)
    if scale.dtype != torch.float32:
        raise CHECKS.error(errors.DtypeError, name, scale, "float32", f"cast it: {name}.float()")
    check_device(name, scale, factor)
    with_one = (*channels, 1) if of == "a" else (1, *channels)
    # The number of elements last: it is not known of a tensor whose size depends on data.
    if not any(same_shape(scale.shape, each) for each in (channels, with_one)) and scale.numel() != 1:
        allowed = f"one element, or shape {list(channels)} or {list(with_one)}, one for each channel"
        raise CHECKS.error(errors.ShapeError, name, scale, allowed)
