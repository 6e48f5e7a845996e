"""`nki_lib.cumsum`, the typed front door of the operator. Importable without PyTorch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from nki import errors

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_HAS_TORCH = find_spec("torch") is not None

if _HAS_TORCH:
    from nki_lib.reduction.cumsum.op import CHECKS, OPERATOR


def cumsum(x: Tensor, dim: int = -1, *, dtype: torch.dtype | None = None, reverse: bool = False) -> Tensor:
    """Running sums along a dimension, as `torch.cumsum`: x[0] + ... + x[i], or x[i] + ... + x[-1] in reverse.

    x: of any shape and strides, float32, bfloat16, float16 or int32. dim: the dimension, the last one by default.
    dtype: that of the result, by default of x; as in PyTorch, x is converted to it first.
    reverse: sum from the last element to the first.

    Returns the shape of x, contiguous. Floating-point numbers are summed in float32, in order, and rounded once. int32
    stays int32, where PyTorch would return int64, and wraps around, as `torch.cumsum(x, dtype=torch.int32)`; int64 is
    refused, as the chip has no 64-bit integers.
    Works in eager mode, under `torch.compile(fullgraph=True)` and with autograd: the gradient is summed in reverse.
    Raises DtypeError or ArgumentError naming the argument; MissingExtraError without PyTorch.

    Example: nki_lib.cumsum(torch.randn(4, 1000), dim=0)
    """
    if not _HAS_TORCH:
        raise errors.MissingExtraError(
            "nki_lib.cumsum needs PyTorch, which is not installed",
            remedy="pip install 'open-nki[torch]', or launch the kernel on NumPy arrays: "
            "nki_lib.reduction.cumsum.kernel",
        )
    CHECKS.call(x, whole={"dim": dim}, flags={"reverse": reverse})
    CHECKS.result(dtype)
    return OPERATOR(x, dim, dtype=dtype, reverse=reverse)
