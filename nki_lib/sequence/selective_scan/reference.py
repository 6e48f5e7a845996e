"""What the selective scan computes, in plain PyTorch: the oracle of its tests. In float64 it is the truth."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def selective_scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
) -> tuple[Tensor, Tensor]:
    """Dimensions: u, delta, z [b, d, l], A [d, n], B, C [b, n, l], D, delta_bias [d] -> y [b, d, l], h [b, d, n]."""
    step = delta if delta_bias is None else delta + delta_bias[:, None]
    step = functional.softplus(step) if delta_softplus else step
    state, results = u.new_zeros(u.shape[0], *A.shape), []
    for t in range(u.shape[2]):
        taken = (step[:, :, t] * u[:, :, t]).unsqueeze(-1) * B[:, None, :, t]
        state = torch.exp(step[:, :, t, None] * A) * state + taken
        results.append((state * C[:, None, :, t]).sum(-1))
    y = torch.stack(results, -1) if results else torch.zeros_like(u)
    y = y if D is None else y + D[:, None] * u
    return y if z is None else y * functional.silu(z), state
