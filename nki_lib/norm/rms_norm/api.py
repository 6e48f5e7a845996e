"""`nki_lib.rms_norm`, the typed front door of the operator. Importable without PyTorch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from nki import errors

if TYPE_CHECKING:
    from torch import Tensor

_HAS_TORCH = find_spec("torch") is not None

if _HAS_TORCH:
    from nki_lib.norm.arguments import check_options
    from nki_lib.norm.rms_norm.op import CHECKS, OPERATOR


def rms_norm(
    x: Tensor,
    weight: Tensor | None = None,
    eps: float = 1e-6,
    *,
    residual: Tensor | None = None,
    offset: float = 0.0,
    quantize: str | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """Root mean square normalisation of rows: x / sqrt(mean(x^2) + eps) * (offset + weight).

    x: [..., H] of any strides, float32, bfloat16 or float16. weight: [H], any of these types; without one nothing is
    multiplied, and offset plays no part.
    residual: [..., H] like x. Then s = x + residual, rounded to the type of x, is normalised, and returned too.
    offset: added to weight; 1.0 for Gemma, which keeps weights around 0.
    quantize: None; "float8_e4m3fn" or "float8_e5m2", 8 bits with a float32 scale for each row, its largest magnitude
    over the largest number of the type, H at most 8192 in float32 and 16384 otherwise; "mxfp8_e4m3" or
    "mxfp8_e5m2", 8 bits with a power of two for each 32 columns, as OCP's Microscaling Formats define it. What is
    quantised is the result in the type of x.

    Returns out, [..., H] in the dtype of x; with a residual (out, s). Quantised, data [..., H] and scale take the place
    of out: (data, scale) or (data, scale, s), with scale [..., 1] float32 or [..., H/32] float8_e8m0fnu, and data
    times scale is the result. All are contiguous. Statistics and products are float32, rounded once at the end.
    Works in eager mode, under `torch.compile(fullgraph=True)` and with autograd: x, weight and residual get gradients
    unless the result is quantised (NoBackwardError).
    Raises ShapeError, DtypeError or ArgumentError naming the argument; MissingExtraError without PyTorch.

    Example: out, s = nki_lib.rms_norm(attn, norm.weight, 1e-5, residual=hidden)
    """
    if not _HAS_TORCH:
        raise errors.MissingExtraError(
            "nki_lib.rms_norm needs PyTorch, which is not installed",
            remedy="pip install 'open-nki[torch]', or launch the kernel on NumPy arrays: "
            "nki_lib.norm.rms_norm.kernel",
        )
    CHECKS.required(x=x)
    CHECKS.places(x=x, weight=weight, residual=residual)
    check_options(CHECKS, eps, quantize, offset)
    found = OPERATOR(x, weight, residual, eps=eps, offset=offset, quantize=quantize)
    return found[0] if len(found) == 1 else tuple(found)
