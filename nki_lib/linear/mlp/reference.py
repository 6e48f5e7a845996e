"""What the MLP computes, in plain PyTorch. In float64 it is the truth."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from nki_lib.norm.layer_norm.reference import layer_norm
from nki_lib.norm.rms_norm.reference import rms_norm

FUNCTIONS: dict[str, Any] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu": torch.relu,
    "relu2": lambda x: torch.relu(x).square(),
}


def mlp(
    x: Tensor,
    up: Tensor,
    down: Tensor,
    *,
    gate: Tensor | None = None,
    up_bias: Tensor | None = None,
    gate_bias: Tensor | None = None,
    down_bias: Tensor | None = None,
    activation: str = "silu",
    norm_weight: Tensor | None = None,
    norm_bias: Tensor | None = None,
    norm: str = "rms",
    eps: float = 1e-6,
    offset: float = 0.0,
    residual: Tensor | None = None,
    up_scale: Tensor | None = None,
    gate_scale: Tensor | None = None,
    down_scale: Tensor | None = None,
    limit: float | None = None,
) -> Tensor:
    """act(n gate^T) (n up^T) down^T + residual, n the normalised x. Dimensions: x [..., H], up [I, H], down [H, I]."""
    normal = x
    if norm_weight is not None and norm == "rms":
        normal = rms_norm(x, norm_weight, eps=eps, offset=offset)
    elif norm_weight is not None:
        normal = layer_norm(x, norm_weight, norm_bias, eps=eps)
    x = normal.to(x.dtype)
    up, down = whole(up, up_scale, x), whole(down, down_scale, x)
    gate = None if gate is None else whole(gate, gate_scale, x)
    hidden = functional.linear(x, up, up_bias)
    if limit is not None:
        hidden = hidden.clamp(max=limit) if gate is None else hidden.clamp(-limit, limit)
    if gate is None:
        hidden = FUNCTIONS[activation](hidden)
    else:
        opened = functional.linear(x, gate, gate_bias)
        hidden = hidden * FUNCTIONS[activation](opened if limit is None else opened.clamp(max=limit))
    result = functional.linear(hidden, down, down_bias)
    return result if residual is None else result + residual


def whole(weight: Tensor, scale: Tensor | None, like: Tensor) -> Tensor:
    """A weight times its scale, in the dtype of `like`. Dimensions: [n, k], scale [n] or None."""
    return weight if scale is None else (weight.to(scale.dtype) * scale[:, None]).to(like.dtype)
