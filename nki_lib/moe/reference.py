"""What experts compute, in plain PyTorch: the oracle of their tests, and the way of calls without work."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from nki_lib.moe.arguments import Experts
from nki_lib.quantization.formats import BLOCK

FP4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def activated(gate: Tensor, up: Tensor, name: str, alpha: float, limit: float) -> Tensor:
    """The gated activation of that name."""
    if name == "swiglu":
        return silu(gate) * up
    if name.startswith("geglu"):
        return gelu(gate, approximate="tanh" if name == "geglu_tanh" else "none") * up
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return (up + 1) * gate * torch.sigmoid(alpha * gate)


def expert_outputs(
    x: Tensor,
    experts: Experts,
    weights: Tensor,
    indices: Tensor,
    activation: str = "swiglu",
    alpha: float = 1.702,
    limit: float = 7.0,
    first: int = 0,
) -> Tensor:
    """y[t] = sum over j of weights[t, j] * expert indices[t, j] of x[t], plus the shared expert, in the dtype of x.

    Dimensions: x [T, H], weights, indices [T, k] -> [T, H]. first: the first of these experts among all.
    """
    result = torch.zeros_like(x)
    for e in range(experts.gate_up.shape[0]):
        token, choice = (indices == first + e).nonzero(as_tuple=True)
        if len(token):
            rows = expert(x[token], experts, e, activation, alpha, limit)
            result = result.index_add(0, token, rows * weights[token, choice, None].to(x.dtype))
    if experts.shared_gate_up is not None and experts.shared_down is not None:
        gate, up = (x @ experts.shared_gate_up[:, i] for i in range(2))
        rows = activated(gate, up, activation, alpha, limit) @ experts.shared_down
        result = result + (rows if experts.shared_gate is None else rows * experts.shared_gate[:, None])
    return result


def expert(x: Tensor, experts: Experts, e: int, activation: str, alpha: float, limit: float) -> Tensor:
    """One expert for all rows. Dimensions: [n, H] -> [n, H]."""
    gate_up = widened(experts.gate_up[e], None if experts.gate_up_scale is None else experts.gate_up_scale[e])
    down = widened(experts.down[e], None if experts.down_scale is None else experts.down_scale[e])
    gate, up = (x @ gate_up[:, i].to(x.dtype) for i in range(2))
    if experts.gate_up_bias is not None:
        gate, up = (t + experts.gate_up_bias[e, i].to(x.dtype) for i, t in enumerate((gate, up)))
    result = activated(gate, up, activation, alpha, limit) @ down.to(x.dtype)
    return result if experts.down_bias is None else result + experts.down_bias[e].to(x.dtype)


def widened(weight: Tensor, scale: Tensor | None) -> Tensor:
    """Quantised weights of one expert as numbers, in float64; plain ones as they are. Dimensions: [n, ...] each."""
    if scale is None:
        return weight
    if weight.dtype in (torch.uint8, torch.float4_e2m1fn_x2):
        bits = weight.view(torch.uint8)
        values = torch.tensor([*FP4_VALUES, *(-v for v in FP4_VALUES)], dtype=torch.float64)
        wide = torch.stack([values[(bits & 15).long()], values[(bits >> 4).long()]], 1).flatten(0, 1)
    else:
        wide = weight.double()
    if scale.dim() < weight.dim():
        return wide * scale.double()
    powers = torch.exp2(scale.view(torch.uint8).double() - 127)
    return wide * powers.repeat_interleave(BLOCK, 0)
