"""`nki_lib.softmax`, the typed front door of the operator. Importable without PyTorch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from nki import errors

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_HAS_TORCH = find_spec("torch") is not None

if _HAS_TORCH:
    from nki_lib.reduction.softmax.op import CHECKS, OPERATOR


def softmax(x: Tensor, dim: int = -1, *, dtype: torch.dtype | None = None) -> Tensor:
    """exp(x - max) / sum exp(x - max) along a dimension, as `torch.softmax`.

    x: of any shape and strides, float32, bfloat16 or float16. dim: the dimension, the last one by default.
    dtype: that of the result, by default of x; as in PyTorch, x is converted to it first.

    Returns the shape of x, contiguous, computed in float32 and rounded once. Lines with a NaN or plus infinity, or of
    nothing but minus infinity, become NaN.
    Works in eager mode, under `torch.compile(fullgraph=True)` and with autograd: the gradient has its own kernel.
    Raises DtypeError or ArgumentError naming the argument; MissingExtraError without PyTorch.

    Example: nki_lib.softmax(torch.randn(4, 1000), dtype=torch.float32)
    """
    if not _HAS_TORCH:
        raise errors.MissingExtraError(
            "nki_lib.softmax needs PyTorch, which is not installed",
            remedy="pip install 'open-nki[torch]', or launch the kernel on NumPy arrays: "
            "nki_lib.reduction.softmax.kernel",
        )
    CHECKS.call(x, whole={"dim": dim}, flags={})
    CHECKS.result(dtype)
    return OPERATOR(x, dim, dtype=dtype)
