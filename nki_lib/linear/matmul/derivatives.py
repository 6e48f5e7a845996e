"""The gradients of the activations, in plain PyTorch, so that they have gradients of their own."""

from __future__ import annotations

import torch
from torch import Tensor

ATEN = torch.ops.aten


def derivative(activation: str, grad: Tensor, x: Tensor) -> Tensor:
    """grad times the derivative of the activation at x. Dimensions: both [M, N], float32 -> the same."""
    if activation == "relu":
        return grad * (x > 0)
    if activation == "gelu":
        return ATEN.gelu_backward(grad, x)
    if activation == "gelu_tanh":
        return ATEN.gelu_backward(grad, x, approximate="tanh")
    if activation == "silu":
        y = x.sigmoid()
        return grad * y * (1 + x * (1 - y))
    if activation == "sigmoid":
        y = x.sigmoid()
        return grad * y * (1 - y)
    y = x.tanh()
    return grad * (1 - y * y)
