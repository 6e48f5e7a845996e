"""`torch.ops.nki_lib.moe_prefill_backward`: the gradients of `moe_prefill` and of `moe_decode`.

Expert by expert, what the forward pass kept in the chip is computed again; the five large products of an expert run on
the tiled kernel of `nki_lib.linear.matmul`. With D = grad down^T of the rows of an expert, h its hidden values:
  of weights: D h (and grad bias)       of h: weight D           of down: h^T (weight grad)
  of gate and up: through the activation from that of h          of x: (of gate, of up) gate_up^T
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from nki import errors
from nki.torch import nki_op
from nki_lib.linear.matmul.op import OPERATOR as MATMUL
from nki_lib.moe.activations import CLAMPED
from nki_lib.moe.arguments import ExpertChecks, Experts
from nki_lib.moe.operator import ARGUMENTS, NAMES, OPTIONS, named

CHECKS = ExpertChecks("backward pass of experts")
TRAINED = [name for name in NAMES if name != "indices" and not name.endswith("scale")]
"""What may have a gradient, in the order in which gradients are returned."""


def _fake(grad: Tensor, *tensors: Tensor | None, **_: Any) -> list[Tensor]:
    found = named(tensors)
    return [empty_like(grad, found[name]) for name in TRAINED]


def empty_like(grad: Tensor, tensor: Tensor | None) -> Tensor:
    """Room for a gradient, contiguous; of no elements if there is nothing to have one."""
    return grad.new_empty(0) if tensor is None else tensor.new_empty(tensor.shape)


@nki_op(
    "nki_lib::moe_prefill_backward",
    fake=_fake,
    schema=f"(Tensor grad, {ARGUMENTS}, *, {OPTIONS}) -> Tensor[]",
)
def moe_prefill_backward(
    grad: Tensor,
    *tensors: Tensor | None,
    activation: str = "swiglu",
    alpha: float = 1.702,
    limit: float = 7.0,
    first_expert: int | None = None,
) -> list[Tensor]:
    """The gradients of all of `TRAINED`; of what was not passed, an empty tensor."""
    found = named(tensors)
    result = {name: empty_like(grad, found[name]).zero_() for name in TRAINED}
    wide = {name: torch.zeros_like(result[name], dtype=torch.float32) for name in ("x", "weights")}
    x, weights, indices = (found.pop(name) for name in ("x", "weights", "indices"))
    assert x is not None and weights is not None and indices is not None
    experts = Experts(**found)  # type: ignore[arg-type]
    how = (activation, alpha, limit)
    for e in range(experts.gate_up.shape[0]):
        token, choice = (indices == (first_expert or 0) + e).nonzero(as_tuple=True)
        if len(token) == 0 or x.numel() == 0 or experts.down.numel() == 0:
            continue
        biases = [None if b is None else b[e].float() for b in (experts.gate_up_bias, experts.down_bias)]
        given = weights[token, choice].float()
        of = one_expert(grad[token], x[token], experts.gate_up[e], experts.down[e], given, biases, how)
        wide["x"].index_add_(0, token, of["x"].float())
        wide["weights"][token, choice] = of["weights"]
        for name in ("gate_up", "down", "gate_up_bias", "down_bias"):
            if result[name].numel():
                result[name][e] = of[name]
    if experts.shared_gate_up is not None and experts.shared_down is not None and x.numel():
        gate = x.new_ones(len(x)) if experts.shared_gate is None else experts.shared_gate
        gate = gate.float()
        of = one_expert(grad, x, experts.shared_gate_up, experts.shared_down, gate, [None, None], how)
        wide["x"] += of["x"].float()
        result["shared_gate_up"].copy_(of["gate_up"])
        result["shared_down"].copy_(of["down"])
        if experts.shared_gate is not None:
            result["shared_gate"].copy_(of["weights"])
    for name, total in wide.items():
        result[name].copy_(total)
    return [result[name] for name in TRAINED]


def one_expert(
    grad: Tensor,
    x: Tensor,
    gate_up: Tensor,
    down: Tensor,
    weights: Tensor,
    biases: list[Tensor | None],
    how: tuple[str, float, float],
) -> dict[str, Tensor]:
    """The gradients of one expert's rows and weights.

    Dimensions: grad, x [n, H], gate_up [H, 2, I], down [I, H], weights [n] float32, biases [2, I] and [H] float32.
    """
    width, _, inner = gate_up.shape
    flat = gate_up.reshape(width, 2 * inner)
    both = MATMUL(x, flat).float().view(-1, 2, inner)
    if biases[0] is not None:
        both = both + biases[0]
    hidden, of_both = differentiate(both, *how)
    through = MATMUL(grad, down.mT).float()
    of_weights = (through * hidden).sum(1)
    if biases[1] is not None:
        of_weights = of_weights + (grad.float() * biases[1]).sum(1)  # torch.autocast would round a product
    of_both = of_both * (through * weights[:, None])[:, None]
    weighed = grad * weights[:, None].to(grad.dtype)
    turned = of_both.to(x.dtype).view(-1, 2 * inner)
    return {
        "x": MATMUL(turned, flat.mT),
        "weights": of_weights,
        "gate_up": MATMUL(x.mT, turned).view(gate_up.shape),
        "down": MATMUL(hidden.to(x.dtype).mT, weighed),
        "gate_up_bias": of_both.sum(0),
        "down_bias": (grad.float() * weights[:, None]).sum(0),
    }


def differentiate(both: Tensor, name: str, alpha: float, limit: float) -> tuple[Tensor, Tensor]:
    """The gated activation and its slopes by gate and up. Dimensions: [n, 2, I] -> [n, I], [n, 2, I], all float32."""
    gate, up = both.unbind(1)
    if name == CLAMPED:
        inside = torch.stack([gate <= limit, up.abs() <= limit], 1)
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit) + 1
        share = torch.sigmoid(alpha * gate)
        value, slope = gate * share, share * (1 + alpha * gate * (1 - share))
        return value * up, torch.stack([slope * up, value], 1) * inside
    if name == "swiglu":
        share = torch.sigmoid(gate)
        value, slope = gate * share, share * (1 + gate * (1 - share))
    elif name == "geglu":
        share = (1 + torch.erf(gate * 0.5**0.5)) / 2
        value, slope = gate * share, share + gate * torch.exp(-gate * gate / 2) / (2 * math.pi) ** 0.5
    else:
        scale, cubic = (2 / math.pi) ** 0.5, 0.044715
        bent = torch.tanh(scale * (gate + cubic * gate**3))
        inner = scale * (1 + 3 * cubic * gate**2)
        value, slope = gate * (1 + bent) / 2, (1 + bent + gate * (1 - bent**2) * inner) / 2
    return value * up, torch.stack([slope * up, value], 1)


def setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Tensor) -> None:
    """Keep what the forward pass was given."""
    ctx.save_for_backward(*named(inputs).values())
    ctx.options = keyword_only_inputs


def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients of the arguments, in their order."""
    tensors = ctx.saved_tensors
    experts = Experts(tensors[1], tensors[2], *tensors[5:])
    if experts.format != "plain":
        allowed, remedy = "weights of the dtype of x", "train those, and quantise them afterwards"
        raise CHECKS.error(errors.NoBackwardError, "gate_up", experts.gate_up, allowed, remedy)
    found = dict(zip(TRAINED, BACKWARD(grad.contiguous(), *tensors, **ctx.options), strict=True))
    needed = (*ctx.needs_input_grad, *(False,) * len(NAMES))
    return tuple(found.get(name) if needed[i] else None for i, name in enumerate(NAMES))


BACKWARD = torch.ops.nki_lib.moe_prefill_backward.default
"""What the backward pass calls."""
