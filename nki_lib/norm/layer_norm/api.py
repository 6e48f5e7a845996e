"""`nki_lib.layer_norm`, the typed front door of the operator. Importable without PyTorch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from nki import errors

if TYPE_CHECKING:
    from torch import Tensor

_HAS_TORCH = find_spec("torch") is not None

if _HAS_TORCH:
    from nki_lib.norm.arguments import check_options
    from nki_lib.norm.layer_norm.op import CHECKS, OPERATOR


def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    residual: Tensor | None = None,
    quantize: str | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """Layer normalisation of rows: (x - mean) / sqrt(variance + eps) * weight + bias.

    x: [..., H] of any strides, float32, bfloat16 or float16. weight, bias: [H], any of these types, or None.
    residual: [..., H] like x. Then s = x + residual, rounded to the type of x, is normalised, and returned too.
    quantize: None; "float8_e4m3fn" or "float8_e5m2", 8 bits with a float32 scale for each row, its largest magnitude
    over the largest number of the type, H at most 8192 in float32 and 16384 otherwise; "mxfp8_e4m3" or
    "mxfp8_e5m2", 8 bits with a power of two for each 32 columns, as OCP's Microscaling Formats define it. What is
    quantised is the result in the type of x.

    Returns out, [..., H] in the dtype of x; with a residual (out, s). Quantised, data [..., H] and scale take the place
    of out: (data, scale) or (data, scale, s), with scale [..., 1] float32 or [..., H/32] float8_e8m0fnu, and data
    times scale is the result. All are contiguous. Statistics are float32. If x, weight and bias are all 16 bits wide,
    the normalised row, its product with weight and the sum with bias are rounded to the type of x each; else the
    result is rounded once.
    Works in eager mode, under `torch.compile(fullgraph=True)` and with autograd: x, weight, bias and residual get
    gradients unless the result is quantised (NoBackwardError).
    Raises ShapeError, DtypeError or ArgumentError naming the argument; MissingExtraError without PyTorch.

    Example: nki_lib.layer_norm(hidden, norm.weight, norm.bias)
    """
    if not _HAS_TORCH:
        raise errors.MissingExtraError(
            "nki_lib.layer_norm needs PyTorch, which is not installed",
            remedy="pip install 'open-nki[torch]', or launch the kernel on NumPy arrays: "
            "nki_lib.norm.layer_norm.kernel",
        )
    CHECKS.required(x=x)
    CHECKS.places(x=x, weight=weight, bias=bias, residual=residual)
    check_options(CHECKS, eps, quantize)
    found = OPERATOR(x, weight, bias, residual, eps=eps, quantize=quantize)
    return found[0] if len(found) == 1 else tuple(found)
