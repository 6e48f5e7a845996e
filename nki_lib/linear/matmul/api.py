"""`nki_lib.matmul`, the typed front door of the operator. Importable without PyTorch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from nki import errors

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh"]

_HAS_TORCH = find_spec("torch") is not None

if _HAS_TORCH:
    from nki_lib.common.arguments import autocast
    from nki_lib.common.rows import as_rows
    from nki_lib.linear.matmul.arguments import CHECKS, MICROSCALES, check_arguments, check_options
    from nki_lib.linear.matmul.op import FUSED, OPERATOR
    from nki_lib.linear.matmul_mx.api import matmul_mx


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    bias: Tensor | None = None,
    activation: Activation | None = None,
    a_scale: Tensor | None = None,
    b_scale: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """activation((a @ b) * a_scale * b_scale + bias), in one kernel.

    a: [..., M, K]; b: [K, N]; any sizes and strides. A weight of `torch.nn.Linear` is passed as `weight.mT` and read as
    it lies. Both are float32, bfloat16 or float16, of one dtype; or b is float8_e4m3fn or float8_e5m2 beside any of
    those; or both are 8-bit, of one or of two types.
    bias: [N], float32, bfloat16 or float16. activation: None, "relu", "gelu", "gelu_tanh", "silu", "sigmoid" or "tanh".
    a_scale, b_scale: float32, for 8-bit factors: one element, or one for each row of a, [..., M] or [..., M, 1], and
    each column of b, [N] or [1, N].
    With b_scale of float8_e8m0fnu the factors are of MX formats: see `nki_lib.matmul_mx`.
    out_dtype: float32, bfloat16 or float16; by default that of a, or bfloat16 if a is 8-bit.

    Returns [..., M, N], contiguous. Numbers of 8 bits are multiplied exactly; sums, scales, bias and activation are
    computed in float32, in this order, and rounded once.
    Works in eager mode, under `torch.compile(fullgraph=True)` and with autograd: gradients of a, of bias, and of b if
    it is not 8-bit. Under `torch.autocast` factors of more than 8 bits are cast.
    Raises ShapeError, DtypeError or ArgumentError naming the argument; MissingExtraError without PyTorch.

    Example: nki_lib.matmul(x, linear.weight.mT, bias=linear.bias, activation="gelu")  # x [..., K] -> [..., N]
    """
    if not _HAS_TORCH:
        raise errors.MissingExtraError(
            "nki_lib.matmul needs PyTorch, which is not installed",
            remedy="pip install 'open-nki[torch]', or launch the kernels on NumPy arrays: "
            "nki_lib.linear.matmul.kernel, nki_lib.linear.matmul.fused",
        )
    CHECKS.required(a=a, b=b)
    CHECKS.places(a=a, b=b, bias=bias, a_scale=a_scale, b_scale=b_scale)
    check_options(activation, out_dtype)
    if b_scale is not None and b_scale.dtype == MICROSCALES:
        options = {"a_scale": a_scale, "bias": bias, "activation": activation, "dtype": out_dtype}
        return _microscaled(a, b, b_scale, options)
    a, b, bias = autocast(a, b, bias)
    check_arguments(a, b, bias, a_scale, b_scale, activation, out_dtype)
    rows = a if a.dim() == 2 else as_rows(a)
    plain = all(value is None for value in (bias, activation, a_scale, b_scale, out_dtype))
    if plain and a.dtype == b.dtype and a.element_size() > 1:
        result = OPERATOR(rows, b)
    else:
        a_scale = None if a_scale is None else a_scale.reshape(-1)
        result = FUSED(rows, b, bias, a_scale, b_scale, activation=activation, out_dtype=out_dtype)
    return result if a.dim() == 2 else result.view(*a.shape[:-1], b.shape[1])


def _microscaled(a: Tensor, b: Tensor, b_scale: Tensor, options: dict[str, Any]) -> Tensor:
    """Products of MX formats, with a scale for every 32 numbers along K, are another operator."""
    if options.pop("activation") is not None:
        allowed = "None beside microscales: the epilogue of that product has none"
        raise CHECKS.error(
            errors.ArgumentError, "activation", "a function", allowed, "apply it to the result"
        )
    return matmul_mx(a, b, b_scale, **options)
