"""`nki_lib.quantize`, the typed front door of the operator. Importable without PyTorch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from nki import errors

if TYPE_CHECKING:
    from torch import Tensor

_HAS_TORCH = find_spec("torch") is not None

if _HAS_TORCH:
    from nki_lib.quantization.quantize.op import CHECKS, OPERATOR
    from nki_lib.quantization.tensors import check_options

FormatName = Literal["float8_e4m3fn", "float8_e5m2", "mxfp8_e4m3", "mxfp8_e5m2", "mxfp4_e2m1"]


def quantize(x: Tensor, format: FormatName, *, dim: int = -1) -> tuple[Tensor, Tensor]:
    """Values as elements of a narrow format, and the scales that bring them back.

    x: float32, bfloat16 or float16 of any shape and strides. dim: the axis whose vectors are quantised; for the MX
    formats a multiple of 32 long.
    format: "float8_e4m3fn" or "float8_e5m2" with one float32 for each vector, largest magnitude / largest element, or
    "mxfp8_e4m3", "mxfp8_e5m2", "mxfp4_e2m1" with a power of two for each block of 32, 2^(floor(log2 m) - exponent of
    the largest element), as OCP Microscaling 1.0 converts. Elements are x / scale, rounded to nearest, ties to the even
    code, clamped to the largest element.

    Returns (data, scale). data: torch.float8_e4m3fn or float8_e5m2 of the shape of x, or torch.float4_e2m1fn_x2 (uint8
    where PyTorch has no such type) with two elements in a byte, the first in the lower half, so that `dim` is half as
    long. scale: the shape of x with 1, or one for every 32, at `dim`; float32 or float8_e8m0fnu. In memory `dim` is the
    innermost axis of both, as `nki_lib.matmul_mx` likes its weights.
    A vector of zeros has the scale 1, a block of zeros 2^-127. What holds a NaN or an infinity comes back as NaN: the
    whole block; of a float8 vector all of it.
    Has no gradient. Raises ShapeError, DtypeError or ArgumentError naming the argument; MissingExtraError without
    PyTorch.

    Example: data, scale = nki_lib.quantize(linear.weight, "mxfp8_e4m3")  # [N, K] -> [N, K], [N, K / 32]
    """
    if not _HAS_TORCH:
        raise errors.MissingExtraError(
            "nki_lib.quantize needs PyTorch, which is not installed",
            remedy="pip install 'open-nki[torch]', or launch the kernels on NumPy arrays: "
            "nki_lib.quantization.quantize.kernel",
        )
    CHECKS.required(x=x)
    CHECKS.places(x=x)
    check_options(CHECKS, format, dim)
    return OPERATOR(x, format, dim=dim)
