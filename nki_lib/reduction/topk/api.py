"""`nki_lib.topk`, the typed front door of the operator. Importable without PyTorch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from nki import errors

if TYPE_CHECKING:
    from torch import Tensor

_HAS_TORCH = find_spec("torch") is not None

if _HAS_TORCH:
    from nki_lib.reduction.topk.op import CHECKS, OPERATOR


def topk(
    x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, Tensor]:
    """The k largest or smallest elements along a dimension and where they stand, as `torch.topk`.

    x: of any shape and strides, float32, bfloat16 or float16, up to 2^24 elements along the dimension. k: up to 2048.
    dim: the dimension, the last one by default. largest: False for the smallest. sorted: the results are in order
    either way.

    Returns values in the dtype of x and indices int64, with k elements along the dimension, contiguous. Values are
    the elements bit by bit. Of equal elements, the one with the lower index comes first (PyTorch leaves this open);
    -0 and 0 are equal; NaN is the greatest, as in PyTorch. In float32, the magnitudes from 3.4028230e38 on (the three
    largest numbers, not infinity) count as equal.
    Works in eager mode, under `torch.compile(fullgraph=True)` and with autograd: gradients go to the chosen elements.
    Raises ShapeError, DtypeError or ArgumentError naming the argument; MissingExtraError without PyTorch.

    Example: values, indices = nki_lib.topk(torch.randn(4, 1000), 10)
    """
    if not _HAS_TORCH:
        raise errors.MissingExtraError(
            "nki_lib.topk needs PyTorch, which is not installed",
            remedy="pip install 'open-nki[torch]', or launch the kernel on NumPy arrays: "
            "nki_lib.reduction.topk.kernel",
        )
    CHECKS.call(x, whole={"k": k, "dim": dim}, flags={"largest": largest, "sorted": sorted})
    return OPERATOR(x, k, dim, largest=largest)
