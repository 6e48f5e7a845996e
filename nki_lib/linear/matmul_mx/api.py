"""`nki_lib.matmul_mx`, the typed front door of the operator. Importable without PyTorch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from nki import errors

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_HAS_TORCH = find_spec("torch") is not None

if _HAS_TORCH:
    from nki_lib.common.arguments import autocast
    from nki_lib.linear.matmul_mx.checks import CHECKS, check_options
    from nki_lib.linear.matmul_mx.op import OPERATOR


def matmul_mx(
    a: Tensor,
    b: Tensor,
    b_scale: Tensor,
    a_scale: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    a_format: Literal["mxfp8_e4m3", "mxfp8_e5m2"] = "mxfp8_e4m3",
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The product a b + bias with microscaled weights, on the Tensor engine's MX multiplication where it has one.

    a: [..., K] in float32, bfloat16 or float16, quantised on the way to `a_format` (float32 is rounded to bfloat16
    first) with the scales of `nisa.quantize_mx`: 2^(floor(log2 m) - exponent + 1), twice those of `nki_lib.quantize`.
    Or quantised before, with a_scale [..., K / 32].
    b: [K, N] in float8_e4m3fn or float8_e5m2, or [K / 2, N] in float4_e2m1fn_x2 or uint8, the first element of a byte
    in its lower half. b_scale: [K / 32, N] in float8_e8m0fnu, or its bytes in uint8. Of a weight [N, K] and scales
    [N, K / 32] as torch.nn.Linear and checkpoints keep them, pass the transposed views: no layout is copied here.
    bias: [N] in float32, bfloat16 or float16. K is a multiple of 32. Formats of a and b may differ.
    dtype: of the result: that of a by default, bfloat16 if it is quantised.

    Returns [..., N], contiguous, summed in float32 and rounded once, after the bias. A NaN or an infinity in a makes
    its row NaN. The gradient of a goes straight through its rounding; what is quantised before, and scales, have none
    (NoBackwardError).
    Under `torch.autocast` a and bias are cast.
    Raises ShapeError, DtypeError or ArgumentError naming the argument; MissingExtraError without PyTorch.

    Example:
        weight, scale = nki_lib.quantize(linear.weight, "mxfp4_e2m1")  # once
        y = nki_lib.matmul_mx(x, weight.mT, scale.mT, bias=linear.bias)
    """
    if not _HAS_TORCH:
        raise errors.MissingExtraError(
            "nki_lib.matmul_mx needs PyTorch, which is not installed",
            remedy="pip install 'open-nki[torch]', or launch the kernel on NumPy arrays: "
            "nki_lib.linear.matmul_mx.kernel",
        )
    CHECKS.required(a=a, b=b, b_scale=b_scale)
    CHECKS.places(a=a, b=b, b_scale=b_scale, a_scale=a_scale, bias=bias)
    check_options(a_format, dtype, quantized=a_scale is not None)
    a, bias = autocast(a, bias)
    return OPERATOR(a, b, b_scale, a_scale, bias, a_format=a_format, dtype=dtype)
