"""`nki_lib.dequantize`, the typed front door of the operator. Importable without PyTorch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from nki import errors
from nki_lib.quantization.quantize.api import FormatName

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_HAS_TORCH = find_spec("torch") is not None

if _HAS_TORCH:
    from nki_lib.quantization.dequantize.op import CHECKS, OPERATOR
    from nki_lib.quantization.tensors import check_options


def dequantize(
    data: Tensor,
    scale: Tensor,
    *,
    format: FormatName | None = None,
    dim: int = -1,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Elements times scales: what `nki_lib.quantize` made of its values.

    data, scale: as `nki_lib.quantize` returns them, of any strides; bytes (uint8) of elements, and of MX scales, are
    taken too. format: needed only where the types do not tell, which they do for all that `quantize` returns.
    dim: the quantised axis. dtype: of the result: float32, the default, bfloat16 or float16.

    Returns the values, computed in float32 and rounded once; `dim` is their innermost axis in memory. A NaN element and
    the scale NaN give NaN.
    Has no gradient. Raises ShapeError, DtypeError or ArgumentError naming the argument; MissingExtraError without
    PyTorch.

    Example: weight = nki_lib.dequantize(*nki_lib.quantize(weight, "mxfp4_e2m1"), dtype=torch.bfloat16)
    """
    if not _HAS_TORCH:
        raise errors.MissingExtraError(
            "nki_lib.dequantize needs PyTorch, which is not installed",
            remedy="pip install 'open-nki[torch]', or launch the kernel on NumPy arrays: "
            "nki_lib.quantization.dequantize.kernel",
        )
    CHECKS.required(data=data, scale=scale)
    CHECKS.places(data=data, scale=scale)
    check_options(CHECKS, format, dim, optional=True)
    CHECKS.dtype("dtype", dtype)
    options = {} if dtype is None else {"dtype": dtype}
    return OPERATOR(data, scale, format=format, dim=dim, **options)
