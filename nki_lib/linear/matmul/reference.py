"""What the product computes, in plain PyTorch: the oracle of its tests. In float64 it is the truth."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

ACTIVATIONS = {
    None: lambda x: x,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
    "sigmoid": lambda x: x.sigmoid(),
    "tanh": lambda x: x.tanh(),
}


def matmul(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    a_scale: Tensor | None = None,
    b_scale: Tensor | None = None,
    activation: str | None = None,
) -> Tensor:
    """activation((a b) * a_scale * b_scale + bias), in float32, or float64 if a is of it.

    Dimensions: a [M, K], b [K, N], a_scale [M], b_scale [N] or one element each, bias [N] -> [M, N].
    """
    wide = a.double if a.element_size() == 8 else a.float
    left = wide()
    result = left @ b.to(left.dtype)
    if a_scale is not None:
        result = result * a_scale.reshape(-1, 1)
    if b_scale is not None:
        result = result * b_scale.reshape(1, -1)
    if bias is not None:
        result = result + bias
    return ACTIVATIONS[activation](result)
