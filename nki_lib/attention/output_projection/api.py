"""`nki_lib.output_projection`, the typed front door of the operator. Importable without PyTorch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from nki import errors

if TYPE_CHECKING:
    from torch import Tensor

_HAS_TORCH = find_spec("torch") is not None

if _HAS_TORCH:
    from nki_lib.attention.output_projection.op import CHECKS, OPERATOR
    from nki_lib.common.arguments import autocast


def output_projection(
    attn: Tensor, weight: Tensor, bias: Tensor | None = None, residual: Tensor | None = None
) -> Tensor:
    """Merge the heads and project: merged(attn) weight^T + bias + residual.

    attn: [B, Hq, S, D], what attention returns, of any strides.
    weight: [H, Hq * D], as `torch.nn.Linear` keeps it; bias: [H]; residual: [B, S, H]. All of one dtype: float32,
    bfloat16 or float16.

    Returns [B, S, H], contiguous, summed in float32 and rounded once, after bias and residual.
    Works in eager mode, under `torch.compile(fullgraph=True)` and with autograd; the gradients of attn and weight are
    products of the same tiled kernel.
    Under `torch.autocast` all are cast.
    Raises ShapeError, DtypeError or ArgumentError naming the argument; MissingExtraError without PyTorch.

    Example: nki_lib.output_projection(torch.randn(1, 8, 77, 64), linear.weight, residual=x)  # x [1, 77, H]
    """
    if not _HAS_TORCH:
        raise errors.MissingExtraError(
            "nki_lib.output_projection needs PyTorch, which is not installed",
            remedy="pip install 'open-nki[torch]', or launch the kernel on NumPy arrays: "
            "nki_lib.attention.output_projection.kernel",
        )
    CHECKS.places(attn=attn, weight=weight, bias=bias, residual=residual)
    attn, weight, bias, residual = autocast(attn, weight, bias, residual)
    return OPERATOR(attn, weight, bias, residual)
